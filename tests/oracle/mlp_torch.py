# SPDX-License-Identifier: MIT
"""PyTorch's own training of an MLP on MNIST in float32, beside the same in float64 (the twin).

    mlp_torch.py --make-init SEED --out init.npz [--sizes 784-512-512-10]
    mlp_torch.py --init init.npz --mnist DIR --out losses.csv[.gz] [--steps 200] [--batch 128]
                 [--lr 0.1] [--threads 1]

Linear layers fc1, fc2, ... with ReLU between, mean cross entropy, plain SGD. Batches come in file
order. Both networks start from the same float32 numbers and read the same float32 pixels; the twin
converts them to float64 (exactly) and computes everything in float64, with lr the double nearest
to 0.1, as torch.optim.SGD does.

Output columns: step; loss32, loss64 (mean loss of the batch before the update, shortest text that
reads back to the same float64; loss32 is a float32 value); flips (how many hidden pre-activations
of the batch are > 0 in one network and not in the other, all hidden layers together). The program
prints the first step with a flip: from there on the two compute gradients of different linear
pieces, so differences grow faster than rounding alone explains.

The last digits of loss32 depend on the BLAS and its number of threads: compare with a tolerance.
"""
import argparse
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np
import torch
import torch.nn.functional as F

import oracle_data


class Mlp:
    """Parameters of one network and its training step."""

    def __init__(self, init: Dict[str, np.ndarray], dtype: torch.dtype, lr: float) -> None:
        self.layers = oracle_data.layer_count(init)
        self.dtype = dtype
        self.parameters: List[torch.Tensor] = []
        for layer in range(1, self.layers + 1):
            for name in ("weight", "bias"):
                value = torch.from_numpy(init[f"fc{layer}.{name}"].copy()).to(dtype)
                self.parameters.append(value.requires_grad_(True))
        self.optimizer = torch.optim.SGD(self.parameters, lr=lr)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> Tuple[float, List[torch.Tensor]]:
        """One SGD step; returns the loss and the signs (> 0) of the hidden pre-activations."""
        hidden = x.to(self.dtype)
        signs: List[torch.Tensor] = []
        for layer in range(self.layers):
            z = F.linear(hidden, self.parameters[2 * layer], self.parameters[2 * layer + 1])
            if layer + 1 < self.layers:
                signs.append(z.detach() > 0)
                hidden = F.relu(z)
        loss = F.cross_entropy(z, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item(), signs


def train(args: argparse.Namespace) -> None:
    """Trains both networks and writes the losses."""
    torch.set_num_threads(args.threads)
    init = oracle_data.load_init(args.init)
    pixels, labels = oracle_data.load_mnist_train(args.mnist)
    x, y = torch.from_numpy(pixels), torch.from_numpy(labels)
    single, double = Mlp(init, torch.float32, args.lr), Mlp(init, torch.float64, args.lr)
    lines = ["step,loss32,loss64,flips"]
    first_flip = None
    worst = (0.0, -1)
    for step, part in enumerate(oracle_data.batches(len(x), args.batch, args.steps)):
        loss32, signs32 = single.step(x[part], y[part])
        loss64, signs64 = double.step(x[part], y[part])
        flips = sum(int((a != b).sum()) for a, b in zip(signs32, signs64))
        if flips and first_flip is None:
            first_flip = step
        worst = max(worst, (abs(loss32 - loss64) / abs(loss64), step))
        lines.append(f"{step},{loss32!r},{loss64!r},{flips}")
    oracle_data.write_text(args.out, lines)
    print(f"last loss: float32 {loss32!r}, float64 {loss64!r}")
    print(f"first step with a flipped ReLU sign: {'none' if first_flip is None else first_flip}")
    print(f"largest relative difference of the losses: {worst[0]:.3e} at step {worst[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make-init", type=int, metavar="SEED", help="write initial weights only")
    parser.add_argument("--sizes", type=oracle_data.parse_sizes, default=oracle_data.DEFAULT_SIZES,
                        help="layer sizes for --make-init (default: 784-512-512-10)")
    parser.add_argument("--init", type=Path, help="initial weights (.npz)")
    parser.add_argument("--mnist", type=Path, metavar="DIR", help="folder with the IDX files")
    parser.add_argument("--out", type=Path, required=True, help="output file")
    parser.add_argument("--steps", type=int, default=200, help="SGD steps (default: 200)")
    parser.add_argument("--batch", type=int, default=128, help="samples per step (default: 128)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default: 1)")
    args = parser.parse_args()
    if args.make_init is not None:
        np.savez(args.out, **oracle_data.make_init(args.make_init, args.sizes))
    elif args.init is None or args.mnist is None:
        parser.error("--init and --mnist are required unless --make-init is given")
    else:
        train(args)


if __name__ == "__main__":
    main()
