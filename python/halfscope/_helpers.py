# SPDX-License-Identifier: MIT
"""Functions of a watch that need none of its state."""
import math
import os
import sys

import torch

from halfscope._ops import operator_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)


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


def bare(optimizer):
    """Returns the optimizer in a trainer's wrapper, whose hooks nobody calls."""
    while not hasattr(optimizer, "_optimizer_step_pre_hooks") and \
            isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def rank_and_ranks():
    """Returns the number of this process and of all processes of a training."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def file_of_rank(out):
    rank, ranks = rank_and_ranks()
    if ranks == 1:
        return os.fspath(out)
    base, extension = os.path.splitext(os.fspath(out))
    return f"{base}.rank{rank}{extension}"


def plain_name(path):
    """Returns the path of a module without what torch.compile and FSDP put into it."""
    return ".".join(part for part in path.split(".")
                    if part not in ("_orig_mod", "_fsdp_wrapped_module"))


def named_parameters(model):
    """Returns [parameter, path, leaf, operator] of all parameters."""
    rows = []
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        op = operator_of(model.get_submodule(owner))
        owner = plain_name(owner)
        rows.append((parameter, owner, leaf, op) if owner else (parameter, leaf, "weight", op))
    return rows


def is_flattened(model):
    """Returns whether FSDP's first version wraps a module and shares out its parameters."""
    return any(type(each).__name__ == "FullyShardedDataParallel" for each in model.modules())


def running_statistics(names):
    """Returns (module, path, name) of the statistics that forward passes move: those of batch
    normalizations, and of modules with the same two buffers."""
    return [(module, path, name) for module, path in names.items()
            if {"running_mean", "running_var"} <= module._buffers.keys()
            for name in ("running_mean", "running_var") if module._buffers[name] is not None]


def learning_rate(optimizer):
    """Returns the rate of the first group of parameters; NaN without one."""
    if optimizer is None or not optimizer.param_groups:
        return math.nan
    return optimizer.param_groups[0].get("lr", math.nan)


def host(x):
    """Returns a tensor in host memory; of a sharded one, this rank's part."""
    if type(x) not in _PLAIN:
        x = local(x)
    return x if x.is_cpu else x.detach().cpu()


def local(x):
    """Returns this rank's part of a tensor that FSDP shares out; other tensors as they are."""
    if type(x) in _PLAIN or not is_sharded(x):
        return x
    return x.to_local().detach()


def is_sharded(x):
    """Returns whether a tensor is a DTensor, without importing it."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def numbers(row):
    """Returns a row with all its tensors read."""
    step, losses, scale, rate, skipped, norm, ms = row
    losses = [float(each) for each in losses]
    return (step, _sum(losses), float(scale), float(rate), skipped, float(norm), ms)


def _sum(losses):
    """Returns the exact sum; infinity or NaN as additions give them. NaN without losses."""
    if losses and all(map(math.isfinite, losses)):
        return math.fsum(losses)
    return sum(losses) if losses else math.nan
