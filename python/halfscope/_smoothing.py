# SPDX-License-Identifier: MIT
"""Cross-entropy with smoothed labels: exporters to ONNX leave the smoothing out."""
import inspect

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_SIGNATURE = inspect.signature(F.cross_entropy)


class InParts(TorchFunctionMode):
    """While it is active, F.cross_entropy with label_smoothing is computed in parts that ONNX has."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not F.cross_entropy:
            return func(*args, **kwargs)
        call = _SIGNATURE.bind(*args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        plain = given["size_average"] is None and given["reduce"] is None
        if not given["label_smoothing"] or given["target"].is_floating_point() or not plain:
            return func(*args, **kwargs)
        return _smoothed(given["input"], given["target"], given["weight"], given["ignore_index"],
                         given["reduction"], given["label_smoothing"])


def _smoothed(scores, labels, weight, ignored, reduction, smoothing):
    """Returns the loss as at::cross_entropy_loss computes it: (1 - s) times the loss of the labels,
    plus s / classes times the sum of the weighted losses of all classes. Both are divided by the
    weights of the labels."""
    axis = 1 if scores.dim() > 1 else 0
    classes = scores.shape[axis]
    sharp = F.cross_entropy(scores, labels, weight, ignore_index=ignored, reduction=reduction)
    logarithms = F.log_softmax(scores, axis)
    if weight is not None:
        shape = [1] * scores.dim()
        shape[axis] = classes
        logarithms = logarithms * weight.reshape(shape)
    counted = labels != ignored
    even = torch.where(counted, -logarithms.sum(axis), 0.0)
    if reduction == "sum":
        even = even.sum()
    elif reduction == "mean":
        weights = 1.0 if weight is None else weight[torch.where(counted, labels, 0)]
        even = even.sum() / torch.where(counted, weights, 0.0).sum()
    return sharp * (1.0 - smoothing) + even * (smoothing / classes)
