# SPDX-License-Identifier: MIT
"""The terminal. A check continues after the terminal is closed, because the report matters."""
from __future__ import annotations

import os
import sys


def say(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
