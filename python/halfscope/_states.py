# SPDX-License-Identifier: MIT
"""Sites of an optimizer: its states and updates."""
import torch

from halfscope._helpers import host, learning_rate, local
from halfscope._sites import format_of

# Names of optimizer states as in HalfScope's own optimizers.
_STATES = {"exp_avg": "adam_m", "exp_avg_sq": "adam_v", "momentum_buffer": "momentum",
           "square_avg": "square_avg", "max_exp_avg_sq": "adam_v_max"}
_ADAGRAD_SUM = "adagrad_sum"  # of the squares of all gradients, also the last one
# States that an optimizer will have, for runs whose first steps are all skipped.
_EXPECTED = {"Adam": ("exp_avg", "exp_avg_sq"), "AdamW": ("exp_avg", "exp_avg_sq"),
             "NAdam": ("exp_avg", "exp_avg_sq"), "RAdam": ("exp_avg", "exp_avg_sq"),
             "RMSprop": ("square_avg",)}
_MEANS = {"exp_avg_sq": "exp_avg"}  # a mean of squares, and the mean of gradients beside it


def leaves_weights(optimizer, group):
    """Returns whether a step leaves weights of a parameter group as they are on purpose, although
    their gradients are not 0: at a rate of 0, and where the sign of Rprop's gradient changes."""
    rate = group.get("lr")
    return isinstance(optimizer, torch.optim.Rprop) or \
        (not isinstance(rate, torch.Tensor) or rate.is_cpu) and rate == 0


def add_states(found, sites, optimizer, parameter, entry, gradient):
    """Adds (site, state, mean of gradients or None) of a parameter's states to a list.

    entry: path, leaf and operator of the parameter. gradient: None if it is sparse.
    """
    path, leaf, op = entry
    states = optimizer.state.get(parameter, {})
    for name, value in states.items():
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            continue
        squares = name == "sum" and isinstance(optimizer, torch.optim.Adagrad)
        ours = _ADAGRAD_SUM if squares else _STATES.get(name, name)
        value, tensor = local(value), f"{leaf}_{ours}"
        if value.numel() == 0:
            continue
        site = sites.find(path, tensor)
        if site is None:
            form = format_of(value.dtype)
            if form is None:
                continue
            site = sites.number(path, tensor, "state", "update", op, form, value.shape)
            if site is None:
                continue
        mean = gradient if squares else states.get(_MEANS.get(name, ""))
        mean = None if mean is None else local(mean)
        if mean is not None and mean.shape != value.shape:
            mean = None
        found.append((site, host(value), None if mean is None else host(mean)))


def expect_updates(sites, optimizer, parameters):
    """Adds the sites of updates and states, none of which has come yet."""
    names = _EXPECTED.get(type(optimizer).__name__, ())
    if any(g.get("momentum", 0) for g in getattr(optimizer, "param_groups", ())):
        names += ("momentum_buffer",)
    for parameter, path, leaf, op in parameters:
        form, shape = format_of(parameter.dtype), local(parameter).shape
        if not parameter.requires_grad or form is None:
            continue
        for name, role in [("update", "update")] + [(_STATES[n], "state") for n in names]:
            sites.number(path, f"{leaf}_{name}", role, "update", op, form, shape)


def optimizer_text(optimizer):
    """Returns "adam:lr=0.001" and whether the loss is maximized; "" without an optimizer."""
    if optimizer is None:
        return ""
    groups = getattr(optimizer, "param_groups", ())
    maximizes = bool(groups) and all(group.get("maximize") for group in groups)
    return (f"{type(optimizer).__name__.lower()}:lr={float(learning_rate(optimizer)):g}" +
            (",maximize=true" if maximizes else ""))
