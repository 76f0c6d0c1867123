#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Dtypes that PyTorch's autocast gives every operator of a network, forward and backward.

Each network is exported twice from the same weights: to ONNX, for HalfScope, and to a graph of ATen
calls (torch.export). The calls then run under autocast:
  cpu-bf16, cpu-fp16     on the CPU, with a real backward pass
  cuda-fp16, cuda-bf16   on fake CUDA tensors (FakeTensorMode). PyTorch's dispatcher and its lists for
                         CUDA decide the dtypes; no kernel runs, so no GPU is needed.
A node of the ONNX file belongs to the call that computes the same numbers in float32 (ONNX Runtime
computes all tensors of the file). Nodes inside one call, such as the mean inside a layer
normalization, belong to none. Where calls with equal numbers disagree, the node is left out.

The gradient of a tensor has the dtype in which it arrives: a cast's gradient is computed in the
cast's dtype, so that of a float32 tensor that is only read as float16 has float16's precision, also
if it is moved or added on the way. Sums of several gradients have the tensor's dtype.

  torch_dtypes.py --out DIR             writes NAME.onnx and dtypes.json for tests/policy
  torch_dtypes.py --out DIR --check PROGRAM   also runs the test program on them
  torch_dtypes.py --zip FILE            writes the same as one archive, which is committed
  torch_dtypes.py --table DTYPES.json   prints a table
"""
import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import numpy as np
import onnx
import onnxruntime
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
import torch.nn.functional as F

import torch_dtype_networks
from onnx_network import Network

BATCH = 4
POLICIES = {"cuda-fp16": ("cuda", torch.float16), "cuda-bf16": ("cuda", torch.bfloat16),
            "cpu-bf16": ("cpu", torch.bfloat16), "cpu-fp16": ("cpu", torch.float16)}
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class Calls(fx.Interpreter):
    """Runs a graph of ATen calls and keeps what each of them returns."""

    def __init__(self, module: fx.GraphModule, device: Optional[str] = None) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.device, self.results = device, {}

    def run_node(self, n: fx.Node):
        # Their dtypes are those of the float32 run.
        if n.op == "call_function" and "_assert" in str(n.target):
            return None
        value = super().run_node(n)
        if n.op == "call_function" and torch.is_tensor(value) and value.is_floating_point():
            self.results[n.name] = value
        return value

    def call_function(self, target, args, kwargs):
        # 1 / x is such a call after reciprocal. It changes no number and no dtype; HalfScope has no
        # node for it.
        if target is torch.ops.aten.mul.Tensor and isinstance(args[1], int) and args[1] == 1:
            return args[0]
        if self.device and "device" in kwargs:
            kwargs = {**kwargs, "device": self.device}
        return super().call_function(target, args, kwargs)

    def get_attr(self, target, args, kwargs):
        value = super().get_attr(target, args, kwargs)
        return value.to(self.device) if self.device and torch.is_tensor(value) else value


def arguments_of(program, inputs: List[torch.Tensor]) -> Tuple[List, Dict[str, torch.Tensor]]:
    """Values of the graph's placeholders; parameters by name."""
    given, parameters, values = iter(inputs), {}, []
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            values.append(next(given))
        elif kind == "PARAMETER":
            parameters[spec.target] = program.state_dict[spec.target].detach().clone()
            values.append(parameters[spec.target].requires_grad_())
        else:
            values.append(program.state_dict.get(spec.target,
                                                 program.constants.get(spec.target)))
    return values, parameters


def loss_of(network: Network, output: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    """The losses of `halfscope train --loss`, which HalfScope adds to the file."""
    if network.loss == "output":
        return output
    if network.loss == "mse":
        return F.mse_loss(output, answer)
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), answer.reshape(-1))


def autograd_nodes(root) -> List:
    found, todo = {root}, [root]
    while todo:
        for following, _ in todo.pop().next_functions:
            if following is not None and following not in found:
                found.add(following)
                todo.append(following)
    return list(found)


# Their gradients have the numbers that arrived.
MOVES = {f"{name}Backward0" for name in (
    "Add", "Alias", "Cat", "Clone", "Permute", "Relu", "ReshapeAlias", "Select", "Slice", "Squeeze",
    "Stack", "T", "Transpose", "UnsafeView", "Unsqueeze", "View")} | {"SqueezeBackward1"}


