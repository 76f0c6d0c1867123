# SPDX-License-Identifier: MIT
"""Optimizers and learning-rate schedules of a twin, in the words of `halfscope train`."""
import copy
import fnmatch
import warnings

import torch

from halfscope._core import Error


def schedule_values(scheduler, optimizer, steps):
    """Returns what a schedule sets in each of the optimizer's groups: option -> a value for each
    step. Learning rates are always among them, others if they change. Returns nothing without a
    schedule. The schedule stays as it is."""
    if scheduler is None:
        if any("initial_lr" in group for group in optimizer.param_groups):
            raise Error("a learning-rate schedule belongs to the optimizer. Pass it as scheduler=, "
                        "or pass an optimizer without one")
        return []
    kind = type(scheduler).__name__
    if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
        raise Error(f"schedule {kind} is not one of torch.optim.lr_scheduler. Pass one that steps "
                    "once after each step of the optimizer")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise Error(f"schedule {kind} depends on results, and a twin's rates must be known "
                    "before it trains. Pass another schedule")
    if scheduler.optimizer is not optimizer:
        raise Error("the schedule belongs to another optimizer. Pass the optimizer that it changes")
    if scheduler.last_epoch != 0:
        raise Error(f"schedule {kind} is at step {scheduler.last_epoch}, and a twin begins at its "
                    "start. Pass the schedule before its first step")
    stand_in = _stand_in(optimizer)
    try:
        made = copy.deepcopy(scheduler, {id(optimizer): stand_in})
    except Exception as fault:
        raise Error(f"schedule {kind} cannot be copied: {fault}. Pass one whose functions can be "
                    "copied") from fault
    before = [dict(group) for group in stand_in.param_groups]
    values = [{key: [] for key in ("lr", "momentum", "betas") if key in group} for group in before]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer takes no steps
        for _ in range(steps):
            for group, old, lists in zip(stand_in.param_groups, before, values):
                for key, value in _without(group, "params").items():
                    fixed = key not in lists or (key == "betas" and value[1] != old[key][1])
                    if fixed and value != old.get(key):
                        raise Error(f"schedule {kind} also changes {key}, which the twin cannot "
                                    "repeat. Pass one that changes learning rates, momenta and "
                                    "beta1 only")
                for key, each in lists.items():
                    each.append(float(group[key]) if key == "lr" else group[key])
            made.step()
    for lists in values:
        for key in ("momentum", "betas"):
            if len(set(lists.get(key, []))) < 2:
                lists.pop(key, None)
        if any(not 0.0 < value < 1.0 for value in lists.get("momentum", [])):
            raise Error(f"schedule {kind} changes a momentum to a number that is not between 0 and "
                        "1, which the twin cannot repeat. Pass another schedule")
    return values


def _without(group, *keys):
    return {key: value for key, value in group.items() if key not in keys}


def _stand_in(optimizer):
    """Returns an optimizer with the same settings, for parameters that nobody needs."""
    made = torch.optim.SGD([{"params": [torch.zeros(1)]} for _ in optimizer.param_groups], 1.0)
    made.defaults.update(optimizer.defaults)
    for own, group in zip(made.param_groups, optimizer.param_groups):
        own.update(_without(group, "params"))
    return made


# Options of groups by their names in PyTorch; these are numbers, and those below switches.
_NUMBERS = ("alpha", "eps", "momentum", "dampening", "weight_decay")
_SWITCHES = ("nesterov", "amsgrad", "centered", "maximize")
_OFF = "false"
# What does not change results.
_IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable")


def _settings(group):
    """Returns the options of a group in the words of `halfscope train`, as text."""
    values = {"lr": group.get("initial_lr", group["lr"])}
    if "betas" in group:
        values["beta1"], values["beta2"] = group["betas"]
    values.update((key, group[key]) for key in _NUMBERS if key in group)
    settings = {key: repr(float(value)) for key, value in values.items()}
    settings.update((key, "true" if group[key] else _OFF) for key in _SWITCHES if key in group)
    if "nesterov" in group and not group["momentum"]:
        settings["nesterov"] = _OFF  # it has no effect
    return settings


def _text_of(settings):
    return ",".join(f"{key}={value}" for key, value in settings.items())


def _series(lists, key):
    """Returns the values of an option of `halfscope train` by step; None if it does not change."""
    if key == "beta1":
        return [float(betas[0]) for betas in lists["betas"]] if "betas" in lists else None
    return [float(value) for value in lists[key]] if key in lists else None


