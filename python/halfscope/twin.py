# SPDX-License-Identifier: MIT
"""Writes a twin: a PyTorch training as files that `halfscope diagnose` repeats and judges."""
import contextlib
import copy
import itertools
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from halfscope import _autocast, _dropout, _losses, _onnx, _repeatable, _training
from halfscope._core import Error, __version__

SCHEMA = "halfscope.twin/1"
# twin.json is removed first and written last: a folder without it is not a twin.
_FILES = ("twin.json", "net.onnx", "net.onnx.data", "data.npz", "rates.npy",
          "rates.npz")
# Trainings from weights that are moved by one ulp. They show how far rounding moves the losses.
_MOVED = 2


def save_twin(model, loss_fn, optimizer, batches, folder, *, scheduler=None, clip_norm=None,
              dropout=False, fresh=False, steps=60, overwrite=False):
    """Writes network, batches, settings and fp32 losses to a folder; returns its path.

    The model, the optimizer and PyTorch's random numbers stay as they are: everything is done on a
    copy, in fp32 on the CPU, in training mode.

    loss_fn: nn.CrossEntropyLoss(), nn.NLLLoss(), nn.MSELoss(), nn.BCEWithLogitsLoss(), with any
        options that make a scalar, or their functions; None if the model returns the loss.
    batches: (x, y) each, of equal shapes; x is a tensor, a tuple of arguments or a dict of keyword
        arguments. Only x without loss_fn.
    scheduler: the schedule, any of torch.optim.lr_scheduler that steps without arguments, once
        after each optimizer step, and changes learning rates, momenta or beta1 of any groups. The
        twin begins at its start.
    clip_norm: what the script passes to torch.nn.utils.clip_grad_norm_ before each step.
    dropout: keeps the network's dropout, so plans are judged with it. PyTorch and HalfScope drop
        different elements, so the recorded losses are computed without dropout, and HalfScope
        repeats them without. Otherwise dropout is switched off, and so are modules that
        change their input at random in training and return it in evaluation, such as stochastic
        depth.
    fresh: starts the optimizer from zeros although it has state. Without it, state is an error.
    steps: optimizer steps for which losses are recorded. Batches start again after the last one.
        They are trained three times, to measure what rounding does.
    Raises Error if something cannot be exported. Nothing is guessed.
    """
    model = getattr(model, "_orig_mod", model)  # torch.compile
    # A wrapper would put its own name before every module's.
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise Error("the model is wrapped for several devices. Pass model.module")
    if steps < 1:
        raise Error(f"steps={steps}: train at least 1 step")
    names = {id(value): name for name, value in model.named_parameters()}
    text, make_optimizer, trained = _training.optimizer_text(optimizer, names)
    values = _training.schedule_values(scheduler, optimizer, steps)
    groups, series = _training.group_texts(optimizer, names, values)
    if clip_norm is not None and not 0.0 < clip_norm < float("inf"):
        raise Error(f"clip_norm={clip_norm}: pass a number above 0, or None without clipping")
    if optimizer.state and not fresh:
        states = sorted({name for each in optimizer.state.values() for name in each} - {"step"})
        raise Error(f"the optimizer has state ({', '.join(states) or 'a step count'}), which a twin "
                    "cannot take over. Pass a new optimizer, or fresh=True to start it from zeros")
    loss = _losses.kind_of(loss_fn)
    batches = _batches(batches, loss, steps)
    folder = _free_folder(folder, overwrite)
    with tempfile.TemporaryDirectory() as part:  # an error leaves an older twin as it is
        training = _Training(text, make_optimizer, trained, groups, values, series, clip_norm,
                             dropout, steps)
        notes = _write(model, loss, loss_fn, optimizer, training, batches, Path(part))
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        for name in reversed(_FILES):
            if os.path.exists(os.path.join(part, name)):
                shutil.move(os.path.join(part, name), folder / name)
    for note in notes:
        warnings.warn(f"save_twin: {note}", stacklevel=2)
    return folder


@dataclass
class _Training:
    """How a twin is trained."""
    optimizer: str        #: for --optimizer
    make_optimizer: Callable
    trained: list         #: names of parameters
    groups: list          #: for --param-group
    values: list          #: of each group: option -> its value in each step; empty if none changes
    series: dict          #: arrays for --schedule
    clip_norm: float      #: None without clipping
    dropout: bool         #: keeps it
    steps: int


