# SPDX-License-Identifier: MIT
"""The error that ends a call: a message, what to do about it, and the exit code."""
from __future__ import annotations

FAILED, USAGE, NO_GPU = 1, 2, 3


class Stop(Exception):
    def __init__(self, code: int, what: str, hint: str = "") -> None:
        super().__init__(what + (f"\nhint: {hint}" if hint else ""))
        self.code = code