def _own_series(lists, settings, first_lists, first):
    """Returns the values by step of options that do not follow from the first group's, and the
    names of options that stay although the first group's change."""
    own, fixed = {}, []
    for key in ("momentum", "beta1"):
        series, base_series = _series(lists, key), _series(first_lists, key)
        if series is None and base_series is not None:
            fixed.append(key)
        elif series != base_series:
            own[key] = series
    rates, base_rates = lists["lr"], first_lists["lr"]
    rate, base = float(settings["lr"]), float(first["lr"])
    follows = all(abs(own_rate * base - each * rate) <= 1e-9 * abs(own_rate * base)
                  for own_rate, each in zip(rates, base_rates)) if base else rates == base_rates
    if not follows:
        own["lr"] = rates
    return own, fixed


def group_texts(optimizer, names, values):
    """Returns a text for --param-group for each set of parameters whose options are not the first
    group's, and the arrays of the schedule's file. values: of schedule_values()."""
    first = _settings(optimizer.param_groups[0])
    lists = values or [None] * len(optimizer.param_groups)
    arrays = {}
    if values:
        arrays = {key: series for key in ("lr", "momentum", "beta1")
                  if (series := _series(values[0], key)) is not None}
    kinds, trained = [], {}  # kinds: options and series of a set
    for group, each in zip(optimizer.param_groups, lists):
        settings = _settings(group)
        own, fixed = _own_series(each, settings, values[0], first) if values else ({}, [])
        changed = {key: value for key, value in settings.items()
                   if value != first[key] or key in fixed}
        if own and not changed:
            changed["lr"] = settings["lr"]  # a group has at least one option
        kind = (_text_of(changed), own)
        if kind not in kinds:
            kinds.append(kind)
        trained.update((names[id(value)], kinds.index(kind)) for value in group["params"]
                       if id(value) in names and value.requires_grad)
    texts = []
    for number in dict.fromkeys(trained.values()):
        changed, own = kinds[number]
        members = [name for name, each in trained.items() if each == number]
        for glob in _globs(members, trained) if changed else ():
            texts.append(f"{glob}:{changed}")
            arrays.update((f"{glob}:{key}", series) for key, series in own.items())
    return texts, arrays


def _globs(members, names):
    """Returns patterns that match these names and none of the others: "*.bias" where all that end
    so are members."""
    globs = []
    for name in members:
        ending = "*." + name.rpartition(".")[2]
        alike = [each for each in names if fnmatch.fnmatchcase(each, ending)]
        glob = ending if "." in name and set(alike) <= set(members) else name
        if glob not in globs:
            globs.append(glob)
    return globs


def optimizer_text(optimizer, names):
    """Returns the text for --optimizer, a function that makes the same optimizer for other
    parameters, and the names of the parameters that it trains."""
    kind = next((name for name, each in (("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam),
                                         ("sgd", torch.optim.SGD), ("rmsprop", torch.optim.RMSprop))
                 if type(optimizer) is each), None)
    if kind is None:
        raise Error(f"optimizer {type(optimizer).__name__} is not supported. Use one of "
                    "torch.optim.SGD, Adam, AdamW and RMSprop for the twin")
    groups = [{key: value for key, value in group.items() if key != "params"}
              for group in optimizer.param_groups]
    if kind == "adam" and groups[0].get("decoupled_weight_decay"):
        kind = "adamw"
    known = ("lr", "betas", *_NUMBERS, *_SWITCHES, *_IMPLEMENTATION)
    # Schedules keep numbers of their own in groups.
    different = [key for key in optimizer.defaults if key not in known and
                 any(group[key] != groups[0][key] for group in groups)]
    if different:
        raise Error(f"the optimizer has parameter groups with different {different[0]}, and the "
                    "twin's cannot differ in it. Use one value for all groups")
    trained = []
    for each in (each for group in optimizer.param_groups for each in group["params"]):
        if id(each) not in names:
            raise Error("the optimizer trains a parameter that the model does not have. Pass the "
                        "optimizer of this model")
        if each.requires_grad:
            trained.append(names[id(each)])
    if not trained:
        raise Error("the optimizer trains no parameter of the model")
    text = kind + ":" + _text_of({key: value for key, value in _settings(groups[0]).items()
                                  if value != _OFF})
    cls = type(optimizer)
    members = [[names[id(value)] for value in group["params"] if value.requires_grad]
               for group in optimizer.param_groups]

    def make(parameters):
        """parameters: by name."""
        made = cls([{"params": [parameters[name] for name in each]} for each in members],
                   lr=1.0)  # each group's own follows
        for each, settings in zip(made.param_groups, groups):
            each.update(_without(settings, "initial_lr", *_IMPLEMENTATION))
            each["lr"] = float(settings.get("initial_lr", settings["lr"]))
        return made
    return text, make, trained
