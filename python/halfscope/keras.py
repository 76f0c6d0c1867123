# SPDX-License-Identifier: MIT
"""KerasCallback: records a Keras 3 training. Values come through NumPy, so any backend works."""
import functools
import math
import os
import sys

import keras
import numpy as np

from halfscope._guard import Guarded, warn_stopped
from halfscope._keras_ops import OPERATORS
from halfscope._sites import (Layer, Sites, exact_text, format_of, new_recording,
                              whole_number)

# Keras: variable of the optimizer -> name in HalfScope's own optimizers
_STATES = (("_momentums", "adam_m"), ("_velocities", "adam_v"), ("momentums", "momentum"))
_PRODUCTS = ("Gemm", "Einsum", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN", "Attention")


class KerasCallback(Guarded, keras.callbacks.Callback):
    """Records weights, updates, optimizer state, loss and loss scale of a Keras training.

    out: the run file.
    every: tensors are recorded in each every-th batch; losses in every batch.
    overwrite: replaces an existing file.

    Outputs of layers and gradients of weights are recorded if layers run eagerly: with the torch
    backend, or after compile(run_eagerly=True). Compiled, Keras shows them to nobody. Gradients of
    outputs are never recorded. A fault ends the recording with one warning and leaves the training
    alone.
    """

    def __init__(self, out="run.hscope", every=1, overwrite=False):
        super().__init__()
        self._every = whole_number("every", every, 1)
        self.file = os.fspath(out)
        self._recording = new_recording(self.file, overwrite)
        self._sites = Sites(self._recording)
        self._step, self._rows, self._before, self._closed = 0, [], None, False
        self._sum = None      # of the losses of the epoch so far
        self._recorded = False
        self._eager = None    # what sees outputs and gradients

    # Called by Keras

    def on_train_begin(self, logs=None):
        self._guarded(self._look_inside)

    def on_epoch_begin(self, epoch, logs=None):
        self._sum = (0, 0.0)

    def on_train_batch_begin(self, batch, logs=None):
        self._guarded(self._begin_step)

    def on_train_batch_end(self, batch, logs=None):
        self._guarded(self._end_step, logs or {})

    def on_epoch_end(self, epoch, logs=None):
        self._guarded(self._evaluate, logs or {})

    def on_train_end(self, logs=None):
        self.close()

    def close(self):
        """Ends the recording and closes the file."""
        self._look_away()
        if not self._closed:
            self._guarded(self._finish)
            self._closed = True

    # Work

    def _fail(self, fault):
        """Ends the recording with one warning. The steps so far stay readable."""
        self._closed = True
        self._look_away()
        try:
            self._recording.end("interrupted")
        except Exception:
            pass
        warn_stopped(self._step, fault, self.file)

    def _look_inside(self):
        """Lets layers and the optimizer hand over what they compute, where that has values."""
        if self._eager is None and (self.model.run_eagerly or keras.backend.backend() == "torch"):
            self._eager = Eager(self)

    def _look_away(self):
        if self._eager is not None:
            self._eager.remove()
            self._eager = None

    def _scaler(self):
        optimizer = self.model.optimizer
        return optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else None

    def _loss_scale(self):
        scaler = self._scaler()
        if scaler is None:
            return 1.0
        # Keras makes the variable in the first batch, and starts it with initial_scale.
        scale = scaler.dynamic_scale if scaler.built else scaler.initial_scale
        return float(keras.ops.convert_to_numpy(scale))

    def _optimizer(self):
        return getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)

    def _iterations(self):
        return int(keras.ops.convert_to_numpy(self._optimizer().iterations))

    def _variables(self):
        """Yields layer, path, leaf and variable of all trainable weights."""
        for layer in self.model._flatten_layers(include_self=False):
            own = [v for v in layer._trainable_variables]
            for variable in own:
                yield layer, _path(layer, self.model), variable.name, variable

    def _begin_step(self):
        self._recorded = self._step % self._every == 0
        if not self._recorded:
            return
        self._scale = self._loss_scale()
        self._count = self._iterations()
        self._before, weights = {}, []
        for layer, path, leaf, variable in self._variables():
            value = _numpy(variable)
            op = _operator(layer)
            form = _format(layer, variable)
            self._add_layer(layer, path)
            site = self._sites.number(path, leaf, "weight", "forward", op, form, value.shape)
            if site is not None:
                weights.append((site, value))
                self._before[path, leaf] = (site, value)
        self._recording.before_update(weights)

    def _add_layer(self, layer, path):
        if path not in self._sites.layers and not self._recording.begun:
            parameters = sum(int(np.prod(w.shape)) for w in layer._trainable_variables)
            compute = format_of(layer.compute_dtype) or "fp32"
            self._sites.layers[path] = Layer(path, _operator(layer), compute, parameters)

    def _on_output(self, layer, output):
        """Measures what a layer wrote in a step that is recorded."""
        if not self._recorded or self._closed:
            return
        path, op = _path(layer, self.model), _operator(layer)
        self._add_layer(layer, path)
        for number, x in enumerate(keras.tree.flatten(output)):
            form = format_of(keras.backend.standardize_dtype(x.dtype))
            if form is None or 0 in x.shape:
                continue
            value = _numpy(x)
            name = "activation" if number == 0 else f"activation_{number + 1}"
            site = self._sites.number(path, name, "activation", "forward", op, form, value.shape)
            if site is not None:
                self._recording.measure(site, value, True)

    def _on_gradients(self, gradients, variables):
        """Measures what the optimizer gets, which has the loss scale."""
        if not self._recorded or self._closed:
            return
        owners = {id(v): (layer, path, leaf) for layer, path, leaf, v in self._variables()}
        for gradient, variable in zip(gradients, variables):
            entry = owners.get(id(variable))
            if gradient is None or entry is None:
                continue
            if not hasattr(gradient, "shape"):
                continue  # sparse slices
            layer, path, leaf = entry
            value = _numpy(gradient)
            site = self._sites.number(path, f"{leaf}_grad", "weight_grad", "backward",
                                      _operator(layer), _format(layer, variable), value.shape)
            if site is not None:
                self._recording.measure(site, value, False)

    def _end_step(self, logs):
        loss = self._loss_of(float(logs.get("loss", math.nan)))
        rate = float(keras.ops.convert_to_numpy(self._optimizer().learning_rate))
        if not self._recorded:
            self._rows.append((self._step, loss, self._loss_scale(), rate, False, math.nan, 0.0))
            if len(self._rows) >= 256:
                self._flush()
            self._step += 1
            return
        self._flush()
        skipped = self._scaler() is not None and self._iterations() == self._count
        if not skipped:
            self._measure_update()
        norm = self._recording.norm(self._sites.names("weight_grad"))
        norm = norm / self._scale if self._sites.names("weight_grad") else math.nan
        row = (self._step, loss, self._scale, rate, skipped, norm, 0.0)
        self._recording.step(row, True)
        self._recorded = False  # until the next batch: an evaluation is no step
        if not self._recording.begun:
            self._begin()
        self._step += 1

    def _loss_of(self, mean):
        """Returns the loss of the last batch: Keras logs the mean since the epoch began."""
        if self._sum is None or not math.isfinite(mean) or not math.isfinite(self._sum[1]):
            self._sum = None if self._sum is None else (self._sum[0] + 1, mean)
            return mean
        count, total = self._sum
        self._sum = (count + 1, mean * (count + 1))
        return self._sum[1] - total

    def _measure_update(self):
        updates, states = [], []
        optimizer = self._optimizer()
        for layer, path, leaf, variable in self._variables():
            if (path, leaf) not in self._before:
                continue
            weight, _ = self._before[path, leaf]
            value, op = _numpy(variable), _operator(layer)
            form = format_of(variable.dtype) or "fp32"
            site = self._sites.number(path, f"{leaf}_update", "update", "update", op, form,
                                      value.shape)
            if site is not None:
                updates.append((site, weight, value, None))
            for attribute, name in _STATES:
                found = _state_of(optimizer, attribute, variable)
                if found is None:
                    continue
                state = _numpy(found)
                site = self._sites.number(path, f"{leaf}_{name}", "state", "update", op,
                                          format_of(found.dtype) or "fp32", state.shape)
                if site is not None:
                    mean = _state_of(optimizer, "_momentums", variable)
                    pair = _numpy(mean) if name == "adam_v" and mean is not None else None
                    states.append((site, state, pair))
        self._recording.after_update(updates, states)

    def _evaluate(self, logs):
        if "val_loss" in logs:
            def score(word):
                return next((float(value) for name, value in logs.items()
                             if name.startswith("val_") and word in name), math.nan)
            self._recording.eval(self._step, float(logs["val_loss"]), score("acc"), score("auc"),
                                 score("iou"))

    def _flush(self):
        if self._rows:
            rows, self._rows = self._rows, []
            self._recording.rows(rows)

    def _begin(self):
        storage = [format_of(v.dtype) or "fp32" for *_, v in self._variables()]
        lane, plan = self._sites.plan(storage, [])
        scaler = self._scaler()
        scale = "none"
        if scaler is not None:
            interval = int(getattr(scaler, "dynamic_growth_steps", 2000))
            scale = f"keras3:init={exact_text(scaler.initial_scale)},interval={interval}"
            if keras.backend.backend() != "tensorflow":
                scale += f",backend={keras.backend.backend()}"
        rate = float(keras.ops.convert_to_numpy(self._optimizer().learning_rate))
        texts = {"model": self.model.name, "data": os.path.basename(sys.argv[0]) or "python",
                 "lane": lane, "backend": "keras", "plan": plan, "loss_scale": scale,
                 "optimizer": f"{type(self._optimizer()).__name__.lower()}:lr={rate:g}",
                 "command": " ".join(sys.argv)}
        numbers = {"every": self._every, "steps_planned": self._planned()}
        self._recording.observe("loss")  # Keras always has one
        self._recording.begin(texts, numbers, self._sites.layer_rows(), self._sites.order())

    def _planned(self):
        steps, epochs = (self.params or {}).get("steps"), (self.params or {}).get("epochs")
        return int(steps) * int(epochs) if steps and epochs else 0

    def _finish(self):
        self._flush()
        self._recording.end("complete")


