# SPDX-License-Identifier: MIT
"""Mixed fp16 training of an MLP, written from the definition alone, in NumPy float64.

    mixed_fp16_numpy.py --make-init SEED --out-prefix P          writes P.npz
    mixed_fp16_numpy.py --init init.npz --mnist DIR --out-prefix P [--steps 200] [--batch 128]
                        [--lr 0.1] [--scale 1024] [--gzip]       writes P_losses.csv, P_counts.csv
    mixed_fp16_numpy.py --self-test                              checks the rounding to fp16

Definition (`mixed_float16` with `--accumulate fp64 --loss-scale static:1024`); round16 rounds a
real number once, to nearest, ties to even, with subnormals and with overflow to infinity:
  - Input, weights and biases are read as round16 of their float32 values.
  - Gemm: z = round16(sum_k h_k w_k + bias), products and sum in float64.
  - ReLU: h = max(z, 0); its derivative at 0 is 0.
  - Loss and softmax p: from the fp16 logits, in float64; the loss is the batch mean.
  - dlogits = round16((p - onehot) * (scale / batch)), from float64.
  - Weight, bias and activation gradients: summed in float64, then round16. The gradient through a
    ReLU is a selection, hence exact.
  - The step is skipped if an element of a weight or bias gradient is not finite. Otherwise, with
    fl() rounding to float32: w = fl(w - fl(fl(lr) * fl(g / scale))) in float32 master weights.

Counts per site: underflow (the exact value is not zero, the rounded one is), subnormal (the
rounded value is not zero and below 2^-14), overflow (finite to infinite). For a value that is only
read (input, weights) the exact value is the float32 one. Losses: mean loss, and 1 if skipped.

Order of summation. A product of two fp16 numbers is exact in float64. A sum of such products is
exact too, in any order and with or without FMA, while sum_k |a_k b_k| < 2^53 u, where all products
are multiples of u. `--no-order-check` leaves out the test of this condition for every element of
every product; where it fails, the element is called order-sensitive if moving the sum by the
error bound n 2^-53 sum_k |a_k b_k| either way changes round16 or could change "is zero". The
number printed at the end is 0 when another order cannot change any number reported here. dlogits
are tested alike against an error of 2^-49 p in the softmax (a few units in the last place, what
another exp may do).
"""
import argparse
from fractions import Fraction
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import numpy as np

import oracle_data

FP16_MIN_NORMAL = 2.0**-14
FP16_MAX = 65504.0


def round16(x: np.ndarray) -> np.ndarray:
    """Rounds float64 once to the nearest fp16 value, ties to even; the result stays float64."""
    with np.errstate(invalid="ignore"):
        _, exponent = np.frexp(x)
        quantum_exponent = np.maximum(exponent - 1, -14) - 10
        # Scaling by a power of two is exact; rint rounds to nearest even.
        rounded = np.ldexp(np.rint(np.ldexp(x, -quantum_exponent)), quantum_exponent)
    return np.where(np.abs(rounded) > FP16_MAX, np.copysign(np.inf, x), rounded)


class Tap:
    """Rounds tensors to fp16 and keeps the counts of every site of one step."""

    def __init__(self) -> None:
        self.rows: List[Tuple[str, int, int, int, int]] = []

    def __call__(self, site: str, exact: np.ndarray) -> np.ndarray:
        rounded = round16(exact)
        self.rows.append((
            site, exact.size,
            int(np.count_nonzero((exact != 0) & (rounded == 0))),
            int(np.count_nonzero((rounded != 0) & (np.abs(rounded) < FP16_MIN_NORMAL))),
            int(np.count_nonzero(np.isfinite(exact) & np.isinf(rounded)))))
        return rounded


class Summation:
    """Matrix products in float64, with the order-of-summation check of the module's docstring."""

    def __init__(self, check: bool) -> None:
        self.check = check
        self.inexact = 0
        self.order_sensitive = 0
        self.exp_sensitive = 0

    @staticmethod
    def _lowest_bit(a: np.ndarray, axis: int) -> np.ndarray:
        """Largest power of two dividing every fp16 value along an axis."""
        units = (np.abs(a) * 2.0**24).astype(np.int64)
        all_bits = np.bitwise_or.reduce(units, axis=axis)
        all_bits = np.where(all_bits == 0, np.int64(1) << 40, all_bits)
        return (all_bits & -all_bits).astype(np.float64) * 2.0**-24

    def product(self, a: np.ndarray, b: np.ndarray,
                bias: Optional[np.ndarray] = None) -> np.ndarray:
        """a @ b (+ bias per column); all inputs are fp16 values in float64."""
        result = a @ b if bias is None else a @ b + bias
        finite = all(np.isfinite(t).all() for t in (a, b, bias) if t is not None)
        if not self.check or not finite:
            return result
        magnitude = np.abs(a) @ np.abs(b)
        unit = np.outer(self._lowest_bit(a, 1), self._lowest_bit(b, 0))
        if bias is not None:
            magnitude = magnitude + np.abs(bias)
            unit = np.minimum(unit, self._lowest_bit(bias[None, :], 0))
        # The factor covers the rounding of `magnitude` itself.
        suspect = magnitude * (1 + 2.0**-40) >= 2.0**53 * unit
        if suspect.any():
            s = result[suspect]
            error = (a.shape[1] + 1) * 2.0**-53 * magnitude[suspect] * (1 + 2.0**-40)
            self.inexact += int(suspect.sum())
            self.order_sensitive += int(_rounding_may_change(s, error).sum())
        return result


