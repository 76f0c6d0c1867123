# SPDX-License-Identifier: MIT
"""Dropout of a model: switched off for good, or for a comparison."""
import contextlib
import copy
import dataclasses
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from halfscope._core import Error
from halfscope._inside import Inside

# Functions that drop elements -> position and name of the probability.
_PROBABILITIES = {F.scaled_dot_product_attention: (4, "dropout_p"),
                  F.multi_head_attention_forward: (10, "dropout_p"),
                  **{each: (1, "p") for each in (
                      F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout,
                      F.feature_alpha_dropout, torch.dropout, torch.dropout_,
                      torch.native_dropout, torch.alpha_dropout, torch.alpha_dropout_,
                      torch.feature_dropout, torch.feature_dropout_,
                      torch.feature_alpha_dropout, torch.feature_alpha_dropout_)}}
ADVICE = "Pass a model without them, or record your run with hs.watch"
# Functions with dropout between layers.
_RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


class Off(TorchDispatchMode):
    """While it is active, dropout passes its input through, bit for bit, and is counted.

    On the CPU, dropout is x * (mask / (1 - p)), and the mask is drawn with the mean 1 - p. Here the
    mask is that mean, so the factor is exactly 1.
    """

    def __init__(self):
        super().__init__()
        self.draws = 0  #: how often dropout ran

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.bernoulli_.float:
            self.draws += 1
            mean = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            return args[0].fill_(mean)
        return func(*args, **kwargs)


def switch_off(model, wrapped, batch):
    """Switches off what drops elements or whole branches in training.

    Returns the paths of the modules, and a context in which the model has to run. Raises Error if
    the model draws other random numbers.
    """
    off = []
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            module.p = 0.0
            off.append(name)
        elif isinstance(module, (nn.MultiheadAttention, nn.RNNBase)) and module.dropout > 0:
            module.dropout = 0.0
            off.append(name)
    drawing = _drawing(model, wrapped, batch)
    zero = _Zero() if any(each.is_dropout for each in drawing.found) else contextlib.nullcontext()
    branches = [name for name in {each.module: 0 for each in drawing.found if not each.is_dropout}
                if _only_draws(model, name) and name not in drawing.changes_shape]
    for name in branches:
        model.get_submodule(name).eval()
    with zero:
        _check_branches(model, wrapped, batch, branches)
    off += [each.module for each in drawing.found]
    return list(dict.fromkeys(off)), zero


def check_kept(model, wrapped, batch):
    """Raises Error if the model draws random numbers other than dropout."""
    for each in _drawing(model, wrapped, batch).found:
        if not each.is_dropout and each.function not in _RECURRENT:
            raise _error(each, "Pass dropout=False" if _only_draws(model, each.module) else ADVICE)


def _only_draws(model, name):
    """Returns whether a module may be stochastic depth: it has no submodules and no state."""
    module = model.get_submodule(name)
    return name != "" and not any(True for _ in (*module.children(), *module.parameters(),
                                                 *module.buffers()))


def _check_branches(model, wrapped, batch, branches):
    """Raises Error unless these modules, which are in evaluation mode, return what they get, and
    nothing else draws."""
    twin = copy.deepcopy(model)
    other = []
    for name in branches:
        twin.get_submodule(name).register_forward_hook(
            lambda module, args, output, name=name:
            None if _is_one(args, output) and torch.equal(*args, output) else other.append(name))
    for each in _drawing(twin, wrapped, batch).found:
        raise _error(each, ADVICE)
    if other:
        raise _error(_Draw(other[0], ""), "They cannot be switched off, because in evaluation mode "
                     "it does more than return its input. " + ADVICE)


def _is_one(args, output):
    """Returns whether a module gets one tensor and returns one of the same shape."""
    return len(args) == 1 and all(isinstance(each, torch.Tensor) for each in (*args, output)) and \
        args[0].shape == output.shape


@dataclasses.dataclass
class _Draw:
    """A call that draws random numbers."""
    module: str  #: its path
    function: object  #: or a name

    @property
    def is_dropout(self):
        return self.function in _PROBABILITIES


def _error(draw, advice):
    where = f"module '{draw.module}'" if draw.module else "the model"
    name = getattr(draw.function, "__name__", draw.function)
    function = f" ({name})" if name else ""
    return Error(f"{where} draws random numbers in its forward pass{function}. {advice}")


def _drawing(model, wrapped, batch):
    """Returns a _Drawing of a forward pass."""
    twin = copy.deepcopy(model)  # which keeps the hooks
    before = random.getstate(), np.random.get_state()
    try:
        with _Drawing(twin) as mode, torch.no_grad():
            wrapped.loss_of(batch, twin)
        if random.getstate() != before[0]:
            raise _error(_Draw("", "Python's random"), ADVICE)
        if any(not np.array_equal(a, b) for a, b in zip(np.random.get_state(), before[1])):
            raise _error(_Draw("", "numpy.random"), ADVICE)
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    return mode


class _Drawing(Inside):
    """Notes calls that change the state of PyTorch's generator, or of one that they get."""

    def __init__(self, model):
        super().__init__(model)
        self.found = []  #: _Draws, in the order in which they run
        self.changes_shape = set()  #: paths of modules that do not return a tensor like their input
        for name, module in model.named_modules():
            module.register_forward_hook(
                lambda module, args, output, name=name:
                None if _is_one(args, output) else self.changes_shape.add(name))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        before = torch.get_rng_state()
        result = func(*args, **kwargs)
        if kwargs.get("generator") is not None or not torch.equal(before, torch.get_rng_state()):
            self.found.append(_Draw(self.module, func))
        return result


class _Zero(TorchFunctionMode):
    """While it is active, functions drop elements with probability 0."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        args, kwargs = list(args), dict(kwargs or {})
        if func in _PROBABILITIES:
            position, name = _PROBABILITIES[func]
            if len(args) > position:
                args[position] = 0.0
            else:
                kwargs[name] = 0.0
        return func(*args, **kwargs)
