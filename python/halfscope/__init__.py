# SPDX-License-Identifier: MIT
"""Records a PyTorch or Keras training into a HalfScope run file, and reads run files.

    import halfscope as hs
    hs.watch(model, optimizer, out="run.hscope", every=50)

Then `halfscope report run.hscope` or `halfscope view run.hscope`, also while the training runs.
"""
from halfscope._core import Error, __version__
from halfscope._numbers import Stats, round, stats
from halfscope._run import Run, open

__all__ = ["Error", "KerasCallback", "Run", "Stats", "Watch", "open", "round", "save_twin",
           "stats", "watch", "__version__"]


def __getattr__(name):
    # torch and keras are imported only by those who use them.
    if name in ("watch", "Watch"):
        from halfscope import _watch
        return getattr(_watch, name)
    if name == "save_twin":
        from halfscope.twin import save_twin
        return save_twin
    if name == "KerasCallback":
        from halfscope.keras import KerasCallback
        return KerasCallback
    raise AttributeError(f"module 'halfscope' has no attribute '{name}'")
