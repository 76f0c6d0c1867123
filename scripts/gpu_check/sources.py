# SPDX-License-Identifier: MIT
"""Which sources are here: the commit where git knows it, and a digest where it does not."""
from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What goes into the programs; the scripts and the documentation do not.
FOLDERS = ("core", "emulation", "gpu", "analysis", "cli", "bench", "tests")
ENDINGS = (".cpp", ".h", ".cu", ".cuh", ".cmake")


def _files() -> list[Path]:
    files = [ROOT / "CMakeLists.txt"]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*")
                  if path.suffix in ENDINGS or path.name == "CMakeLists.txt"]
    return sorted((path for path in files if path.is_file()),
                  key=lambda each: each.relative_to(ROOT).as_posix())


def digest() -> str:
    """16 hex digits that change with every source that a program is built from."""
    total = hashlib.sha256()
    for path in _files():
        total.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def newest() -> float:
    """When a source was changed last."""
    return max((path.stat().st_mtime for path in _files()), default=0.0)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                              check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit() -> str:
    """As git says it, or the variable HALFSCOPE_COMMIT where git knows nothing."""
    head = _git("rev-parse", "--short", "HEAD")
    if head is None:
        return os.environ.get("HALFSCOPE_COMMIT", "unknown")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/gpu")
    return head + (" with changes" if changes else "")


def build_jobs() -> int:
    """How many compilers at a time: one per processor, but no more than memory allows, since a
    file with heavy templates takes most of a gigabyte. A container's own limit counts."""
    kib = 1 << 40
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            kib = int(line.split()[1])
    try:
        kib = min(kib, int(Path("/sys/fs/cgroup/memory.max").read_text()) // 1024)
    except (OSError, ValueError):  # no limit, or none that is a number
        pass
    return max(1, min(cpus(), kib // 900000))


def cpus() -> int:
    return len(os.sched_getaffinity(0))
