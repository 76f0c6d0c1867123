# SPDX-License-Identifier: MIT
"""Dropout of a model: switched off for good, or for a comparison."""
import contextlib
import copy

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
                      F.feature_alpha_dropout, torch.dropout, torch.dropout_, torch.alpha_dropout,
                      torch.alpha_dropout_, torch.feature_dropout, torch.feature_dropout_,
                      torch.feature_alpha_dropout, torch.feature_alpha_dropout_)}}
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
    calls = False
    for name, function in _drawing(model, wrapped, batch):
        if _only_draws(model, name):
            model.get_submodule(name).eval()
        elif function in _PROBABILITIES:
            calls = True
        else:
            raise _error(name, function, "Switch that off in the model that you pass")
        off += [] if name in off else [name]
    return off, _Zero() if calls else contextlib.nullcontext()


def check_kept(model, wrapped, batch):
    """Raises Error if the model draws random numbers other than dropout."""
    for name, function in _drawing(model, wrapped, batch):
        if function not in _PROBABILITIES and function not in _RECURRENT:
            raise _error(name, function, "Pass dropout=False" if _only_draws(model, name) else
                         "Switch that off in the model that you pass")


def _only_draws(model, name):
    """Returns whether a module has neither parts nor parameters, such as stochastic depth."""
    module = model.get_submodule(name)
    return name != "" and not any(True for _ in (*module.children(), *module.parameters()))


def _error(name, function, advice):
    where = f"module '{name}'" if name else "the model"
    return Error(f"{where} draws random numbers in its forward ({function.__name__}). {advice}")


def _drawing(model, wrapped, batch):
    """Returns (path of module, function) for calls that draw random numbers."""
    twin = copy.deepcopy(model)  # which keeps the hooks
    with _Drawing(twin) as mode, torch.no_grad():
        wrapped.loss_of(batch, twin)
    return mode.found


class _Drawing(Inside):
    """Notes calls that change the state of PyTorch's generator."""

    def __init__(self, model):
        super().__init__(model)
        self.found = []  #: (path of module, function), in the order in which they run

    def __torch_function__(self, func, types, args=(), kwargs=None):
        before = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        if not torch.equal(before, torch.get_rng_state()):
            self.found.append((self.module, func))
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
