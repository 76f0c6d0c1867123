# SPDX-License-Identifier: MIT
"""Mistakes of a training script that no recorded tensor shows."""
import torch

from halfscope import _patches
from halfscope._helpers import local
from halfscope._ops import PRODUCTS

# Unscaled gradients are smaller than this part of scaled ones, if the scale is large enough.
_UNSCALED, _LEAST_SCALE = 0.5, 4.0


class Script:
    """Watches the order of calls in a script, and writes what is wrong into its recording."""

    def __init__(self, recording, parameters, compiled):
        """parameters: (parameter, path, leaf, operator) of all. compiled: whether any module is,
        because compiled code casts for itself."""
        self._recording = recording
        self._casts = not compiled and any(
            p.dtype == torch.float32 and p.requires_grad and p.dim() > 1 and op in PRODUCTS
            for p, _, _, op in parameters)
        self._backward = None    # scale of the loss of the backward pass that runs
        self._scale = None       # scale of the loss that the model's gradients come from
        self._unscaled = False   # a scaler has unscaled its gradients
        self._kept_since = None  # how often autocast had been left at the step before

    def on_loss(self):
        """A step has a loss."""
        self._recording.observe("loss")

    def on_backward(self, root):
        """A backward pass begins at a tensor, or None. Returns the loss scale in it, or None."""
        self._backward = None if root is None else _patches.scale_below(root)
        return self._backward

    def on_gradient(self):
        """A backward pass has written a gradient of the model."""
        self._scale = self._backward

    def on_unscale(self):
        """A loss scaler unscales the gradients, or has the optimizer do it."""
        self._unscaled = True

    def before_step(self, optimizer, norm):
        """An optimizer is about to step. norm() returns the norm of the gradients as the backward
        pass wrote them; None in steps without statistics."""
        scale, unscaled, self._scale, self._unscaled = self._scale, self._unscaled, None, False
        known = norm is not None and scale is not None and not unscaled
        if known and float(scale) >= _LEAST_SCALE:
            # The script may have divided them itself.
            if _norm(optimizer) > _UNSCALED * norm():
                self._recording.observe("scaled_step")
        kept = self._casts and _keeps_casts()
        if kept and self._kept_since == _patches.autocast_left:
            self._recording.observe("autocast_kept")
        self._kept_since = _patches.autocast_left if kept else None


def _norm(optimizer):
    """Returns the 2-norm of an optimizer's gradients."""
    gradients = [local(p.grad) for group in optimizer.param_groups for p in group["params"]
                 if p.grad is not None and not p.grad.is_sparse]
    return sum(float(g.double().norm()) ** 2 for g in gradients) ** 0.5


def _keeps_casts():
    """Returns whether autocast is on and keeps the weights that it casts."""
    return torch.is_autocast_cache_enabled() and (_is_on("cpu") or _is_on("cuda"))


def _is_on(device):
    """Returns whether autocast is on for a type of device."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # before PyTorch 2.4
        return torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()
