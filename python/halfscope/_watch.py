# SPDX-License-Identifier: MIT
"""watch(): records a PyTorch training while it runs."""
import atexit
import math
import os
import sys
import time
import warnings
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from halfscope import _patches
from halfscope._compiled import Compiled
from halfscope._forward import Forward
from halfscope._guard import Guarded, warn_stopped
from halfscope._helpers import (bare, file_of_rank, host, is_flattened, is_sharded,
                                learning_rate, local, named_parameters, numbers, plain_name,
                                rank_and_ranks, running_statistics, unwrapped)
from halfscope._ops import PRODUCTS, operator_of
from halfscope._script import Script
from halfscope._states import add_states, expect_updates, leaves_weights, optimizer_text
from halfscope._sites import Sites, exact_text, format_of, new_recording, whole_number

# A file begins after the first step that changed weights, or after this many.
_WAITING_STEPS = 20
# Rows of steps that are not recorded are written together, at least this often.
_ROWS, _SECONDS = 256, 1.0
# A loss above this multiple of its running mean is a spike.
_SPIKE = 4.0

_open = weakref.WeakSet()


def watch(model, optimizer=None, *, out="run.hscope", every=1, scaler=None, loss="backward",
          overwrite=False, steps=0, data="", threads=0):
    """Records the training of a model into a run file and returns the Watch.

    model: a torch.nn.Module, also one in DistributedDataParallel.
    optimizer: its optimizer. Each of its step() calls ends a step. Default: the first optimizer
        that steps and has parameters of the model.
    out: the run file. With several processes, rank R writes run.rankR.hscope.
    every: tensors are recorded in each every-th step. Loss, loss scale and learning rate are
        recorded in every step.
    scaler: the loss scaler. A torch.amp.GradScaler is found without it. Others need get_scale().
    loss: "backward": the loss is the scalar on which backward() is called; several in a step are
        added. "manual": it is what Watch.loss() gets.
    overwrite: replaces an existing file.
    steps: number of steps that are planned, for progress displays.
    data: describes the data in reports.
    threads: at most this many of PyTorch's threads measure tensors. Default: all of them. What is
        recorded does not depend on it.

    Raises Error if the file cannot be created, TypeError or ValueError for wrong arguments. After
    that nothing is raised into the training: a fault ends the recording with one warning.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError("model must be a torch.nn.Module")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        hint = "; give its optimizer" if hasattr(optimizer, "optimizer") else ""
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {kind}{hint}")
    if scaler is not None and not hasattr(scaler, "get_scale"):
        raise TypeError(f"scaler must have get_scale(), which {type(scaler).__name__} has not")
    if loss not in ("backward", "manual"):
        raise ValueError('loss must be "backward" or "manual"')
    if not isinstance(data, str):
        raise TypeError(f"data must be a str, not {type(data).__name__}")
    every = whole_number("every", every, 1)
    steps = whole_number("steps", steps, 0)
    threads = whole_number("threads", threads, 0)
    out = os.fspath(out)
    return Watch(model, bare(optimizer), out, every, scaler, loss == "manual", bool(overwrite),
                 steps, data, threads)


class Watch(Guarded):
    """A recording in progress. Use close(), or `with`; it also closes when the program exits."""

    def __init__(self, model, optimizer, out, every, scaler, manual_loss, overwrite, steps, data,
                 threads):
        self.file = file_of_rank(out)
        self.step = 0  #: number of the step that runs
        self._every, self._scaler, self._manual = every, scaler, manual_loss
        self._planned, self._data = steps, data
        self._closed = True       # until everything is in place
        self._optimizer = None
        self._optimizer_handles, self._gradient_handles = [], []
        self._model = unwrapped(model)
        self._recording = new_recording(self.file, overwrite, threads)
        try:
            self._install(model, optimizer)
        except BaseException:
            self._closed = True
            self._remove()
            self._recording.end("interrupted")
            raise

    def _install(self, model, optimizer):
        """Prepares the recording and adds all hooks."""
        self._sites = Sites(self._recording)
        names = {}
        for path, module in self._model.named_modules():
            name = plain_name(path)
            names.setdefault(module, name or type(self._model).__name__)
        self._forward = Forward(self, self._model, names)
        self._parameters = named_parameters(self._model)
        self._by_parameter = {p: entry for p, *entry in self._parameters}
        self._statistics = running_statistics(names)
        self._sharded = any(is_sharded(p) for p, *_ in self._parameters)
        self._part = self._sharded or is_flattened(model)
        self._recorded = False
        self._partial = False     # a step that an alarm records, without its forward pass
        self._alarmed = False     # the last loss was not finite, or the next step is due
        self._wanted = False      # the next step is to be recorded
        self._losses, self._given_loss, self._given_norm = [], [], None
        self._said_no_loss = self._said_shared = False
        self._mean = None         # running mean of the loss
        self._calm_from = 0       # no alarm for a spike before this step
        self._scale = 1.0
        self._scale_text = "none"
        self._rate = math.nan
        self._rows, self._evaluations = [], []
        self._flushed = time.perf_counter()
        self._started = None
        self._batch = 0
        self._taken = 0           # recorded steps that changed weights
        self._stepped = True
        self._stepping = False    # the optimizer's step() runs
        self._pid = os.getpid()
        self._said_unseen = False
        self._compiled = Compiled(model, names)
        self._script = Script(self._recording, self._parameters, self._compiled.any)
        _patches.add(self)
        _open.add(self)
        if optimizer is not None:
            self._bind(optimizer)
        else:
            pre = register_optimizer_step_pre_hook(self._any_before)
            self._optimizer_handles.append(pre)
        self._closed = False
        self._arm()

    # What users call

    def loss(self, value):
        """Gives the loss of the step that runs. It replaces the one found at backward()."""
        self._guarded(self._take_loss, value)

    def grad_norm(self, value):
        """Gives the gradient norm of the step that runs, as clip_grad_norm_() returns it."""
        self._guarded(self._take_norm, value)

    def eval(self, loss, accuracy=math.nan, auc=math.nan, mean_iou=math.nan):
        """Records an evaluation on test data after the steps so far. It replaces an earlier one
        after the same step.

        accuracy, auc (area under the ROC curve), mean_iou: from 0 to 1; NaN: not measured.
        """
        self._guarded(self._evaluate, self.step, float(loss), float(accuracy), float(auc),
                      float(mean_iou))

    def _evaluate(self, *row):
        if self._recording.begun:
            self._recording.eval(*row)
        else:
            self._evaluations.append(row)  # the file has not begun

    def close(self):
        """Ends the recording and closes the file."""
        self._finish("complete")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self._finish("complete" if kind is None else "interrupted")
        return False

    # Safety

    def _fail(self, fault):
        """Ends the recording with one warning. The steps so far stay readable."""
        if self._closed:
            return
        self._finish("interrupted", say=False)
        warn_stopped(self.step, fault, self.file)

    def _finish(self, how, say=True):
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._recorded = False
        for work in (self._remove, self._flush, self._begin_late,
                     lambda: self._recording.end(how)):
            try:
                work()
            except Exception as fault:
                how = "interrupted"
                if say:
                    say = False
                    warnings.warn(f"halfscope: cannot close '{self.file}': {fault}", stacklevel=3)
        if say and how == "complete" and self.step == 0:
            who = ("the optimizer given to watch() never stepped" if self._optimizer is not None
                   else "no optimizer with parameters of the model stepped")
            warnings.warn(f"halfscope: recorded no step: {who}. '{self.file}' has no results.",
                          stacklevel=3)

    def _remove(self):
        """Removes all hooks."""
        _patches.remove(self)
        _open.discard(self)
        for handle in self._optimizer_handles + self._gradient_handles:
            handle.remove()
        if getattr(self, "_forward", None) is not None:
            self._forward.remove()

    def _begin_late(self):
        """Begins the file of a recording that ends while its first steps still wait."""
        if not self._recording.begun and self._sites._rank:
            self._begin()

    # Parameters

    def _owns(self, optimizer):
        if self._optimizer is not None:
            return bare(optimizer) is self._optimizer
        return any(p in self._by_parameter for g in optimizer.param_groups for p in g["params"])

    def _any_before(self, optimizer, args, kwargs):
        if self._closed or self._optimizer is not None:
            return
        try:
            if self._owns(optimizer):
                for handle in self._optimizer_handles:
                    handle.remove()
                self._optimizer_handles.clear()
                self._bind(optimizer)
                self._before(optimizer, args, kwargs)
        except Exception as fault:
            self._fail(fault)

    def _bind(self, optimizer):
        self._optimizer = optimizer
        self._optimizer_handles.append(optimizer.register_step_pre_hook(self._before))
        self._optimizer_handles.append(optimizer.register_step_post_hook(self._after))

    # The course of a step

    def _arm(self):
        """Prepares the next step: hooks exist only in steps that are recorded."""
        self._recorded = self._wanted or self.step % self._every == 0
        self._wanted = self._partial = False
        if self._recorded:
            self._forward.install()
            self._hook_gradients()
        elif self._forward.handles:
            self._recording.release()
            self._forward.remove()
            for handle in self._gradient_handles:
                handle.remove()
            self._gradient_handles.clear()

    def _hook_gradients(self):
        if self._gradient_handles:
            return
        for parameter, path, leaf, op in self._parameters:
            if parameter.requires_grad and parameter.is_leaf and not is_sharded(parameter):
                hook = self._gradient_hook(path, leaf, op)
                handle = parameter.register_post_accumulate_grad_hook(hook)
                self._gradient_handles.append(handle)

    def _gradient_hook(self, path, leaf, op):
        def hook(parameter):
            if not self._recorded:
                return
            try:
                self._measure_gradient(parameter, path, leaf, op)
            except Exception as fault:
                self._fail(fault)
        return hook

    def _measure_gradient(self, parameter, path, leaf, op):
        self._script.on_gradient()
        if parameter.grad is None:  # an optimizer that steps in the backward pass
            return
        gradient = local(parameter.grad)
        if gradient.is_sparse:
            gradient = gradient.coalesce().values()
        if gradient.numel() == 0:
            return
        site = self._sites.find(path, f"{leaf}_grad")
        if site is None:
            form = self._product_format(path, op, format_of(gradient.dtype))
            site = self._sites.number(path, f"{leaf}_grad", "weight_grad", "backward", op, form,
                                      local(parameter).shape)
        self._forward._measure(site, gradient, False)

    def _on_backward_done(self):
        """Measures gradients of shards: FSDP sets them without autograd's hooks."""
        if self._closed or not (self._recorded and self._sharded):
            return
        try:
            for parameter, *entry in self._parameters:
                if is_sharded(parameter):
                    self._measure_gradient(parameter, *entry)
        except Exception as fault:
            self._fail(fault)

    def _on_backward(self, roots):
        if self._closed:
            return
        try:
            self._forward.end_pass()
            if not self._recording.begun:
                self._compiled.look(roots, self._sites)
            root = roots
            if not isinstance(roots, torch.Tensor):
                root = roots[0] if len(roots) == 1 else None
            scale = self._script.on_backward(root)
            if self._manual or root is None or root.numel() != 1:
                return
            if self._stepping and self._losses:
                return  # an optimizer such as LBFGS evaluates its closure again
            loss = _patches.unscaled(root)
            if loss is None:
                loss = root.detach()
                if scale is not None:
                    loss = loss.float() / scale.to(loss.device)
                elif self._scaler is not None and not _patches.is_known(self._scaler):
                    loss = loss.double() / float(self._scaler.get_scale())
            self._losses.append(loss)
            if loss.device.type == "cpu":
                self._watch_loss(float(loss))
        except Exception as fault:
            self._fail(fault)

    def _watch_loss(self, loss):
        """Records the rest of this step and all of the next one if the loss is suspicious."""
        if not math.isfinite(loss):
            if not self._alarmed:
                self._alarm()
            self._alarmed = True
            return
        self._alarmed = False
        if self._mean is None:
            self._mean = abs(loss)
            self._calm_from = self.step + 10
        elif abs(loss) > _SPIKE * self._mean and self.step >= self._calm_from:
            self._calm_from = self.step + max(10, self._every)
            self._alarm()
        self._mean += 0.05 * (abs(loss) - self._mean)

    def _alarm(self):
        self._wanted = True
        if not self._recorded:
            self._recorded = self._partial = True
            self._hook_gradients()

    def _take_loss(self, value):
        self._given_loss.append(value.detach() if isinstance(value, torch.Tensor) else value)
        if not isinstance(value, torch.Tensor) or value.device.type == "cpu":
            self._watch_loss(float(value))

    def _take_norm(self, value):
        self._given_norm = value.detach() if isinstance(value, torch.Tensor) else value
        on_host = not isinstance(value, torch.Tensor) or value.device.type == "cpu"
        if on_host and not math.isfinite(float(value)):
            self._alarm()

    def _on_scaler_step(self, scaler):
        if self._closed:
            return
        try:
            if not scaler.is_enabled():
                return
            self._script.on_unscale()
            scale = scaler._scale
            self._scale = scaler.get_scale() if scale is None or not scale.is_cuda else scale.clone()
            if self._scale_text == "none":
                self._scale_text = (f"torch:init={exact_text(scaler._init_scale)},"
                                    f"growth={exact_text(scaler.get_growth_factor())},"
                                    f"backoff={exact_text(scaler.get_backoff_factor())},"
                                    f"interval={scaler.get_growth_interval()}")
            self._stepped = False
        except Exception as fault:
            self._fail(fault)

    def _on_scaler_stepped(self):
        """A loss scaler returned: if the optimizer did not run, the step was skipped."""
        if self._closed or self._stepped:
            return
        try:
            self._rate = learning_rate(self._optimizer)
            self._end_step(True)
        except Exception as fault:
            self._fail(fault)

    def _before(self, optimizer, args, kwargs):
        if self._closed:
            return
        try:
            self._stepped = self._stepping = True
            rate = learning_rate(optimizer)
            self._rate = rate.clone() if isinstance(rate, torch.Tensor) else rate
            self._script.before_step(optimizer, self._norm if self._recorded else None)
            if self._recorded:
                self._recording.before_update(self._weights())
        except Exception as fault:
            self._fail(fault)

    def _product_format(self, path, op, stored):
        """Returns the format in which a layer's product reads a parameter and computes its gradient.

        Under autocast that is the format of the result, not the one in which both are stored.
        """
        if op not in PRODUCTS or stored != "fp32":
            return stored
        layer = self._sites.layers.get(path)
        return layer.format if layer is not None else self._compiled.format or stored

    def _weights(self):
        """Returns (site, tensor) of all weights."""
        weights = []
        for parameter, path, leaf, op in self._parameters:
            parameter = local(parameter)
            if parameter.is_meta or parameter.numel() == 0:
                continue
            site = self._sites.find(path, leaf)
            if site is None:
                form = format_of(parameter.dtype)
                if form is None:
                    continue
                form = self._product_format(path, op, form)
                site = self._sites.number(path, leaf, "weight", "forward", op, form,
                                          parameter.shape)
            if site is not None:
                weights.append((site, host(parameter)))
        return weights

    def _after(self, optimizer, args, kwargs):
        if self._closed:
            return
        try:
            # Fused optimizers skip on their own.
            found = getattr(optimizer, "found_inf", None)
            skipped = isinstance(found, torch.Tensor) and float(found) != 0.0
            if self._recorded and not skipped:
                self._measure_update(optimizer)
            self._end_step(skipped)
        except Exception as fault:
            self._fail(fault)

    def _measure_update(self, optimizer):
        updates, states = [], []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                entry, gradient = self._by_parameter.get(parameter), parameter.grad
                if entry is None or gradient is None:
                    continue
                path, leaf, op = entry
                weight = self._sites.find(path, leaf)
                if weight is None:
                    continue
                gradient = None if gradient.is_sparse else host(gradient)
                site = self._sites.find(path, f"{leaf}_update")
                if site is None:
                    site = self._sites.number(path, f"{leaf}_update", "update", "update", op,
                                              format_of(parameter.dtype), local(parameter).shape)
                if site is not None:
                    beside = None if leaves_weights(optimizer, group) else gradient
                    updates.append((site, weight, host(parameter), beside))
                add_states(states, self._sites, optimizer, parameter, entry, gradient)
        self._recording.after_update(updates, states)

    def _end_step(self, skipped):
        now = time.perf_counter()
        ms = 0.0 if self._started is None else 1000.0 * (now - self._started)
        losses = self._given_loss or self._losses
        norm = math.nan if self._given_norm is None else self._given_norm
        if self._scale_text == "none" and self._scaler is not None:
            self._scale = self._scaler.get_scale()
        row = (self.step, losses, self._scale, self._rate, skipped, norm, ms)
        self._stepped, self._stepping = True, False
        given, given_loss = self._given_norm is not None, bool(self._given_loss)
        self._losses, self._given_loss, self._given_norm = [], [], None
        if losses:
            self._script.on_loss()
        elif not self._said_no_loss:
            self._said_no_loss = True
            warnings.warn(f"halfscope: no loss was found in step {self.step}. Give it to "
                          "Watch.loss().", stacklevel=2)
        if not (given_loss or self._manual or self._said_shared) and _patches.listeners() > 1:
            self._said_shared = True
            warnings.warn("halfscope: several recordings are open, and each hears the backward "
                          "passes of all models. Give each its own loss with Watch.loss().",
                          stacklevel=2)
        if self._recorded:
            self._flush()
            self._forward.end_pass()
            self._forward.collect()
            self._measure_statistics()
            row = numbers(row)
            if not given:
                row = row[:5] + (self._norm(row[2]),) + row[6:]
            if not skipped:
                self._taken += 1
            else:
                self._recording.measure_all(self._weights(), False)
            self._recording.step(row, True)
            if not self._recording.begun and not self._partial:
                if self._taken > 0 or self.step + 1 >= _WAITING_STEPS:
                    self._begin()
            if self._sites.unseen and not self._said_unseen:
                self._said_unseen = True
                names = sorted(self._sites.unseen)
                warnings.warn(f"halfscope: {names[0]}{' and others' if names[1:] else ''} appeared "
                              f"after recording began and is not in '{self.file}'", stacklevel=2)
        else:
            self._rows.append(row)
            if skipped or len(self._rows) >= _ROWS or now - self._flushed > _SECONDS:
                self._flush()
        self.step += 1
        _patches.exit_code = None  # the training goes on, so sys.exit() was caught
        self._arm()
        self._started = time.perf_counter()

    def _measure_statistics(self):
        """Measures running means and variances, which forward passes of skipped steps move, too."""
        found = []
        for module, path, name in self._statistics:
            value = module._buffers.get(name)
            form = None if value is None else format_of(value.dtype)
            if form is None or value.device.type == "meta":
                continue
            site = self._sites.number(path, name, "state", "forward", operator_of(module), form,
                                      value.shape)
            if site is not None:
                found.append((site, host(value)))
        if found:
            self._recording.measure_all(found, False)

    def _norm(self, scale=1.0):
        self._forward.collect()
        norm = self._recording.norm(self._sites.names("weight_grad"))
        return norm / scale if scale > 0.0 else norm

    def _flush(self):
        """Writes rows that wait. Numbers on devices are read here, not in the step."""
        if self._rows:
            rows, self._rows = self._rows, []
            self._recording.rows([numbers(row) for row in rows])
        self._flushed = time.perf_counter()

    def _begin(self):
        """Begins the file with the layers and sites seen so far."""
        sites = self._sites
        owners = {path for _, path, _, _ in self._parameters}
        for path in owners:
            # Weights that another module uses: their module did not run itself.
            parent = path
            while parent and parent not in sites.layers:
                parent = parent.rpartition(".")[0]
            if parent and parent != path and path not in sites.layers[parent].inputs:
                sites.layers[parent].inputs.append(path)
        if not sites.layers and not self._compiled.any:
            warnings.warn("halfscope: no module of the model ran outside torch.compile, so no "
                          "activations are recorded", stacklevel=2)
        self._compiled.add_layers(sites, self._parameters)
        if self._taken == 0:
            expect_updates(self._sites, self._optimizer, self._parameters)
        states = [format_of(value.dtype) for state in
                  (self._optimizer.state.values() if self._optimizer is not None else ())
                  for value in state.values()
                  if isinstance(value, torch.Tensor) and value.dim() > 0]
        lane, plan = sites.plan([format_of(p.dtype) for p, *_ in self._parameters],
                                [each for each in states if each], bool(self._statistics),
                                self._compiled.format)
        data = self._data or os.path.basename(sys.argv[0]) or "python"
        model = type(self._model).__name__
        if self._part:
            # Ranks whose models have different names do not share their weights.
            model += " (part {} of {})".format(*rank_and_ranks())
        texts = {"model": model, "data": data, "lane": lane,
                 "backend": "pytorch", "plan": plan, "loss_scale": self._scale_text,
                 "optimizer": optimizer_text(self._optimizer), "command": " ".join(sys.argv)}
        counts = {"batch": self._batch, "steps_planned": self._planned, "every": self._every,
                  "threads": torch.get_num_threads(), "seed": torch.initial_seed() & (2**63 - 1)}
        self._recording.begin(texts, counts, sites.layer_rows(), sites.order())
        for row in self._evaluations:
            self._recording.eval(*row)
        self._forward.end_structure()


@atexit.register
def _close_all():
    died = getattr(sys, "last_value", None) is not None or _patches.exit_code not in (None, 0)
    for each in list(_open):
        each._finish("interrupted" if died else "complete")
