# SPDX-License-Identifier: MIT
"""Losses and batches of a twin, in the words of `halfscope train`."""
import copy
import inspect

import torch
from torch import nn
from torch.nn import functional as F

from halfscope._core import Error

KNOWN = ("nn.CrossEntropyLoss, nn.NLLLoss, nn.MSELoss and nn.BCEWithLogitsLoss with any weight, "
         "pos_weight, ignore_index and label_smoothing, or None if the model returns the loss")
_OWN = "own"
_IGNORED = -100  # of nn.CrossEntropyLoss, and of `halfscope train`
_KINDS = {nn.CrossEntropyLoss: "cross-entropy", nn.NLLLoss: "nll", nn.MSELoss: "mse",
          nn.BCEWithLogitsLoss: "bce"}
_FUNCTIONS = {F.cross_entropy: "cross-entropy", F.nll_loss: "nll", F.mse_loss: "mse",
              F.binary_cross_entropy_with_logits: "bce"}
_OF_CLASSES = ("cross-entropy", "nll")


def kind_of(loss_fn):
    """Returns "cross-entropy", "nll", "mse", "bce" or "own"; raises Error for other losses."""
    if loss_fn is None:
        return _OWN
    if not isinstance(loss_fn, nn.Module):
        kind = _FUNCTIONS.get(loss_fn) if callable(loss_fn) else None
        if kind is None:
            raise Error(f"loss {getattr(loss_fn, '__name__', loss_fn)} is not supported. "
                        f"Supported: {KNOWN}")
        return kind
    kind = _KINDS.get(type(loss_fn))
    if kind is None:
        raise Error(f"loss {type(loss_fn).__name__} is not supported. Supported: {KNOWN}")
    if loss_fn.reduction not in ("mean", "sum"):
        raise Error(f"{type(loss_fn).__name__} with reduction={loss_fn.reduction!r} is not a loss. "
                    "Let the model return the loss, and pass loss_fn=None")
    return kind


def is_in_graph(loss, loss_fn):
    """Returns whether the exported network computes the loss itself.

    It does where `halfscope train` has no such loss, for example one with weights or a sum.
    """
    weights = [getattr(loss_fn, name, None) for name in ("weight", "pos_weight")]
    return (loss in (_OWN, "bce", "nll") or any(each is not None for each in weights) or
            getattr(loss_fn, "reduction", "mean") != "mean")


def options_of(loss_fn, batch):
    """Returns what follows "cross-entropy" in the words of `halfscope train`."""
    smoothing = getattr(loss_fn, "label_smoothing", 0.0)
    ignored = getattr(loss_fn, "ignore_index", _IGNORED)
    # PyTorch's classes are dimension 1, and an output that is a softmax is scores like any other.
    return (",logits" + (",axis=1" if batch.targets.dim() > 1 else "") +
            (f",smoothing={smoothing!r}" if smoothing else "") +
            (f",ignore={ignored}" if ignored != _IGNORED else ""))


class Batch:
    """Arguments of the model and the targets of a batch, on the CPU in fp32."""

    def __init__(self, batch, loss):
        targets = None
        if loss != _OWN:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise Error("a batch is not a pair (x, y)")
            batch, targets = batch
        self.args = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        self.kwargs = {}
        if isinstance(batch, dict):
            self.args, self.kwargs = (), dict(batch)
        self.args = tuple(_plain(each) for each in self.args)
        self.kwargs = {key: _plain(each) for key, each in self.kwargs.items()}
        self.targets = None if targets is None else _plain(targets)
        if not self.tensors():
            raise Error("a batch has no inputs")
        self.size = self.tensors()[0].shape[0]

    def tensors(self):
        """Returns the arguments in order; targets come last."""
        more = [] if self.targets is None else [self.targets]
        return [*self.args, *self.kwargs.values(), *more]

    def shapes(self):
        """Returns the shapes and types, to compare batches."""
        return [(tuple(each.shape), str(each.dtype)) for each in self.tensors()]


def line_of(fault):
    """Returns the first line of an exception that says something."""
    text = str(getattr(fault, "__cause__", None) or fault) or type(fault).__name__
    return next((line.strip() for line in text.splitlines() if line.strip()), text)[:300]


def _plain(value):
    if not isinstance(value, torch.Tensor):
        raise Error(f"a batch contains a {type(value).__name__}. Pass tensors only")
    value = value.detach().to("cpu", copy=True)
    if value.is_complex() or value.dtype == torch.bool or value.dim() == 0:
        raise Error(f"a batch contains a tensor of type {value.dtype} and {value.dim()} "
                    "dimensions. Pass real or whole numbers, with samples in the first dimension")
    return (value.float() if value.is_floating_point() else value.long()).contiguous()


