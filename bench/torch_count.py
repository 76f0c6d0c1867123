# SPDX-License-Identifier: MIT
"""Counts what PyTorch's training step does on a GPU, without a GPU, for build/bin/gpu_count.

    torch_count.py [--models A,B] [--precision mixed_float16] > bench/torch_counts.json

Runs the step of torch_gpu_step.py (eager, automatic mixed precision) on tensors without data, and
sees every operator that reaches a device (TorchDispatchMode). An operator moves each distinct
input and each output once; PASSES lists kernels that read more than once. Views and empty tensors
do not count. A product also has its sizes. The casts of torch.autocast are made here,
because the real ones only see tensors of a device.

Prints one JSON array, an object for each model and precision:
    {"model", "precision", "batch", "torch", "calls", "ops": [{"op", "times", "launches", "bytes", and for
     products "m", "n", "k", "products", "bits", "convolution", "flop"}]}
"""
import argparse
import contextlib
import json
import math
from collections import Counter
from typing import Any, Dict, Iterable, List, Tuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_gpu_step import build

BATCH = {"resnet50": 256, "gpt2": 8}
MODELS = "mlp:784-4096-4096-4096-10,resnet20,resnet50,gpt2"

# How often kernels read their large inputs and how many kernels they launch, where it is not once
# and one. From PyTorch's sources (aten/src/ATen/native/cuda) and cuDNN's two-pass statistics.
#   batch normalization    statistics, then the result; backward: sums, then the result
#   log_softmax of long rows (SoftMax.cu)     largest, sum, result; a row stays in the second-level
#                                             cache between two of the three
#   layer_norm backward    one kernel for the input, two for the parameters
#   embedding backward     sorts the indices, and sums in segments
PASSES = {
    "native_batch_norm": (2, 1),
    "cudnn_batch_norm": (2, 1),
    "native_batch_norm_backward": (2, 2),
    "cudnn_batch_norm_backward": (2, 1),
    "_log_softmax": (2, 1),
    "_log_softmax_backward_data": (2, 1),
    "native_layer_norm_backward": (2, 3),
    "embedding_dense_backward": (1, 8),
    "nll_loss_forward": (1, 1),
    "nll_loss_backward": (1, 2),
    "max_pool2d_with_indices_backward": (1, 2),
    "sum": (1, 1),
}
# Views by name, and operators that only get memory.
NOTHING = {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "detach",
           "_reshape_alias", "new_empty_strided", "lift_fresh", "alias"}
ROWS = {"embedding", "embedding_dense_backward", "nll_loss_forward", "nll_loss_backward"}
SECTOR = 32
OPTIMIZER_CALLS = 12  # of GradScaler and the optimizer, which are counted by hand
CHUNK, MOST_BLOCKS, MOST_TENSORS = 65536, 320, {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}


def tensors_of(values: Any) -> List["torch.Tensor"]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def bytes_of(tensors: Iterable["torch.Tensor"]) -> int:
    """Bytes of distinct tensors. Only the elements in memory of an expanded tensor count."""
    seen: Dict[Any, int] = {}
    for tensor in tensors:
        elements = 1
        for size, stride in zip(tensor.shape, tensor.stride()):
            elements *= size if stride != 0 else 1
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape))
        seen[key] = elements * tensor.element_size()
    return sum(seen.values())


def bits_of(tensor: "torch.Tensor") -> int:
    return 8 * tensor.element_size()


