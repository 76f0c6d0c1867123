# SPDX-License-Identifier: MIT
"""Finds what an exported network cannot repeat of a forward pass: state that it changes, and tensors
that it cuts off from their gradients."""
import copy
import math

import torch
from torch import nn

from halfscope._core import Error
from halfscope._inside import Inside

_CUTS = (torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.Tensor.data.__get__)
# Change of a gradient that is not rounding.
_GAP = 1e-4


def check(twin, wrapped, batch, trained):
    """Raises Error that names the module. twin: is not changed. trained: names of parameters."""
    _check_state(copy.deepcopy(twin), wrapped, batch)
    _check_cuts(copy.deepcopy(twin), wrapped, batch, trained)


def note_of_evaluation(model, twin, wrapped, batch):
    """Returns a sentence if the model is in evaluation mode and has another loss there."""
    if model.training:
        return ""
    with torch.no_grad():
        trains = float(wrapped.loss_of(batch, copy.deepcopy(twin)))
        evaluates = float(wrapped.loss_of(batch, copy.deepcopy(twin).eval()))
    if trains == evaluates:
        return ""
    return ("the model is in evaluation mode, but the twin trains in training mode, so its first "
            f"loss is {trains:.6g} instead of {evaluates:.6g}. If your script trains in evaluation "
            "mode, the twin is a different training")


def _check_state(twin, wrapped, batch):
    before = {name: value.clone() for name, value in twin.named_buffers()}
    with torch.no_grad():
        first, second = (float(wrapped.loss_of(batch, twin)) for _ in range(2))
    if first == second or not math.isfinite(first):
        return
    statistics = tuple(name for name, module in twin.named_modules()
                       if isinstance(module, nn.modules.batchnorm._NormBase))
    changed = [f"'{name}'" for name, value in twin.named_buffers()
               if name in before and not torch.equal(value, before[name])
               and name.rpartition(".")[0] not in statistics]
    what = f"the forward pass changes {', '.join(changed[:3])}" if changed else \
        "the forward pass changes something that is not a buffer"
    raise Error(f"{what}, so a second pass of the same batch has another loss ({second:.6g} after "
                f"{first:.6g}). A twin repeats only what optimizers and batch normalizations "
                "change. Keep it fixed in the model that you pass, or record your run with "
                "hs.watch")


class _Uncut(Inside):
    """While it is active, .detach() and torch.no_grad() have no effect, as in exported networks."""

    def __init__(self, model):
        super().__init__(model)
        self.cuts = {}  #: path of a module -> what it does

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        depends = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
        if func in _CUTS:
            if depends:
                self.cuts.setdefault(self.module, ".detach()")
            return args[0]
        if torch.is_grad_enabled() or func is torch._C._set_grad_enabled:
            return func(*args, **kwargs)
        if depends:
            self.cuts.setdefault(self.module, "torch.no_grad()")
        with torch.enable_grad():
            return func(*args, **kwargs)


def _check_cuts(twin, wrapped, batch, trained):
    for name, value in twin.named_parameters():
        value.requires_grad_(name in trained)
    plain = _gradients(copy.deepcopy(twin), wrapped, batch)
    mode = _Uncut(twin)
    try:
        with mode:
            uncut = _gradients(twin, wrapped, batch)
    except Exception:  # whatever needs its cuts to run
        return
    for name, gradient in plain.items():
        if mode.cuts and (gradient - uncut[name]).norm() > _GAP * uncut[name].norm():
            path, what = next(iter(mode.cuts.items()))
            where = f"module '{path}'" if path else "the model's forward"
            raise Error(f"{what} in {where} changes the gradient of '{name}', and an exported "
                        "network has neither .detach() nor torch.no_grad(). Pass a model without "
                        "it, or record your run with hs.watch")


def _gradients(twin, wrapped, batch):
    """Returns gradients by parameter; zeros where the loss does not depend on it."""
    parameters = {name: value for name, value in twin.named_parameters() if value.requires_grad}
    found = torch.autograd.grad(wrapped.loss_of(batch, twin), list(parameters.values()),
                                allow_unused=True, materialize_grads=True)
    return {name: value.to_dense() if value.is_sparse else value
            for name, value in zip(parameters, found)}