class Wrapped:
    """What the exporter and the training call, and the names of its inputs."""

    def __init__(self, model, loss, loss_fn, in_graph, arrays, options):
        self.model, self.kind, self.loss_fn, self.in_graph = model, loss, loss_fn, in_graph
        self.arrays = arrays  # names of a batch's tensors
        self.names = arrays if in_graph else arrays[:-1]
        self.outputs = ["loss" if in_graph else "output"]
        self.loss = "loss" if in_graph else loss + options

    def loss_of(self, batch, model=None):
        """Returns the loss of a batch, by the model or a copy of it."""
        try:
            result = (model or self.model)(*self.arguments(batch))
            return result if self.in_graph else self.loss_fn(result, batch.targets)
        except Error:
            raise
        except Exception as fault:
            raise Error(f"the loss of a batch of shapes {batch.shapes()} cannot be computed: "
                        f"{line_of(fault)}. Check the batches, and that the model runs in fp32 on "
                        "the CPU") from fault

    def arguments(self, batch):
        """Returns the inputs of the exported network."""
        inputs = [*batch.args, *batch.kwargs.values()]
        return (*inputs, batch.targets) if self.in_graph and self.kind != _OWN else tuple(inputs)


def attach(model, loss, loss_fn, batch):
    """Makes the model take tensors by position and, where HalfScope does not know the loss, return
    it. Its modules keep their paths, because the class changes and not the tree."""
    cls, keys, count = type(model), list(batch.kwargs), len(batch.args)
    in_graph = is_in_graph(loss, loss_fn)
    if isinstance(loss_fn, nn.Module):  # its weights may be on a device
        loss_fn = copy.deepcopy(loss_fn).to("cpu", torch.float32)

    def forward(self, *inputs):
        kwargs = dict(zip(keys, inputs[count:]))
        result = cls.forward(self, *inputs[:count], **kwargs)
        if loss == _OWN:
            return scalar_of(result)
        if not isinstance(result, torch.Tensor):
            raise Error(f"the model returns a {type(result).__name__}, and the loss needs a "
                        "tensor. Let the model return the loss, and pass loss_fn=None")
        return loss_fn(result, inputs[-1]) if in_graph else result

    arrays = _names(cls, batch, in_graph)
    model.__class__ = type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__})
    options = ""
    if loss in _OF_CLASSES:
        if batch.targets.is_floating_point():
            raise Error(f"{loss} has targets of type {batch.targets.dtype}, which are "
                        "probabilities and not classes. Let the model return the loss, and pass "
                        "loss_fn=None")
        ignored = getattr(loss_fn, "ignore_index", _IGNORED)
        if (batch.targets[batch.targets != ignored] < 0).any():
            raise Error("targets contain negative classes. Let the model return the loss, and pass "
                        "loss_fn=None")
    if loss == "cross-entropy":
        options = options_of(loss_fn, batch)
    return Wrapped(model, loss, loss_fn, in_graph, arrays, options)


def scalar_of(result):
    """Returns the loss in what a model returned: the tensor, entry or attribute "loss", or the
    first element of a tuple."""
    if isinstance(result, dict) and "loss" in result:
        result = result["loss"]
    elif not isinstance(result, torch.Tensor) and hasattr(result, "loss"):
        result = result.loss
    elif isinstance(result, (tuple, list)) and result:
        result = result[0]
    if isinstance(result, torch.Tensor) and result.is_floating_point() and result.numel() == 1:
        return result
    raise Error("the model does not return a loss: a scalar tensor, a tuple that starts with it, "
                "or an entry 'loss'. Pass the loss as loss_fn")


def _names(cls, batch, in_graph):
    """Returns a name for each array, those of forward's arguments where they have one."""
    parameters = [each for each in inspect.signature(cls.forward).parameters.values()][1:]
    plain = [each.name for each in parameters
             if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    names = [plain[i] if i < len(plain) else f"input_{i}" for i in range(len(batch.args))]
    names += list(batch.kwargs)
    # HalfScope's losses add inputs with these names.
    if not in_graph:
        names = [f"input_{each}" if each in ("labels", "targets", "y") else each for each in names]
    if batch.targets is not None:
        own = "targets" if batch.targets.is_floating_point() else "labels"
        while own in names:
            own = f"loss_{own}"
        names.append(own)
    return names