class Counting(TorchDispatchMode):
    """Keeps one entry for each operator that launches kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: List[Dict[str, Any]] = []
        self.calls = 0  # of operators, also of those that launch nothing

    def add(self, op: str, launches: int, count: int, **product: Any) -> None:
        self.entries.append(dict(op=op, launches=launches, bytes=count, **product))

    def product(self, op: str, count: int, m: int, n: int, k: int, bits: int, products: int = 1,
                convolution: bool = False, share: float = 1.0) -> None:
        flop = 2.0 * m * n * k * products * share
        self.add(op, 1, count, m=m, n=n, k=k, products=products, bits=bits,
                 convolution=convolution, flop=flop)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.calls += 1
        if name in NOTHING or func.is_view:
            return out
        inputs, outputs = tensors_of((args, kwargs)), tensors_of(out)
        total = bytes_of(inputs) + bytes_of(outputs)
        if name in ("mm", "addmm", "bmm"):
            a, b = args[1:3] if name == "addmm" else args[0:2]
            self.product(name, total, a.shape[-2], b.shape[-1], a.shape[-1], bits_of(a),
                         a.shape[0] if name == "bmm" else 1)
        elif name == "convolution":
            self.convolution(name, args[0], args[1], outputs[0])
        elif name == "convolution_backward":
            for wanted, made in zip(args[-1][:2], ("input", "weight")):
                if wanted:
                    self.convolution(f"{name} {made}", args[1], args[2], args[0], made)
        elif name.startswith("_scaled_dot_product"):
            self.attention(name, args, total, backward="backward" in name)
        elif name.startswith("_foreach") or name.startswith("_fused"):
            self.foreach(name, args, outputs)
        else:
            reads, launches = PASSES.get(name, (1, 1))
            if name in ROWS:
                self.add(name, launches, self.rows(name, args, outputs))
            elif name.endswith("_") or name in ("copy_", "fill_", "zero_"):
                # In place: the tensor is an input and the output, and may only be written.
                written = bytes_of([args[0]])
                read = 0 if name in ("copy_", "fill_", "zero_") else written
                self.add(name, 1, read + written + bytes_of(inputs[1:]))
            else:
                self.add(name, launches, reads * bytes_of(inputs) + bytes_of(outputs))
        return out

    @staticmethod
    def rows(name: str, args: Any, outputs: Any) -> int:
        """Bytes of operators that touch one row or element for each index."""
        if name == "embedding":
            return bytes_of([args[1]]) + 2 * bytes_of(outputs)
        if name == "embedding_dense_backward":  # zeros, then the rows
            return 2 * bytes_of(args[:1]) + bytes_of(outputs)
        labels = args[1] if name == "nll_loss_forward" else args[2]
        sectors = 2 * SECTOR * labels.numel()
        return sectors + (bytes_of(outputs) if name == "nll_loss_backward" else 0)

    def convolution(self, name: str, x: Any, w: Any, y: Any, made: str = "output") -> None:
        pixels, taps = y.shape[0] * y.shape[2] * y.shape[3], w[0].numel()
        m, n, k = {"output": (pixels, w.shape[0], taps),
                   "input": (x.numel() // x.shape[1], x.shape[1], w.numel() // w.shape[1]),
                   "weight": (taps, w.shape[0], pixels)}[made]
        self.product(name, bytes_of([x, w, y]), m, n, k, bits_of(x), convolution=True)
        self.entries[-1]["flop"] = 2.0 * pixels * w.shape[0] * taps

    def attention(self, name: str, args: Any, total: int, backward: bool) -> None:
        """Causal: half of the scores. Backward computes them again and has five products."""
        q = args[1] if backward else args[0]
        batch, heads, sequence, size = q.shape
        factor = (5 if backward else 2) * 0.5
        self.product(name, total, sequence, sequence, size, bits_of(q), batch * heads,
                     share=factor)
        self.entries[-1]["launches"] = 3 if backward else 1

    def foreach(self, name: str, args: Any, outputs: Any) -> None:
        """A multi-tensor kernel takes at most MOST_TENSORS tensors and MOST_BLOCKS chunks."""
        lists = [arg for arg in args if isinstance(arg, (list, tuple)) and
                 arg and isinstance(arg[0], torch.Tensor)]
        chunks = sum(math.ceil(t.numel() / CHUNK) for t in lists[0])
        launches = max(math.ceil(len(lists[0]) / MOST_TENSORS[min(len(lists), 5)]),
                       math.ceil(chunks / MOST_BLOCKS))
        written = bytes_of(outputs) if outputs else bytes_of(lists[0])
        self.add(name, launches, sum(bytes_of(each) for each in lists) + written)


class Autocast(TorchFunctionMode):
    """torch.autocast's lists, as far as these networks need them. Weights are cast once a step."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype, self.cache = dtype, {}
        F = torch.nn.functional
        self.low = {F.linear, F.conv2d, torch.conv2d, torch.matmul, F.scaled_dot_product_attention}
        self.full = {F.layer_norm, F.cross_entropy, F.softmax}

    def cast(self, value: Any, dtype: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or \
                value.dtype == dtype:
            return value
        if not value.is_leaf or not value.requires_grad:
            return value.to(dtype)
        if value not in self.cache:
            self.cache[value] = value.to(dtype)
        return self.cache[value]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        dtype = self.dtype if func in self.low else torch.float32 if func in self.full else None
        if dtype is not None:
            args = [self.cast(arg, dtype) for arg in args]
            kwargs = {key: self.cast(value, dtype) for key, value in kwargs.items()}
        if func is torch.nn.functional.scaled_dot_product_attention:
            return torch.ops.aten._scaled_dot_product_flash_attention(
                *args, is_causal=kwargs.get("is_causal", False))[0]
        return func(*args, **kwargs)


def grouped(entries: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    counts = Counter(json.dumps(entry, sort_keys=True) for entry in entries)
    return [dict(json.loads(text), times=times) for text, times in counts.items()]


def count(name: str, precision: str) -> Dict[str, Any]:
    batch = BATCH.get(name.split(":")[0], 512)
    with torch.device("meta"):
        network = build(name)
        shape = (batch,) + network.sample
        dtype = torch.int64 if network.tokens else torch.float32
        x = torch.empty(shape, dtype=dtype)
        y = torch.empty((x.numel() if network.tokens else batch,), dtype=torch.int64)
        scale, found = torch.empty(()), torch.empty(())
    model = network.model
    parameters = [p for p in model.parameters()]
    half = {"mixed_float16": torch.float16, "mixed_bfloat16": torch.bfloat16}.get(precision)
    counting = Counting()
    counting.add("upload", 1, bytes_of([x, y]))
    with counting:
        if network.channels_last and network.sample[0] > 1:
            x = x + 0  # to channels last
        with Autocast(half) if half else contextlib.nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x), y)
        (loss * scale if precision == "mixed_float16" else loss).backward()
    gradients = [p.grad for p in parameters]
    if precision == "mixed_float16":
        # GradScaler: unscales in place and looks for infinities, then a few scalars.
        counting.foreach("_foreach_non_finite_check_and_unscale", (gradients,), [])
        counting.add("update_scale", 4, 64)
    if network.tokens:
        # torch.optim.AdamW with fused=True: parameter, gradient and two averages.
        size = bytes_of(parameters)
        lists = (parameters, gradients, parameters, parameters)
        counting.foreach("_fused_adamw", lists, [])
        counting.entries[-1]["bytes"] = 7 * size
    else:
        # torch.optim.SGD as by default: an operation on all parameters at a time.
        if network.weight_decay > 0.0:
            counting.foreach("_foreach_add", (gradients, parameters), parameters)
        if network.momentum > 0.0:
            counting.foreach("_foreach_mul_", (parameters,), [])
            counting.foreach("_foreach_add_", (parameters, gradients), [])
        counting.foreach("_foreach_add_", (parameters, gradients), [])
    return {"model": name, "precision": precision, "batch": batch, "torch": torch.__version__,
            "calls": counting.calls + OPTIMIZER_CALLS, "ops": grouped(counting.entries)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--precision", default="mixed_float16")
    args = parser.parse_args()
    steps = [count(model, precision) for model in args.models.split(",")
             for precision in args.precision.split(",")]
    rows = [json.dumps({key: value for key, value in step.items() if key != "ops"})[:-1] +
            ', "ops": [\n' + ",\n".join("  " + json.dumps(op) for op in step["ops"]) + "]}"
            for step in steps]
    print("[" + ",\n".join(rows) + "]")


if __name__ == "__main__":
    main()
