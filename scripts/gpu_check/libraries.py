# SPDX-License-Identifier: MIT
"""Finds cuBLASLt, cuDNN, their headers and the tools of the CUDA toolkit on a GPU machine."""
from __future__ import annotations

import glob
import os
import shutil
import sys
from pathlib import Path

TOOL_PLACES = {
    "ncu": ("/opt/nvidia/nsight-compute/*", "/usr/local/cuda*/nsight-compute*",
            "/usr/local/cuda*/NsightCompute*"),
    "compute-sanitizer": ("/usr/local/cuda*/compute-sanitizer",),
}


def python_folders(kind: str) -> list[Path]:
    """Returns the folders `lib` or `include` of this Python's NVIDIA packages."""
    return [Path(folder) for place in sys.path if place
            for folder in sorted(glob.glob(f"{glob.escape(place)}/nvidia/*/{kind}"))]


def toolkit_folders() -> list[Path]:
    """CUDA toolkits of this machine, the one of nvcc on PATH first."""
    found: list[Path] = []
    nvcc = shutil.which("nvcc")
    for each in [nvcc, os.path.realpath(nvcc)] if nvcc else []:
        found.append(Path(each).parent.parent)
    found += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found += [Path(each) for each in sorted(glob.glob("/usr/local/cuda*"), reverse=True)]
    return list(dict.fromkeys(found))


def find_library(name: str) -> Path | None:
    """Returns the folder of a library, such as libcudnn.so.9, that the loader does not find."""
    folders = python_folders("lib")
    for toolkit in toolkit_folders():
        folders += [toolkit / "lib64", *sorted(toolkit.glob("targets/*/lib"))]
    return next((folder for folder in folders if list(folder.glob(f"{name}*"))), None)


def find_header(name: str) -> Path | None:
    """The folder of a header that only Python packages have; None if a compiler finds it."""
    system = [Path("/usr/include"), *Path("/usr/include").glob("*-linux-gnu")]
    for toolkit in toolkit_folders():
        system += [toolkit / "include", *toolkit.glob("targets/*/include")]
    if any((folder / name).exists() for folder in system):
        return None
    return next((each for each in python_folders("include") if (each / name).exists()), None)


def find_tool(name: str) -> str | None:
    """The path of ncu or compute-sanitizer: on PATH, in a toolkit, or where it is installed."""
    found = shutil.which(name)
    if found:
        return found
    folders = [str(each / "bin") for each in toolkit_folders()]
    for place in TOOL_PLACES.get(name, ()):
        folders += sorted(glob.glob(place), reverse=True)
    return next((f"{each}/{name}" for each in folders if os.access(f"{each}/{name}", os.X_OK)),
                None)
