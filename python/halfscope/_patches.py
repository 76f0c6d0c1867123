# SPDX-License-Identifier: MIT
"""What no hook of PyTorch reports: the tensor on which backward starts, and skipped steps.

While watches are open, torch.autograd.backward and GradScaler's scale, unscale_ and step call them
before they do their own work. torch.clear_autocast_cache counts its calls. sys.exit notes its
argument, which is known nowhere else when the program ends. The last watch that closes puts the
originals back.
"""
import functools
import sys
import weakref

import torch

_watches = []
_originals = []
_depth = 0
exit_code = None  #: what sys.exit() was last called with while a watch was open
autocast_left = 0  #: how often the outermost autocast region was left while a watch was open
_scaled = {}
_has_scaled = False  # only then is autograd's graph searched, which takes a tenth of a millisecond
# Nodes of autograd's graph carry the scale under this name: scaled losses are often divided by a
# number of micro-batches or summed before backward(), and the graph itself knows that.
_SCALE = "halfscope.loss_scale"
# Nodes between backward()'s tensor and a scaled loss.
_MOST_NODES = 64


def add(watch):
    """Lets a watch hear of backward passes and loss scalers."""
    if not _watches:
        _install()
    _watches.append(watch)


def remove(watch):
    """Ends that."""
    if watch in _watches:
        _watches.remove(watch)
        if not _watches:
            _restore()


def listeners():
    """Returns how many watches take their loss from backward()."""
    return sum(not each._manual for each in _watches)


def unscaled(root):
    """Returns the loss that GradScaler.scale() turned into `root`; None if it did not."""
    found = _scaled.get(id(root))
    return found[1] if found is not None and found[0]() is root else None


def is_known(scaler):
    """Returns whether losses that a scaler has scaled are recognized."""
    return isinstance(scaler, torch.amp.GradScaler)


def scale_below(root):
    """Returns the loss scale of a GradScaler in what `root` was computed from; None without one."""
    if not _has_scaled:
        return None
    nodes, visited = [root.grad_fn], set()
    while nodes and len(visited) < _MOST_NODES:
        node = nodes.pop(0)
        if node is None or node in visited:
            continue
        visited.add(node)
        scale = node.metadata.get(_SCALE)
        if scale is not None:
            return scale
        nodes.extend(each for each, _ in node.next_functions)
    return None


def _mark(result, scale):
    global _has_scaled
    _has_scaled = True
    if isinstance(result, torch.Tensor):
        if result.grad_fn is not None:
            result.grad_fn.metadata[_SCALE] = scale
    elif isinstance(result, (list, tuple)):
        for each in result:
            _mark(each, scale)


def _replace(owner, name, function):
    original = getattr(owner, name)
    _originals.append((owner, name, original))
    setattr(owner, name, functools.wraps(original)(function(original)))


def _install():
    def backward(original):
        def run(tensors, *args, **kwargs):
            # Reentrant checkpoints call it again from inside.
            global _depth
            if _depth == 0 and not torch.compiler.is_compiling():
                for watch in list(_watches):
                    watch._on_backward(tensors)
                _scaled.clear()
            _depth += 1
            try:
                result = original(tensors, *args, **kwargs)
            finally:
                _depth -= 1
            if _depth == 0 and not torch.compiler.is_compiling():
                for watch in list(_watches):
                    watch._on_backward_done()
            return result
        return run

    def scale(original):
        def run(self, outputs):
            result = original(self, outputs)
            if isinstance(result, torch.Tensor) and isinstance(outputs, torch.Tensor):
                _scaled[id(result)] = (weakref.ref(result), outputs.detach())
            if self.is_enabled() and self._scale is not None:
                # update() changes the scaler's own tensor.
                _mark(result, self._scale.detach().clone())
            return result
        return run

    def unscale(original):
        def run(self, optimizer):
            for watch in _watches:
                if watch._owns(optimizer):
                    watch._script.on_unscale()
            return original(self, optimizer)
        return run

    def leave_autocast(original):
        def run():
            global autocast_left
            autocast_left += 1
            return original()
        return run

    def step(original):
        def run(self, optimizer, *args, **kwargs):
            watches = [each for each in _watches if each._owns(optimizer)]
            for watch in watches:
                watch._on_scaler_step(self)
            result = original(self, optimizer, *args, **kwargs)
            for watch in watches:
                watch._on_scaler_stepped()
            return result
        return run

    def leave(original):
        def run(status=None, /):
            global exit_code
            exit_code = status
            return original(status)
        return run

    _replace(torch.autograd, "backward", backward)
    _replace(sys, "exit", leave)
    _replace(torch.amp.GradScaler, "scale", scale)
    _replace(torch.amp.GradScaler, "step", step)
    _replace(torch.amp.GradScaler, "unscale_", unscale)
    _replace(torch, "clear_autocast_cache", leave_autocast)  # which leaving autocast calls


def _restore():
    for owner, name, original in reversed(_originals):
        setattr(owner, name, original)
    _originals.clear()
    _scaled.clear()
