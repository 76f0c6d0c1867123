# SPDX-License-Identifier: MIT
"""Keeps in an exported network what a model's code says about formats: casts such as .float() or
.to(x.dtype), and regions without autocast. Both change nothing in fp32, so exporters leave them
out, but under autocast they decide what is computed in which format.

The model runs under autocast on tensors without values, once as on a GPU and once as on the CPU, and
once more as in the export. The calls of these runs are matched in their order. While the model is
exported, the network gets a node where a run casts, and its nodes are marked where autocast is
off."""
import contextlib
import dataclasses
import functools
import re
import warnings

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from halfscope._exportable import explicit_masks, is_grouped_product
from halfscope._inside import Inside
from halfscope._losses import line_of
from halfscope._subsequence import common

# Dtype under autocast; any 16-bit one shows the same casts.
_LOW = {"cuda": torch.float16, "cpu": torch.bfloat16}
_DEVICES = tuple(_LOW)
_CALL = "pkg.torch.onnx.fx_node"  # metadata of a node: the call it comes from
_KINDS = {torch.float32: "float32", torch.float16: "autocast", torch.bfloat16: "autocast"}
# Functions that cast if they get a dtype, or a tensor to take it from.
_CASTS = (torch.Tensor.to, torch.Tensor.type, torch.Tensor.type_as, torch.Tensor.float,
          torch.softmax, torch.Tensor.softmax, F.softmax, F.log_softmax, torch.Tensor.log_softmax,
          torch.sum, torch.Tensor.sum, torch.mean, torch.Tensor.mean, torch.cumsum,
          torch.Tensor.cumsum)


@functools.cache
def _define_operators():
    """Defines halfscope::cast, with a kind by device, and halfscope::mark, whether autocast is off.
    PyTorch has custom operators since version 2.4."""
    @torch.library.custom_op("halfscope::cast", mutates_args=())
    def cast(x: torch.Tensor, cuda: str, cpu: str) -> torch.Tensor:
        return x.clone()

    @torch.library.custom_op("halfscope::mark", mutates_args=())
    def mark(x: torch.Tensor, cuda: bool, cpu: bool) -> torch.Tensor:
        return x.clone()

    for each in (cast, mark):
        each.register_fake(lambda x, *_: torch.empty_like(x))


def asked_format(func, args, kwargs):
    """Returns the floating-point dtype that a call casts its first argument to; None for others."""
    if func not in _CASTS or not args or not _is_real(args[0]):
        return None
    if func is torch.Tensor.float:
        return torch.float32
    takes_tensor = func in (torch.Tensor.to, torch.Tensor.type_as)
    for each in (*args[1:], *kwargs.values()):
        if isinstance(each, torch.Tensor) and takes_tensor:
            each = each.dtype
        if isinstance(each, torch.dtype) and each.is_floating_point:
            return each
    return None


@dataclasses.dataclass
class _Call:
    """A call that returns a tensor of real numbers."""
    function: object
    off: bool   #: autocast is switched off, or does not know the function
    cast: str   #: "float32" or "autocast" if it casts its first argument, else ""
    fresh: bool  #: its result shares no memory with its arguments, and it changes none
    arguments: list  #: the tensors of real numbers among them
    result: object


class Code:
    """The casts and regions of a model."""

    def __init__(self, runs):
        self._runs = runs  # by device

    @property
    def is_empty(self):
        return not any(call.off or call.cast for calls in self._runs for call in calls)

    @property
    def has_regions(self):
        return any(call.off for calls in self._runs for call in calls)

    @property
    def count(self):
        """The number of calls."""
        return max((len(calls) for calls in self._runs), default=0)

    def calls(self, number, func):
        """Returns a call of each device; raises LookupError if it is of another function."""
        calls = [calls[number] for calls in self._runs if number < len(calls)]
        if len(calls) < len(self._runs) or any(
                _name_of(call.function) != _name_of(func) for call in calls):
            raise LookupError(f"call {number} of {func} is another one under autocast")
        return calls


def code_of(model, wrapped, batch):
    """Returns the Code of a model, or None and the reason: most often it does not run on tensors
    without values. model: is not used again."""
    try:
        _define_operators()
        # The model is exported on the CPU and in fp32. Its code may make other calls there.
        exported = _run(model, wrapped, batch, "cpu", autocast=False)
        return Code([_in_order_of(exported, _run(model, wrapped, batch, device))
                     for device in _DEVICES]), ""
    except Exception as fault:  # whatever a model does with tensors that have no values
        return None, line_of(fault)


