# SPDX-License-Identifier: MIT
"""Functions that exporters to ONNX do not know in every form: they leave the smoothing of labels out
of a cross-entropy, and refuse attention without an axis of heads and products of groups of rows
(mixtures of experts)."""
import contextlib
import inspect

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_SIGNATURE = inspect.signature(F.cross_entropy)
_SORTS = (torch.sort, torch.Tensor.sort, torch.argsort, torch.Tensor.argsort)


def is_grouped_product(func):
    """Returns whether a function multiplies each group of rows by its own matrix. Hugging Face's
    transformers call another one in an export."""
    name = getattr(func, "__name__", "")
    return name in ("grouped_mm", "_grouped_mm", "grouped_mm_fallback")


@contextlib.contextmanager
def explicit_masks():
    """While it is active, nn.Transformer and its parts do not read a mask to find out whether it is
    causal. Exporters do not know the mask's values. The results are the same."""
    module = nn.modules.transformer
    kept = module._detect_is_causal_mask
    module._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        module._detect_is_causal_mask = kept


class Exportable(TorchFunctionMode):
    """While it is active, these functions are computed in forms that exporters have."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func in _SORTS:
            kwargs.pop("stable", None)  # ONNX always keeps the order of equal elements
            return func(*args, **kwargs)
        if is_grouped_product(func):
            return _grouped_product(func, *args, **kwargs)
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


def _attention(query, key, value, attn_mask=None, *rest, **more):
    """Returns attention of tensors of four axes, also if there is no axis of heads or of samples."""
    missing = 0
    if query.dim() == key.dim() == value.dim():
        missing = max(0, 4 - query.dim())
    for _ in range(missing):
        query, key, value = (each.unsqueeze(-3) for each in (query, key, value))
        if attn_mask is not None and attn_mask.dim() > 2:
            attn_mask = attn_mask.unsqueeze(-3)
    result = F.scaled_dot_product_attention(query, key, value, attn_mask, *rest, **more)
    if result.is_contiguous():
        # The exporter decomposes attention to another layout, for which it must keep this one.
        result = result.clone(memory_format=torch.contiguous_format)
    for _ in range(missing):
        result = result.squeeze(-3)
    return result


def _grouped_product(func, rows, matrices, offs=None, *rest, **more):
    """Returns the rows of each group times its matrix. offs: where each group ends.

    Each matrix gets all rows, with zeros in place of other groups, which change no sum.
    """
    if rows.dim() != 2 or matrices.dim() != 3 or offs is None or rest or \
            any(each is not None for each in more.values()):
        return func(rows, matrices, *rest, offs=offs, **more)
    group = (torch.arange(rows.shape[0], device=rows.device)[:, None] >= offs).sum(1)
    parts = [rows.masked_fill((group != each)[:, None], 0.0) @ matrices[each]
             for each in range(matrices.shape[0])]
    return sum(parts[1:], parts[0])