def _write(model, loss, loss_fn, optimizer, training, batches, folder):
    """Writes the files; returns sentences that the user should know."""
    notes = []
    if optimizer.state:
        notes.append("the state of the optimizer: the twin starts from zeros")
    notes.append("loss scaling of your script" if training.clip_norm else
                 "loss scaling of your script, and gradient clipping unless clip_norm= is given")
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), \
            torch.autocast("cpu", enabled=False):
        twin = _copy(model, notes)
        wrapped = _losses.attach(twin, loss, loss_fn, batches[0])
        off, no_dropout = [], contextlib.nullcontext()
        if training.dropout:
            _dropout.check_kept(twin, wrapped, batches[0])
        else:
            off, no_dropout = _dropout.switch_off(twin, wrapped, batches[0])
        if off:
            notes.append("dropout or other random numbers, which are switched off in " + ", ".join(
                each or "the model's forward" for each in off))
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), \
            torch.autocast("cpu", enabled=False), no_dropout:
        # Errors of the model itself come before the exporter's.
        casts = _autocast.lost_casts(copy.deepcopy(twin), wrapped, batches[0])
        regions = _autocast.autocast_off(copy.deepcopy(twin), wrapped, batches[0])
        rest = _untrained(copy.deepcopy(twin), wrapped, batches[0], training.trained)
        draws = _draws(copy.deepcopy(twin), wrapped, batches[0]) if training.dropout else None
        # The exporter runs the model, and batch normalizations would move their statistics.
        code, lost_because = _autocast.code_of(copy.deepcopy(twin), wrapped, batches[0])
        exported = _onnx.export(copy.deepcopy(twin), wrapped, batches[0], folder / "net.onnx",
                                draws, code)
        lost_because = lost_because or exported.lost_because
        if not lost_because:
            casts = regions = []
        with _dropout.Off() if draws else contextlib.nullcontext():
            _repeatable.check(twin, wrapped, batches[0], training.trained)
            mode = _repeatable.note_of_evaluation(model, twin, wrapped, batches[0])
            outputs = _outputs(copy.deepcopy(twin), wrapped, batches[0], exported.nodes)
            moved = [_moved(copy.deepcopy(twin), seed) for seed in range(1, _MOVED + 1)]
            losses, gradients = _train(twin, wrapped, batches, training)
            _check_finite(losses)
            moved = [_train(each, wrapped, batches, training) for each in moved]
    warned = [each for each in (exported.note, mode) if each]
    notes += warned
    if casts:
        notes.append("casts such as .to(x.dtype) or .float() in " + _listed(casts))
    if regions:
        notes.append("torch.autocast(enabled=False) in " + _listed(regions))
    if casts or regions:
        notes.append(f"the reason for lost casts and regions: {lost_because}")
    arrays = {name: torch.cat(parts).numpy() for name, *parts in
              zip(wrapped.arrays, *(each.tensors() for each in batches))}
    np.savez(folder / "data.npz", **arrays)
    arguments = ["--model", "net.onnx", "--data", "data.npz", "--loss", wrapped.loss,
                 "--optimizer", training.optimizer, "--batch", str(batches[0].size),
                 "--steps", str(training.steps), "--no-shuffle"]
    rates = ""
    if list(training.series) == ["lr"]:
        rates = "rates.npy"
        np.save(folder / rates, np.array(training.series["lr"]))
    elif training.series:
        rates = "rates.npz"
        np.savez(folder / rates, **training.series)
    if rates:
        arguments += ["--schedule", f"file:{rates}"]
    if training.clip_norm:
        arguments += ["--clip-norm", repr(float(training.clip_norm))]
    for group in training.groups:
        arguments += ["--param-group", group]
    for name in rest:
        arguments += ["--frozen", name]
    document = {
        "schema": SCHEMA, "files": {"network": "net.onnx", "data": "data.npz",
                                    **({"rates": rates} if rates else {})},
        "arguments": arguments, "losses": losses,
        "moved_losses": [[each if np.isfinite(each) else None for each in found]
                         for found, _ in moved],
        "outputs": outputs, "gradients": _gradients(gradients, [each for _, each in moved]),
        "nodes": exported.nodes, "left_out": notes, "lost_casts": casts,
        "autocast_off": regions, "dropout": draws or 0,
        "exporter": exported.exporter,
        "versions": {"halfscope": __version__, "torch": torch.__version__}}
    (folder / "twin.json").write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    return warned


def _listed(paths):
    """Returns up to three paths of modules as text."""
    names = [f"'{path}'" if path else "the model's forward" for path in paths[:3]]
    return ", ".join(names) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _batches(batches, loss, steps):
    # Batches that no step takes are not read: a loader may be endless.
    found = [_losses.Batch(each, loss) for each in itertools.islice(batches, steps)]
    if not found:
        raise Error("there are no batches")
    for number, each in enumerate(found):
        if each.shapes() != found[0].shapes():
            raise Error(f"batch {number} has shapes {each.shapes()}, but batch 0 has "
                        f"{found[0].shapes()}. Use batches of equal shapes")
    return found


