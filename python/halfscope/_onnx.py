# SPDX-License-Identifier: MIT
"""ONNX files of networks in training mode."""
import ast
import contextlib
import os
import sys
import warnings
from dataclasses import dataclass, field

import torch
from torch import nn

from halfscope import _autocast
from halfscope._core import Error
from halfscope._dropout import ADVICE
from halfscope._exportable import Exportable, explicit_masks
from halfscope._losses import line_of

# Operators that draw random numbers.
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
           "Multinomial")
# Operators that only move numbers. HalfScope knows a parameter by any of them.
_MOVES = ("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Size",
          "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")


@dataclass
class Exported:
    """What export() did."""
    exporter: str
    nodes: dict = field(default_factory=dict)  #: node -> path of its module
    note: str = ""
    lost_because: str = ""  #: why the file has no casts and regions of the code


def export(model, wrapped, batch, file, draws, code):
    """Writes the network to a file; raises Error that lists the modules that cannot be exported.

    draws: how many layers of dropout the file must have; None if dropout is off.
    code: casts and regions that the file should have; None if they are not known.
    """
    _import_onnx()
    arguments = wrapped.arguments(batch)
    with warnings.catch_warnings(), Exportable(), explicit_masks():
        warnings.simplefilter("ignore")  # the exporters warn of training mode
        to_keep = None if code is None or code.is_empty else code
        # Without the code's casts if the exporter cannot have them.
        for each in dict.fromkeys([to_keep, None]):
            try:
                exported = _by_dynamo(model, wrapped, arguments, file, draws, each)
                exported.lost_because = "" if each is to_keep else line_of(first)
                return exported
            except Error:
                raise
            except Exception as fault:
                first = fault
        try:
            _by_script(model, wrapped, arguments, file)
        except Exception as fault:
            raise Error(f"the network cannot be exported. {_culprits(model, arguments)}"
                        f"The exporter says: {line_of(first)}") from fault
    _check_random(file, draws)
    return Exported("torchscript", {}, "the TorchScript exporter wrote the network, because the "
                    f"dynamo exporter failed: {line_of(first)}",
                    "the TorchScript exporter wrote the network")


def _import_onnx():
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as fault:
        raise Error(f"{fault.name} is not installed. Run: pip install onnx onnxscript") from fault


def _by_dynamo(model, wrapped, arguments, file, draws, code):
    from onnxscript import optimizer
    more = {} if code is None else {"custom_translation_table": _autocast.translations()}
    with _autocast.keep(model, code) as keeps:
        program = torch.onnx.export(model, arguments, dynamo=True, verbose=False, optimize=False,
                                    input_names=wrapped.names, output_names=wrapped.outputs, **more)
    if code is not None and not keeps.complete:
        raise RuntimeError("the model makes other calls while it is exported")
    # Everything that optimize=True does, except rewriting: that merges batch normalizations into
    # convolutions, also in training mode.
    optimizer.inline(program.model)
    with contextlib.nullcontext() if code is None else _autocast.noted(program):
        _mark_training(program.model)
        optimizer.fold_constants(program.model, should_fold=_Foldable(model))
        optimizer.remove_unused_nodes(program.model)
    program.save(str(file))
    _check_random(file, draws)
    nodes = {}
    for node in program.model.graph:
        scopes = node.metadata_props.get("pkg.torch.onnx.name_scopes")
        if scopes and node.name:
            path = [each for each in ast.literal_eval(scopes)[:-1] if each]
            nodes[node.name] = path[-1] if path else ""
    return Exported("dynamo", nodes)


class _Foldable:
    """Says which nodes become constants: not those that compute with parameters, as those would no
    longer train."""

    def __init__(self, model):
        self._parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}

    def __call__(self, node):
        if not any(each is not None and each.name in self._parameters for each in node.inputs):
            return None
        if node.op_type not in _MOVES:
            return False
        self._parameters.update(each.name for each in node.outputs)
        return None


