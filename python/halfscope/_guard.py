# SPDX-License-Identifier: MIT
"""Keeps faults of a recording away from the training."""
import warnings


class Guarded:
    """Base of recordings. Subclasses have `_closed`, and `_fail(fault)` ends the recording."""

    def _guarded(self, work, *args):
        """Calls work(*args) while the recording is open. A fault in it ends the recording."""
        if self._closed:
            return
        try:
            work(*args)
        except Exception as fault:
            self._fail(fault)


def warn_stopped(step, fault, file):
    """Warns that a fault ended the recording in this step."""
    warnings.warn(f"halfscope: recording stopped at step {step}: {type(fault).__name__}: {fault}. "
                  f"The training goes on; '{file}' has the steps before.", stacklevel=3)