def narrower(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    return min(a, b, key=lambda dtype: dtype.itemsize)


class Arrivals:
    """The dtypes in which gradients arrive at tensors."""

    def __init__(self, loss: torch.Tensor) -> None:
        self.loss, self.edges, self.leaves = loss, {}, {}
        for node in autograd_nodes(loss.grad_fn):
            if hasattr(node, "variable"):
                self.leaves[id(node.variable)] = node
            for following, which in node.next_functions:
                if following is not None:
                    self.edges.setdefault((following, which), []).append(node)

    def dtype(self, value: torch.Tensor) -> Optional[torch.dtype]:
        key = (self.leaves.get(id(value)), 0) if value.is_leaf else (value.grad_fn,
                                                                     value.output_nr)
        return self.arriving(key, value.dtype) if key in self.edges else None

    def arriving(self, key, dtype: torch.dtype) -> torch.dtype:
        readers = self.edges.get(key, [])
        if len(readers) != 1:
            return dtype
        name, metadata = readers[0].name(), readers[0]._input_metadata
        if name == "ToCopyBackward0":
            return narrower(metadata[0].dtype, dtype)
        if name in MOVES and len(metadata) == 1:
            return narrower(self.arriving((readers[0], 0), metadata[0].dtype), dtype)
        return dtype


def check_backward(loss: torch.Tensor) -> None:
    """Runs the backward pass: every gradient has the dtype that the graph promises."""
    wrong = []

    def look(node):
        def hook(inputs, outputs):
            for (following, which), gradient in zip(node.next_functions, inputs):
                if following is None or gradient is None:
                    continue
                promised = following._input_metadata
                if promised and gradient.dtype != promised[which].dtype:
                    wrong.append((node.name(), gradient.dtype, promised[which].dtype))
        node.register_hook(hook)

    for node in autograd_nodes(loss.grad_fn):
        look(node)
    loss.backward()
    if wrong:
        raise RuntimeError(f"gradients of other dtypes than the graph promises: {wrong[:3]}")


@contextlib.contextmanager
def autocast(device: str, dtype: torch.dtype):
    """torch.autocast, which refuses CUDA where there is none."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


def under(policy: str, network: Network, program, inputs: List[torch.Tensor],
          answer: torch.Tensor) -> Tuple[Dict[str, List], Dict[str, Optional[str]]]:
    """For every call the dtypes of result and gradient, and the gradients' of the parameters."""
    device, dtype = POLICIES[policy]
    fake = FakeTensorMode() if device == "cuda" else None
    values, parameters = arguments_of(program, inputs)
    with fake or contextlib.nullcontext():
        def move(value):
            if fake is None or not torch.is_tensor(value):
                return value
            made = torch.empty(value.shape, dtype=value.dtype, device=device)
            return made.requires_grad_(value.requires_grad)

        moved = {id(value): move(value) for value in values}
        calls = Calls(program.graph_module, device if fake else None)
        with autocast(device, dtype):
            output = calls.run(*[moved[id(value)] for value in values])
            while isinstance(output, (tuple, list)):
                output = output[0]
            loss = loss_of(network, output, move(answer))
        arrivals = Arrivals(loss)
        results = {name: [NAMES[value.dtype], arrivals.dtype(value) if value.requires_grad else None]
                   for name, value in calls.results.items() if value.dtype in NAMES}
        gradients = {name: arrivals.dtype(moved[id(value)]) for name, value in parameters.items()}
        if fake is None:
            check_backward(loss)
    for result in results.values():
        result[1] = NAMES.get(result[1])
    return results, {name: NAMES[dtype] for name, dtype in gradients.items() if dtype is not None}


def onnx_values(model: onnx.ModelProto, feeds: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Every tensor that a node computes."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.output[:]
    names = [name for node in wide.graph.node for name in node.output if name]
    wide.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(wide.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    wanted = {entry.name for entry in session.get_inputs()}
    return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in wanted})))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or not np.isfinite(a).all():
        return False
    size = float(np.abs(a).max(initial=0.0))
    return size > 0 and float(np.abs(a - b).max()) <= 2e-5 * size


def calls_of_nodes(model: onnx.ModelProto, feeds: Dict[str, np.ndarray],
                   reals: Dict[str, np.ndarray]) -> Dict[str, List[str]]:
    """For every node of the file the calls that compute the same numbers."""
    values, found = onnx_values(model, feeds), {}
    last = {name: i for i, node in enumerate(model.graph.node) for name in node.output}
    for i, node in enumerate(model.graph.node):
        value = values.get(node.output[0]) if node.output else None
        if value is None or value.dtype != np.float32:
            continue
        # Constants equal too much.
        if value.size > 1 and float(value.max()) == float(value.min()):
            continue
        # A node before the one that dynamo named after a call is a step inside the call.
        calls = [name for name, real in reals.items()
                 if same(real, value) and last.get(name, i) <= i]
        if node.output[0] in calls:  # dynamo names tensors after calls
            calls = [node.output[0]]
        if calls:
            found[node.name or node.output[0]] = calls
    return found


def export(network: Network, model: torch.nn.Module, inputs: Dict[str, torch.Tensor],
           dynamo: bool, **how) -> onnx.ModelProto:
    arguments = tuple(inputs.values())
    more: dict = {"input_names": list(inputs), "output_names": ["output"], **how}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), \
            contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        if dynamo:
            proto = torch.onnx.export(model, arguments, dynamo=True, verbose=False,
                                      **more).model_proto
        else:
            buffer = io.BytesIO()
            torch.onnx.export(model, arguments, buffer, dynamo=False, opset_version=17, **more)
            proto = onnx.load_model_from_string(buffer.getvalue())
    for node in proto.graph.node:  # paths and lines of this machine
        kept = [entry for entry in node.metadata_props if entry.key.endswith("stack_trace")]
        for entry in kept:
            node.metadata_props.remove(entry)
        node.doc_string = ""
    return proto