@contextlib.contextmanager
def _without_output():
    """Leaves out what native code prints."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
    except (AttributeError, OSError, ValueError):  # there is no output
        yield
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _by_script(model, wrapped, arguments, file):
    with _without_output():  # the exporter prints the graph where it fails
        torch.onnx.export(model, arguments, str(file), dynamo=False, opset_version=17,
                          training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
                          input_names=wrapped.names, output_names=wrapped.outputs)
    import onnx
    saved = onnx.load(file)
    entry = saved.metadata_props.add()
    entry.key = "halfscope.parameters"
    entry.value = "\n".join(name for name, each in model.named_parameters() if each.requires_grad)
    onnx.save(saved, file)


def _mark_training(model):
    """Completes dropout inside attention: the exporter leaves out that it trains, and ONNX takes
    that for inference. Dropout that does not train is not exported at all."""
    import onnx_ir as ir
    for graph in model.graphs():
        true = None
        for node in list(graph):
            if node.op_type != "Dropout" or len(node.inputs) > 2:
                continue
            if true is None:
                true = ir.Value(name="dropout_trains", shape=ir.Shape([]),
                                type=ir.TensorType(ir.DataType.BOOL),
                                const_value=ir.tensor(True, name="dropout_trains"))
                graph.register_initializer(true)
            node.resize_inputs(3)
            node.replace_input_with(2, true)


def _check_random(file, draws):
    """Raises Error if the network draws random numbers, except for this many layers of dropout.
    draws: None if dropout is off."""
    import onnx
    from onnx import numpy_helper
    graph = onnx.load(file).graph
    constants = {each.name: each for each in graph.initializer}
    constants.update({node.output[0]: node.attribute[0].t for node in graph.node
                      if node.op_type == "Constant" and node.attribute[0].name == "value"})

    def is_zero(node, number):
        """Returns whether an input is left out or known to be zero."""
        name = node.input[number] if len(node.input) > number else ""
        return not name or name in constants and not numpy_helper.to_array(constants[name]).any()

    kept = 0
    for node in graph.node:
        dropout = node.op_type == "Dropout" and not is_zero(node, 1)
        if dropout and draws and not is_zero(node, 2):
            kept += 1
        elif dropout or node.op_type in _RANDOM:
            scopes = [each.value for each in node.metadata_props
                      if each.key == "pkg.torch.onnx.name_scopes"]
            path = [each for each in ast.literal_eval(scopes[0])[:-1] if each] if scopes else []
            where = f"module '{path[-1]}'" if path else f"node '{node.name}'"
            raise Error(f"{where} draws random numbers in its forward pass ({node.op_type}). "
                        + (ADVICE if draws is None else "Pass dropout=False"))
    if kept != (draws or 0):
        raise Error(f"the model drops elements in {draws} places, but its export in {kept}. Pass "
                    "dropout=False")


def _culprits(model, arguments):
    """Returns a sentence about the leaf modules that cannot be exported alone."""
    inputs, handles = {}, []
    for name, module in model.named_modules():
        if name and not any(True for _ in module.children()):
            def keep(module, args, kwargs, name=name):
                inputs.setdefault(name, (module, args, kwargs))
            handles.append(module.register_forward_pre_hook(keep, with_kwargs=True))
    try:
        model(*arguments)
    except Exception as fault:
        return f"Its forward fails: {line_of(fault)}. "
    finally:
        for handle in handles:
            handle.remove()
    bad = {}
    for name, (module, args, kwargs) in inputs.items():
        key = (type(module), _options(module))
        if key not in bad:
            try:
                torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, verbose=False)
                bad[key] = []
            except Exception:
                bad[key] = None
        if bad[key] is None or bad[key]:
            bad[key] = [*(bad[key] or []), name]
    names = [f"{name} ({key[0].__name__})" for key, found in bad.items() for name in found]
    if not names:
        return "Each of its modules can be exported alone, so the cause is the model's forward. "
    return f"Modules that cannot be exported: {', '.join(names)}. "


def _options(module: nn.Module):
    return module.extra_repr()
