# SPDX-License-Identifier: MIT
"""Functions of a watch that need none of its state."""
import math
import os

import torch


def unwrapped(model):
    """Returns the user's own module, without DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel,
                              torch.nn.DataParallel)):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def is_compiled(module):
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def file_of_rank(out):
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        if torch.distributed.get_world_size() > 1:
            base, extension = os.path.splitext(os.fspath(out))
            return f"{base}.rank{torch.distributed.get_rank()}{extension}"
    return os.fspath(out)


def learning_rate(optimizer):
    """Returns the rate of the first group of parameters; NaN without one."""
    if optimizer is None or not optimizer.param_groups:
        return math.nan
    return optimizer.param_groups[0].get("lr", math.nan)


def host(x):
    return x if x.is_cpu else x.detach().cpu()


def numbers(row):
    """Returns a row with all its tensors read."""
    step, losses, scale, rate, skipped, norm, ms = row
    loss = math.fsum(float(each) for each in losses) if _all_finite(losses) else math.nan
    return (step, loss, float(scale), float(rate), skipped, float(norm), ms)


def _all_finite(losses):
    return bool(losses) and all(math.isfinite(float(each)) for each in losses)