def samples(network: Network) -> Tuple[torch.nn.Module, Dict[str, torch.Tensor], torch.Tensor]:
    torch.manual_seed(7)
    model = network.make().eval()
    torch.manual_seed(8)
    inputs = network.inputs(BATCH)
    with torch.no_grad():
        shape = model(*inputs.values()).shape
    torch.manual_seed(9)
    answer = torch.randn(shape) if network.loss == "mse" else \
        torch.randint(0, shape[-1] if shape else 1, shape[:-1])
    return model, inputs, answer


def case_of(network: Network, dynamo: bool) -> Tuple[dict, bytes]:
    model, inputs, answer = samples(network)
    tensors = list(inputs.values())
    program = torch.export.export(model, tuple(tensors))
    with torch.no_grad():
        calls = Calls(program.graph_module)
        calls.run(*arguments_of(program, tensors)[0])
    reals = {name: value.detach().numpy().copy() for name, value in calls.results.items()
             if value.dtype == torch.float32}
    proto = export(network, model, inputs, dynamo)
    nodes = calls_of_nodes(proto, {k: v.numpy() for k, v in inputs.items()}, reals)
    targets = {n.name: str(n.target) for n in program.graph.nodes if n.op == "call_function"}
    case = {"loss": network.loss, "calls": {}, "policies": {}, "ambiguous": 0,
            "calls_in_network": len([t for n, t in targets.items() if n in reals])}
    for policy in POLICIES:
        try:
            results, gradients = under(policy, network, program, tensors, answer)
        except RuntimeError as error:  # such as a function that needs one dtype
            case["policies"][policy] = {"error": str(error).splitlines()[0]}
            continue
        table = {}
        for node, candidates in nodes.items():
            dtypes = {tuple(results[call]) for call in candidates if call in results}
            if len(dtypes) == 1:
                table[node] = list(dtypes.pop())
                case["calls"][node] = targets.get(candidates[0], candidates[0])
            else:
                case["ambiguous"] += 1
        case["policies"][policy] = {"nodes": table, "gradients": gradients}
    return case, proto.SerializeToString()


def all_cases(names: List[str]) -> Tuple[dict, Dict[str, bytes]]:
    cases, files = {}, {}
    for name, network in torch_dtype_networks.networks().items():
        if names and name not in names:
            continue
        for exporter in ("dynamo", "script"):
            key = f"{name}.{exporter}"
            try:
                cases[key], files[f"{key}.onnx"] = case_of(network, exporter == "dynamo")
            except Exception as error:  # pylint: disable=broad-except
                first = (str(error).strip().splitlines() or [""])[0]
                print(f"{key}: not exported: {type(error).__name__}: {first[:150]}")
                continue
    return {"torch": torch.__version__.split("+")[0], "lists": listed(), "cases": cases}, files


def listed() -> Dict[str, List[str]]:
    """Functions that the dispatcher has a kernel of autocast for, by device."""
    found = {}
    for device in ("CPU", "CUDA"):
        names = torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{device}")
        found[device.lower()] = sorted({name.split("::")[1].split(".")[0] for name in names
                                        if name.startswith("aten::")})
    return found


def print_table(dtypes: dict) -> None:
    """Per operator of PyTorch: how many nodes, and their dtypes under each policy."""
    rows: Dict[str, Dict[str, Dict[str, int]]] = {}
    for case in dtypes["cases"].values():
        for policy, table in case["policies"].items():
            for node, (forward, gradient) in table["nodes"].items():
                count = rows.setdefault(case["calls"][node], {}).setdefault(policy, {})
                both = f"{forward}/{gradient or '-'}"
                count[both] = count.get(both, 0) + 1
    for call in sorted(rows):
        print(f"{call:45}", *(f"{policy}: " + ", ".join(
            f"{both} {n}" for both, n in sorted(rows[call].get(policy, {}).items()))
            for policy in POLICIES), sep="  ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the files and dtypes.json")
    parser.add_argument("--zip", type=Path, help="archive for the same")
    parser.add_argument("--check", help="run this test program on the files of --out")
    parser.add_argument("--only", default="", help="networks, separated by commas")
    parser.add_argument("--table", type=Path, help="print a table of this dtypes.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.table:
        print_table(json.loads(options.table.read_text(encoding="ascii")))
        return 0
    dtypes, files = all_cases([name for name in options.only.split(",") if name])
    text = json.dumps(dtypes, indent=1, sort_keys=True) + "\n"
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (options.out / name).write_bytes(content)
        (options.out / "dtypes.json").write_text(text, encoding="ascii")
    if options.check:
        return subprocess.run([options.check, "--gtest_filter=*Torch*"], check=False, env={
            **os.environ, "HALFSCOPE_TORCH_DTYPES": str(options.out.resolve())}).returncode
    if options.zip:
        with zipfile.ZipFile(options.zip, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted({**files, "dtypes.json": text.encode()}.items()):
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return 0 if files else 1


if __name__ == "__main__":
    sys.exit(main())