def _free_folder(folder, overwrite):
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise Error(f"'{folder}' is not a folder")
    there = [each.name for each in folder.iterdir()] if folder.exists() else []
    if there and not (overwrite and "twin.json" in there):
        raise Error(f"'{folder}' is not empty. Name another folder, or pass overwrite=True to "
                    "replace a twin")
    return folder


def _copy(model, notes):
    try:
        twin = copy.deepcopy(model)
    except Exception as fault:
        raise Error(f"the model cannot be copied: {fault}. Close watches on it, and pass the "
                    "model before its first step") from fault
    for value in twin.parameters():
        value.grad = None
    for name, value in (*twin.named_parameters(), *twin.named_buffers()):
        if value.is_complex():
            raise Error(f"'{name}' is complex, and HalfScope has no complex numbers. Keep its real "
                        "and imaginary part as two tensors")
    twin = twin.to("cpu", torch.float32)
    if not model.training:
        twin.train()
    for name, module in twin.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if not module.training or not module.track_running_stats or module.momentum is None:
                raise Error(f"batch normalization '{name}' does not train with running statistics "
                            "and a momentum, which the twin cannot repeat. Set it to training "
                            "mode, with its default settings")
    if any(value.dtype != torch.float32 for value in model.parameters()):
        notes.append("the formats of the weights: they are converted to fp32")
    return twin


def _draws(twin, wrapped, batch):
    """Returns how often dropout runs in a forward pass."""
    with _dropout.Off() as mode, torch.no_grad():
        wrapped.loss_of(batch, twin)
    return mode.draws


def _untrained(twin, wrapped, batch, trained):
    """Returns the names of parameters that the loss depends on and the optimizer does not train."""
    rest = [(name, value.requires_grad_(True)) for name, value in twin.named_parameters()
            if name not in trained]
    if not rest:
        return []
    found = torch.autograd.grad(wrapped.loss_of(batch, twin), [value for _, value in rest],
                                allow_unused=True)
    return [name for (name, _), gradient in zip(rest, found) if gradient is not None]


def _outputs(twin, wrapped, batch, nodes):
    """Returns how large the outputs of each leaf module that runs once are in the first forward
    pass, with the node that computes them. Of modules that became several nodes it is not known."""
    paths = list(nodes.values())
    last = {path: node for node, path in nodes.items() if paths.count(path) == 1}
    found, again, handles = {}, set(), []

    def hook_of(name):
        def hook(module, args, output):
            if isinstance(output, torch.Tensor) and output.is_floating_point():
                if name in found:
                    again.add(name)
                values = output.detach().double()
                found[name] = {"module": name, "node": last[name], "n": values.numel(),
                               "norm": float(values.norm()), "max_abs": float(values.abs().max())}
        return hook

    for name, module in twin.named_modules():
        if name in last and not any(True for _ in module.children()):
            handles.append(module.register_forward_hook(hook_of(name)))
    with torch.no_grad():
        wrapped.loss_of(batch, twin)
    for handle in handles:
        handle.remove()
    return [each for name, each in found.items()
            if name not in again and np.isfinite(each["norm"])]


def _train(twin, wrapped, batches, training):
    """Returns the losses of fp32 training, and the gradients of the first step by parameter."""
    wanted = set(training.trained)
    parameters = {}
    for name, value in twin.named_parameters():
        value.requires_grad_(name in wanted)
        if name in wanted:
            parameters[name] = value
    optimizer = training.make_optimizer(parameters)
    losses, gradients = [], {}
    for step in range(training.steps):
        optimizer.zero_grad()
        loss = wrapped.loss_of(batches[step % len(batches)], twin)
        loss.backward()
        if step == 0:
            gradients = {name: value.grad.detach().double() for name, value in parameters.items()
                         if value.grad is not None and not value.grad.is_sparse}
        if training.clip_norm:
            nn.utils.clip_grad_norm_(parameters.values(), training.clip_norm)
        for group, lists in zip(optimizer.param_groups, training.values):
            group.update((key, each[step]) for key, each in lists.items())
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, gradients


def _check_finite(losses):
    for step, loss in enumerate(losses):
        if not np.isfinite(loss):
            raise Error(f"the fp32 loss is {loss} in step {step}. Find out why fp32 fails first, "
                        "or pass fewer steps")


def _moved(twin, seed):
    """Moves each weight by one ulp, up or down at random."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in twin.parameters():
            up = torch.randint(0, 2, value.shape, generator=random) * 2 - 1
            value.copy_(torch.nextafter(value, value + up * value.abs()))
    return twin


def _gradients(found, moved):
    """Returns how large the gradients of the first step are, and how far rounding moves them.

    moved: the gradients of trainings whose weights are moved.
    """
    return [{"parameter": name, "norm": float(value.norm()),
             "moved": max(float((each[name] - value).norm()) for each in moved)}
            for name, value in found.items()
            if all(torch.isfinite(each[name]).all() for each in (found, *moved))]
