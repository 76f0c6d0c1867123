# SPDX-License-Identifier: MIT
"""The terminal. A check goes on when nobody reads it any more: the report is what counts."""
from __future__ import annotations

import os
import sys


def say(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