def _in_order_of(wanted, calls):
    """Returns calls of a run in the order of another one, which may have some that differ. A cast
    that only this run has belongs to the calls that get its result. Raises LookupError if a cast or
    region has no place."""
    functions = ([_name_of(call.function) for call in each] for each in (calls, wanted))
    found = {place: calls[number] for number, place in common(*functions)}
    placed = {id(call) for call in found.values()}
    for number, call in enumerate(calls):
        if id(call) in placed or not (call.cast or call.off):
            continue
        readers = [each for each in calls[number + 1:]
                   if any(value is call.result for value in each.arguments)]
        if call.off or not readers or any(
                id(each) not in placed or each.cast or each.arguments[0] is not call.result
                for each in readers):
            raise LookupError(f"the export has no place for the cast or region of a call of "
                              f"{getattr(call.function, '__name__', call.function)}")
        for each in readers:
            each.cast = call.cast
    result, off = [], False
    for place, call in enumerate(wanted):
        result.append(found.get(place) or dataclasses.replace(call, off=off, cast=""))
        off = result[-1].off
    return result


def _name_of(function):
    # Libraries choose among functions for products of groups by what can be exported.
    return "grouped" if is_grouped_product(function) else function


@contextlib.contextmanager
def keep(model, code):
    """While it is active, a model that is exported keeps the casts and regions of its Code.

    Yields an object. Afterwards, its `complete` says whether the model made the same calls as under
    autocast.
    """
    mode = _Keep(Code([]) if code is None else code)
    # Exporters may run a model more than once, and call functions themselves.
    handles = [model.register_forward_pre_hook(lambda *_: mode.start()),
               model.register_forward_hook(lambda *_: mode.end(), always_call=True)]
    try:
        with mode if code is not None else contextlib.nullcontext():
            yield mode
    finally:
        for each in handles:
            each.remove()


class _Keep(TorchFunctionMode):
    def __init__(self, code):
        super().__init__()
        self._code = code
        self._number = None  # of the next call; None outside of the model
        self._differs = False
        self.complete = False

    def start(self):
        self._number = 0

    def end(self):
        self.complete = not self._differs and self._number == self._code.count
        self._number = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._number is None or self._differs or _is_property(func):
            return func(*args, **kwargs)
        try:
            calls = self._code.calls(self._number, func)
        except LookupError:
            calls = None
        if calls:
            args, kwargs = self._changed(calls, args, kwargs)
        result = func(*args, **kwargs)
        if _is_real(result):
            self._number += 1
            self._differs = calls is None
        return result

    def _changed(self, calls, args, kwargs):
        """Returns the arguments with nodes in front of the first tensor among them."""
        casts = [call.cast for call in calls]
        first = next(_tensors(args, kwargs), None)
        if first is None or not (any(casts) or all(call.fresh for call in calls)):
            return args, kwargs
        x = first
        if self._code.has_regions:
            x = torch.ops.halfscope.mark(x, *(call.off for call in calls))
        if any(casts) and x.dtype == torch.float32:
            x = torch.ops.halfscope.cast(x, *casts)

        def put(value):
            if isinstance(value, (list, tuple)) and any(each is first for each in value):
                return type(value)(put(each) for each in value)
            return x if value is first else value

        return tuple(put(each) for each in args), {key: put(each) for key, each in kwargs.items()}


def translations():
    """Returns how torch.onnx.export writes the nodes that keep() adds."""
    from onnxscript import opset18
    return {torch.ops.halfscope.cast.default: lambda x, cuda, cpu: opset18.Identity(x),
            torch.ops.halfscope.mark.default: lambda x, cuda, cpu: opset18.Identity(x)}


@contextlib.contextmanager
def noted(program):
    """Writes casts and regions as metadata of the network's nodes, and removes the marks. While it is
    active, optimizers do not see that casts are Identity nodes."""
    off, casts, marks = _found(program.exported_program.graph)
    hidden = []
    for node in list(program.model.graph):
        written = node.metadata_props.get(_CALL, "")
        call = written.partition(" ")[0].lstrip("%")
        if written:
            # Arguments as they are without the marks.
            node.metadata_props[_CALL] = re.sub(
                r"%(\w+)", lambda name: "%" + marks.get(name[1], name[1]), written)
        if call in marks:
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            program.model.graph.remove(node, safe=True)
        elif call in casts:
            hidden.append(node)
            node.domain = "halfscope"
            node.metadata_props.update({f"halfscope.cast.{device}": kind for device, kind in
                                        zip(_DEVICES, casts[call]) if kind})
        if off.get(call):
            node.metadata_props["halfscope.autocast_off"] = off[call]
    yield
    for node in hidden:
        node.domain = ""


def _found(graph):
    """Returns by call where autocast is off ("cuda", "cpu" or both), the casts, and of marks what is
    marked."""
    off, casts, marks, now = {}, {}, {}, ""
    for node in graph.nodes:
        if node.target is torch.ops.halfscope.mark.default:
            now = " ".join(device for device, value in zip(_DEVICES, node.args[1:]) if value)
            source = node.args[0].name
            marks[node.name] = marks.get(source, source)
        elif node.target is torch.ops.halfscope.cast.default:
            casts[node.name] = node.args[1:]
        if node.op == "call_function":
            off[node.name] = now
    return off, casts, marks


