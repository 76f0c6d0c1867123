# SPDX-License-Identifier: MIT
"""Hooks of modules that copies of a module do not take along."""
import contextlib


class Hook:
    """Calls a function. A deep copy of the module, such as an average of its weights, has a function
    that does nothing in its place. So has a pickled module; its function is in Python's library."""

    def __init__(self, function):
        self._function = function

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    def __deepcopy__(self, memo):
        return contextlib.nullcontext().__exit__

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")