def _rounding_may_change(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Returns where round16 or "is zero" may differ between numbers within `error` of `value`."""
    return (round16(value - error) != round16(value + error)) | (np.abs(value) <= error)


def softmax_loss(logits: np.ndarray, labels: np.ndarray) -> Tuple[float, np.ndarray]:
    """Mean cross entropy and softmax, in float64."""
    rows = np.arange(len(labels))
    top = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shifted = logits - top
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=1, keepdims=True)
    loss = float(np.mean(np.log(total[:, 0]) - shifted[rows, labels]))
    return loss, exponentials / total


def train_step(weights: Dict[str, np.ndarray], pixels: np.ndarray, labels: np.ndarray,
               lr: np.float32, scale: float, sums: Summation,
               tap: Tap) -> Tuple[float, bool, int]:
    """One step; updates `weights` (float32) in place unless skipped.

    Returns the loss, whether the step was skipped, and in how many elements dlogits would differ
    had it been rounded to float32 on the way to fp16.
    """
    layers = oracle_data.layer_count(weights)
    inputs = {1: tap("input.input", pixels.astype(np.float64))}
    read: Dict[str, np.ndarray] = {}
    z: Dict[int, np.ndarray] = {}
    for layer in range(1, layers + 1):
        for name in (f"fc{layer}.weight", f"fc{layer}.bias"):
            read[name] = tap(name, weights[name].astype(np.float64))
        z[layer] = tap(f"fc{layer}.activation",
                       sums.product(inputs[layer], read[f"fc{layer}.weight"].T,
                                    read[f"fc{layer}.bias"]))
        if layer < layers:
            inputs[layer + 1] = tap(f"relu{layer}.activation", np.maximum(z[layer], 0.0))

    loss, probabilities = softmax_loss(z[layers], labels)
    onehot = np.zeros_like(probabilities)
    onehot[np.arange(len(labels)), labels] = 1.0
    exact = (probabilities - onehot) * (scale / len(labels))
    gradient = tap(f"fc{layers}.activation_grad", exact)
    if sums.check:
        error = probabilities * (scale / len(labels) * 2.0**-49)
        sums.exp_sensitive += int(_rounding_may_change(exact, error).sum())
    twice_rounded = round16(exact.astype(np.float32).astype(np.float64))
    double_rounding = int(np.count_nonzero(twice_rounded != gradient))

    gradients: Dict[str, np.ndarray] = {}
    ones = np.ones((1, len(labels)))
    for layer in range(layers, 0, -1):
        weight, bias = f"fc{layer}.weight", f"fc{layer}.bias"
        gradients[weight] = tap(weight + "_grad", sums.product(gradient.T, inputs[layer]))
        gradients[bias] = tap(bias + "_grad", sums.product(ones, gradient)[0])
        if layer > 1:
            arriving = tap(f"relu{layer - 1}.activation_grad",
                           sums.product(gradient, read[weight]))
            gradient = tap(f"fc{layer - 1}.activation_grad",
                           np.where(z[layer - 1] <= 0, 0.0, arriving))

    skipped = not all(np.isfinite(g).all() for g in gradients.values())
    if not skipped:
        for name, g in gradients.items():
            unscaled = g.astype(np.float32) / np.float32(scale)
            weights[name] -= lr * unscaled
            assert weights[name].dtype == np.float32
    return loss, skipped, double_rounding


def train(args: argparse.Namespace) -> None:
    """Runs the steps and writes both tables."""
    weights = oracle_data.load_init(args.init)
    pixels, labels = oracle_data.load_mnist_train(args.mnist)
    sums = Summation(not args.no_order_check)
    losses, counts = ["step,loss,skipped"], ["step,site,n,underflow,subnormal,overflow"]
    totals: Dict[str, np.ndarray] = {}
    double_rounding = 0
    for step, part in enumerate(oracle_data.batches(len(pixels), args.batch, args.steps)):
        tap = Tap()
        loss, skipped, differing = train_step(weights, pixels[part], labels[part],
                                              np.float32(args.lr), args.scale, sums, tap)
        double_rounding += differing
        losses.append(f"{step},{loss!r},{int(skipped)}")
        for row in tap.rows:
            counts.append(f"{step}," + ",".join(map(str, row)))
            totals[row[0]] = totals.get(row[0], np.zeros(4, np.int64)) + np.array(row[1:])
    suffix = ".csv.gz" if args.gzip else ".csv"
    oracle_data.write_text(Path(f"{args.out_prefix}_losses{suffix}"), losses)
    oracle_data.write_text(Path(f"{args.out_prefix}_counts{suffix}"), counts)
    print(f"last loss: {loss!r}; skipped steps: {sum(line.endswith(',1') for line in losses)}")
    print(f"{'site':24s}{'n':>12s}{'underflow':>12s}{'subnormal':>12s}{'overflow':>12s}")
    for site, total in totals.items():
        print(f"{site:24s}" + "".join(f"{value:12d}" for value in total))
    if sums.check:
        print(f"sums not proved exact: {sums.inexact}; order-sensitive: {sums.order_sensitive}; "
              f"dlogits sensitive to exp: {sums.exp_sensitive}")
    print(f"dlogits that rounding through float32 would change: {double_rounding}")


def self_test() -> None:
    """round16 against exact rational arithmetic and against NumPy's own conversion."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    above = np.append(halves[1:], 65536.0)
    middle = (halves + above) / 2  # exact in float64
    even = np.arange(len(halves)) % 2 == 0
    below_half, above_half = np.nextafter(middle, 0), np.nextafter(middle, np.inf)
    infinite_above = np.where(above > FP16_MAX, np.inf, above)
    for sign in (1.0, -1.0):
        assert np.array_equal(round16(sign * halves), sign * halves)
        assert np.array_equal(round16(sign * below_half), sign * halves)
        assert np.array_equal(round16(sign * above_half), sign * infinite_above)
        assert np.array_equal(round16(sign * middle), sign * np.where(even, halves, infinite_above))
    random = np.random.default_rng(1)
    sample = random.standard_normal(200000) * 2.0 ** random.integers(-30, 20, 200000)
    mine = round16(sample)
    with np.errstate(over="ignore"):
        numpy_agrees = np.array_equal(mine, sample.astype(np.float16).astype(np.float64))
    for x, r in zip(sample[:2000].tolist(), mine[:2000].tolist()):
        if np.isfinite(r):
            step = Fraction(2) ** (max(int(np.frexp(x)[1]) - 1, -14) - 10)
            assert Fraction(r) == round(Fraction(x) / step) * step  # round() is ties to even
    assert np.isnan(round16(np.array([np.nan]))).all()
    assert np.array_equal(round16(np.array([np.inf, -np.inf, 5e-324, -5e-324, 1e308])),
                          [np.inf, -np.inf, 0.0, -0.0, np.inf])
    print(f"round16: ok; NumPy's astype(float16) agrees: {numpy_agrees}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make-init", type=int, metavar="SEED", help="write initial weights only")
    parser.add_argument("--sizes", type=oracle_data.parse_sizes, default=oracle_data.DEFAULT_SIZES,
                        help="layer sizes for --make-init (default: 784-512-512-10)")
    parser.add_argument("--self-test", action="store_true", help="check the rounding only")
    parser.add_argument("--init", type=Path, help="initial weights (.npz)")
    parser.add_argument("--mnist", type=Path, metavar="DIR", help="folder with the IDX files")
    parser.add_argument("--out-prefix", metavar="P", help="start of the output files' names")
    parser.add_argument("--steps", type=int, default=200, help="steps (default: 200)")
    parser.add_argument("--batch", type=int, default=128, help="samples per step (default: 128)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--scale", type=float, default=1024.0, help="loss scale (default: 1024)")
    parser.add_argument("--gzip", action="store_true", help="write .csv.gz")
    parser.add_argument("--no-order-check", action="store_true",
                        help="leave out the order-of-summation check")
    args = parser.parse_args()
    if args.self_test:
        self_test()
        return
    if args.out_prefix is None:
        parser.error("--out-prefix is required")
    if args.make_init is not None:
        np.savez(f"{args.out_prefix}.npz", **oracle_data.make_init(args.make_init, args.sizes))
    elif args.init is None or args.mnist is None:
        parser.error("--init and --mnist are required unless --make-init is given")
    else:
        train(args)


if __name__ == "__main__":
    main()
