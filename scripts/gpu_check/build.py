# SPDX-License-Identifier: MIT
"""CMake builds for a GPU machine, for packing here or as the fallback there."""
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .libraries import find_header
from .sources import ROOT, build_jobs
from .stop import FAILED, Stop

PROGRAMS = ("halfscope", "gpu_test", "gpu_step_bench", "gpu_layer_bench")
HEADERS = {"CUBLASLT": "cublasLt.h", "CUDNN": "cudnn_version.h", "NCCL": "nccl.h"}
OPTIONAL = {"NCCL"}


def configure_arguments(folder: Path, arch: str) -> list[str]:
    arguments = ["-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release",
                 "-DHALFSCOPE_CUDA=ON", "-DHALFSCOPE_GUI=OFF", "-DHALFSCOPE_BENCH=ON",
                 "-DHALFSCOPE_TESTS=ON",
                 # Another compiler may warn about other things, and an earlier configuration
                 # of this folder may have left flags.
                 "-DHALFSCOPE_WERROR=OFF", "-DCMAKE_CUDA_FLAGS=",
                 f"-DCMAKE_CUDA_ARCHITECTURES={arch}",
                 # Four programs that share our libraries: half the size.
                 "-DHALFSCOPE_SHARED=ON",
                 # An RPATH, not a RUNPATH: the loader also uses it for dependencies of libraries.
                 "-DCMAKE_BUILD_RPATH=$ORIGIN/../lib",
                 "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags"]
    for name, header in HEADERS.items():
        include = find_header(header)
        if include is not None:
            arguments.append(f"-DHALFSCOPE_{name}_INCLUDE={include}")
    if shutil.which("ninja"):
        arguments += ["-G", "Ninja"]
    return arguments


def cache_entry(folder: Path, name: str) -> str:
    """Returns a value of CMakeCache.txt, or nothing."""
    try:
        text = (folder / "CMakeCache.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return next((line.partition("=")[2] for line in text.splitlines()
                 if line.startswith(f"{name}:")), "")


def first_line(*command: str) -> str:
    """Returns the first line of a program's output, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (done.stdout.splitlines() or [""])[0]


def compilers(folder: Path) -> str:
    """Describes the compilers of a build folder in words."""
    nvcc = cache_entry(folder, "CMAKE_CUDA_COMPILER") or "nvcc"
    cxx = cache_entry(folder, "CMAKE_CXX_COMPILER") or "c++"
    release = ""
    try:
        done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
        release = next((line.split("release ")[1].split(",")[0] for line in
                        done.stdout.splitlines() if "release " in line), "")
    except OSError:
        pass
    return ", ".join(each for each in (first_line(cxx, "--version"),
                                       f"nvcc {release}" if release else "") if each)


def build(folder: Path, arch: str) -> None:
    """Configures and builds the four programs; passes on CMake's output."""
    hint = ("scripts/deps installs what a build needs. Where nothing can be installed, build on "
            "another machine with scripts/gpu-check --pack DIR and use --binaries DIR here")
    try:
        if subprocess.run(["cmake", *configure_arguments(folder, arch)], check=False).returncode:
            raise Stop(FAILED, "cmake could not configure the build: see above", hint)
    except OSError as error:
        raise Stop(FAILED, f"cannot start cmake: {error.strerror}", hint) from error
    for name, header in HEADERS.items():
        if name in OPTIONAL:
            continue
        if not cache_entry(folder, f"HALFSCOPE_{name}_INCLUDE").startswith("/"):
            raise Stop(FAILED, f"{header} was not found, so the programs would not use its library",
                       f"install its headers, or set -DHALFSCOPE_{name}_INCLUDE in {folder}")
    done = subprocess.run(["cmake", "--build", str(folder), "--parallel", str(build_jobs()),
                           "--target", *PROGRAMS], check=False)
    if done.returncode:
        raise Stop(FAILED, "the build failed: see above")
