# SPDX-License-Identifier: MIT
"""Identifies the sources: by commit if git knows it, and by a digest."""
from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Sources of the programs, without scripts and documentation.
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
    """Returns 16 hex digits that change with every source of the programs."""
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
    """Returns the commit from git, or the variable HALFSCOPE_COMMIT if git has none."""
    head = _git("rev-parse", "--short", "HEAD")
    if head is None:
        return os.environ.get("HALFSCOPE_COMMIT", "unknown")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/gpu")
    return head + (" with changes" if changes else "")


def build_jobs() -> int:
    """Returns the number of parallel compilers: one per processor, but no more than memory allows,
    because a file with heavy templates takes almost a gigabyte. Respects a container's limit."""
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
