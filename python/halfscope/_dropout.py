# SPDX-License-Identifier: MIT
"""Dropout that keeps everything, wherever a model calls it."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Off(TorchDispatchMode):
    """While it is active, dropout passes its input through, bit for bit, and is counted.

    On the CPU, dropout is x * (mask / (1 - p)), and the mask is drawn with the mean 1 - p. Here the
    mask is that mean, so the factor is exactly 1.
    """

    def __init__(self):
        super().__init__()
        self.draws = 0  #: how often dropout ran

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.bernoulli_.float:
            self.draws += 1
            mean = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            return args[0].fill_(mean)
        return func(*args, **kwargs)