class Eager:
    """Hands outputs of layers and gradients of weights to a callback. Instances get a function in
    front of their method; remove() takes it away."""

    def __init__(self, callback):
        self._owners = []
        inner = [each for each in callback.model._flatten_layers(include_self=False)
                 if not isinstance(each, (keras.Model, keras.layers.InputLayer))]
        for layer in inner:
            self._wrap(layer, "call", lambda original, layer=layer: self._call(
                callback, layer, original))
        self._wrap(callback.model.optimizer, "apply",
                   lambda original: self._apply(callback, original))

    def _wrap(self, owner, name, make):
        if name in vars(owner):
            return  # somebody else's
        object.__setattr__(owner, name, make(getattr(owner, name)))
        self._owners.append((owner, name))

    @staticmethod
    def _call(callback, layer, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            output = original(*args, **kwargs)
            callback._guarded(callback._on_output, layer, output)
            return output
        return call

    @staticmethod
    def _apply(callback, original):
        @functools.wraps(original)
        def apply(grads, trainable_variables=None):
            variables = trainable_variables
            if variables is None:
                variables = callback.model.trainable_variables
            callback._guarded(callback._on_gradients, grads, variables)
            return original(grads, trainable_variables)
        return apply

    def remove(self):
        for owner, name in self._owners:
            object.__delattr__(owner, name)
        self._owners.clear()


def _operator(layer):
    return OPERATORS.get(type(layer).__name__, type(layer).__name__)


def _format(layer, variable):
    """Returns the format in which a layer's product reads a weight and computes its gradient."""
    compute = format_of(layer.compute_dtype) or "fp32"
    return compute if _operator(layer) in _PRODUCTS else format_of(variable.dtype) or "fp32"


def _state_of(optimizer, attribute, variable):
    """Returns the optimizer's variable that belongs to a weight; None if there is none."""
    states = getattr(optimizer, attribute, None)
    if not isinstance(states, (list, tuple)) or not states:
        return None
    if attribute == "_momentums" and not hasattr(optimizer, "_velocities"):
        return None
    index = optimizer._get_variable_index(variable)
    return states[index] if index < len(states) else None


def _path(layer, model):
    """Returns the layer's path as Keras writes it, without the model's own name."""
    path = getattr(layer, "path", "") or layer.name
    prefix = f"{model.name}/"
    return path[len(prefix):] if path.startswith(prefix) else path


def _numpy(variable):
    value = np.asarray(keras.ops.convert_to_numpy(variable))
    if value.dtype.name not in ("float16", "float32", "float64"):
        value = value.astype(np.float32)  # bfloat16 of ml_dtypes
    return np.ascontiguousarray(value)
