# SPDX-License-Identifier: MIT
"""Functions of PyTorch that a model calls, by module."""
from torch.overrides import TorchFunctionMode


class Inside(TorchFunctionMode):
    """Knows in which module of a model each call is made."""

    def __init__(self, model):
        super().__init__()
        self._inside = [""]
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, name=name: self._inside.append(name))
            module.register_forward_hook(lambda *_: self._leave(), always_call=True)

    @property
    def module(self):
        """The path of the module that runs; "" for the model itself."""
        return self._inside[-1]

    def _leave(self):
        self._inside.pop()