def lost_casts(twin, wrapped, batch):
    """Returns the paths of modules with casts that change nothing in fp32. Exporters leave them out,
    although in the network's own format they may round or protect from rounding."""
    with _Casts(twin) as mode, torch.no_grad():
        wrapped.loss_of(batch, twin)
    return mode.modules


def autocast_off(twin, wrapped, batch):
    """Returns the paths of modules that compute where they switch autocast off. Exporters leave that
    out."""
    mode = _Regions(twin)
    try:
        # Some code only switches autocast off where it is on.
        with warnings.catch_warnings(), _on("cuda"), _on("cpu"), mode, torch.no_grad():
            warnings.simplefilter("ignore")
            wrapped.loss_of(batch, twin)
    except Exception:  # the model cannot run in bf16 on a CPU
        pass
    return mode.modules


class _Casts(Inside):
    """Notes modules that ask for the format that a tensor already has."""

    def __init__(self, model):
        super().__init__(model)
        self.modules = []  #: paths, in the order in which they run

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        asked = asked_format(func, args, kwargs)
        if asked is not None and asked == args[0].dtype and self.module not in self.modules:
            self.modules.append(self.module)
        return func(*args, **kwargs)


class _Regions(Inside):
    """Notes modules that compute where autocast, which is on, has been switched off."""

    def __init__(self, model):
        super().__init__(model)
        self.modules = []  #: paths, in the order in which they run

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        on = all(torch.is_autocast_enabled(device) for device in _DEVICES) and \
            not is_grouped_product(func)
        if not on and _is_real(result) and self.module not in self.modules:
            self.modules.append(self.module)
        return result


@contextlib.contextmanager
def _on(device):
    """Switches autocast on, for CUDA also without a GPU."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    common = torch.cuda.amp.common
    kept = (common.amp_definitely_not_available, torch.cuda.is_bf16_supported,
            torch.cuda.get_device_capability)
    common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, _LOW[device])
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
        torch.clear_autocast_cache()
        (common.amp_definitely_not_available, torch.cuda.is_bf16_supported,
         torch.cuda.get_device_capability) = kept


@contextlib.contextmanager
def _as_exported():
    """Lets code that asks whether it is exported take the same branches as in the export."""
    flags = [each for each in ("_is_compiling_flag", "_is_exporting_flag")
             if hasattr(torch.compiler, each)]
    before = [getattr(torch.compiler, each) for each in flags]
    for each in flags:
        setattr(torch.compiler, each, True)
    try:
        yield
    finally:
        for each, value in zip(flags, before):
            setattr(torch.compiler, each, value)


class _Recorder(TorchFunctionMode):
    """Notes the calls of a model."""

    def __init__(self, device):
        super().__init__()
        self._device = device
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _is_property(func):
            return func(*args, **kwargs)
        before = [(each, each._version) for each in _tensors(args, kwargs)]
        asked = asked_format(func, args, kwargs)
        casts = asked in _KINDS and args[0].dtype in _KINDS and asked != args[0].dtype
        result = func(*args, **kwargs)
        if _is_real(result):
            memory = result.untyped_storage()._cdata
            fresh = all(each._version == version and each.untyped_storage()._cdata != memory
                        for each, version in before)
            off = not torch.is_autocast_enabled(self._device) or is_grouped_product(func)
            self.calls.append(_Call(func, off, _KINDS[asked] if casts else "", fresh,
                                    [each for each, _ in before], result))
        return result


def _run(model, wrapped, batch, device, autocast=True):
    """Returns the calls of a forward pass."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    known = {}

    def without_values(value):
        if id(value) not in known:
            copy = fake.from_tensor(value.detach()).to(device)
            if isinstance(value, nn.Parameter):
                copy = nn.Parameter(copy, value.requires_grad)
            known[id(value)] = value, copy
        return known[id(value)][1]

    modules = [model] + ([wrapped.loss_fn] if isinstance(wrapped.loss_fn, nn.Module) else [])
    tables = [table for module in modules for each in module.modules()
              for table in (each._parameters, each._buffers)]
    kept = [dict(table) for table in tables]
    try:
        # cuDNN would ask for a GPU.
        with warnings.catch_warnings(), fake, torch.enable_grad(), \
                torch.backends.cudnn.flags(enabled=False):
            warnings.simplefilter("ignore")
            for table in tables:
                table.update({name: without_values(value) for name, value in table.items()
                              if value is not None})
            arguments = [without_values(each) for each in wrapped.arguments(batch)]
            autocast = _on(device) if autocast else contextlib.nullcontext()
            with autocast, _as_exported(), explicit_masks(), _Recorder(device) as recorder:
                model(*arguments)
        return recorder.calls
    finally:
        for table, values in zip(tables, kept):
            table.update(values)


def _tensors(args, kwargs):
    """Yields the tensors of real numbers among a call's arguments, also in lists."""
    for each in (*args, *kwargs.values()):
        yield from (part for part in (each if isinstance(each, (list, tuple)) else [each])
                    if _is_real(part))


def _is_real(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_property(func):
    return getattr(func, "__name__", "") == "__get__"
