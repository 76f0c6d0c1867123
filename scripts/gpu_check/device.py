# SPDX-License-Identifier: MIT
"""The GPU of this machine, as `halfscope doctor` describes it."""
from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .binaries import Binaries
from .libraries import find_library
from .processes import Deadline, Job, Outcome, OutputLog, run
from .stop import FAILED, NO_GPU, Stop

DOCTOR_SECONDS = 60.0


@dataclass
class Device:
    name: str
    capability: str
    text: str  # what doctor prints
    libraries: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # library: why it is not used


def is_visible() -> bool:
    """Returns whether the system has an NVIDIA GPU; called before anything is built for it."""
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        return done.stdout.startswith("GPU ") or "\nGPU " in done.stdout
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def architectures() -> str:
    """Returns the architectures to build for, from nvidia-smi's compute capabilities. Without an
    answer, returns CMake's `native`, which does not notice when the GPU changes later."""
    if not shutil.which("nvidia-smi"):
        return "native"
    done = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
                          capture_output=True, text=True, check=False)
    found = [line.strip() for line in done.stdout.splitlines()]
    if done.returncode or not found or not all(re.fullmatch(r"[0-9]+\.[0-9]", each)
                                               for each in found):
        return "native"
    return ";".join(f"{each.replace('.', '')}-real" for each in dict.fromkeys(found))


def _doctor(binaries: Binaries, *arguments: str, env: dict[str, str] | None = None) -> Outcome:
    job = Job("doctor", [str(binaries.program("halfscope")), "doctor", *arguments],
              timeout=DOCTOR_SECONDS, env={**binaries.env, **(env or {})})
    return run(job, Deadline(DOCTOR_SECONDS + 10.0), OutputLog())


def _gpu(binaries: Binaries) -> dict[str, Any]:
    """The member `gpu` of `doctor --json`."""
    outcome = _doctor(binaries, "--json")
    if not outcome.ok:
        text = (outcome.err or outcome.out).strip() or outcome.what()
        raise Stop(FAILED, f"halfscope does not run on this machine: {text}",
                   "; ".join(binaries.notes))
    try:
        gpu = json.loads(outcome.out)["gpu"]
        assert isinstance(gpu, dict)
    except (ValueError, KeyError, TypeError, AssertionError):
        raise Stop(FAILED, "halfscope doctor --json did not print JSON: "
                   f"{outcome.out[:200]}") from None
    return gpu


def _text_and_libraries(binaries: Binaries) -> tuple[str, list[Path]]:
    """Returns doctor's output, and every library that the loader opens for it, also by name."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = _doctor(binaries, env={"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": f"{folder}/ld"})
        traces = "".join(path.read_text(encoding="utf-8", errors="replace")
                         for path in sorted(Path(folder).iterdir()))
    loaded = dict.fromkeys(re.findall(r"calling init: (\S+)", traces))
    return outcome.out, [Path(each) for each in loaded]


def examine(binaries: Binaries) -> Device:
    """Puts cuBLASLt, cuDNN and NCCL on the library path if the loader does not find them."""
    gpu = _gpu(binaries)
    major = str(gpu.get("toolkit") or "").split(".")[0]
    names = {"cublas_lt": ("cuBLASLt", f"libcublasLt.so{'.' + major if major else ''}"),
             "cudnn": ("cuDNN", "libcudnn.so.9"), "nccl": ("NCCL", "libnccl.so.2")}
    for key, (_, library) in names.items():
        folder = find_library(library) if not gpu.get(key) else None
        if folder is not None:
            binaries.env["LD_LIBRARY_PATH"] = ":".join(
                each for each in (str(folder), binaries.env.get("LD_LIBRARY_PATH")
                                  or os.environ.get("LD_LIBRARY_PATH", "")) if each)
    if binaries.env:
        gpu = _gpu(binaries)
    text, loaded = _text_and_libraries(binaries)
    devices = gpu.get("devices") or []
    if gpu.get("state") != "ready" or not devices:
        about = " ".join(line.strip() for line in text.partition("\nGPU\n")[2].splitlines())
        raise Stop(NO_GPU, f"no usable GPU, so nothing was checked: {about}")
    device = Device(devices[0]["name"], devices[0]["compute_capability"], text)
    for key, (label, library) in names.items():
        place = next((str(path) for path in loaded if path.name.startswith(library)), "")
        if gpu.get(key):
            device.libraries.append(f"{label} {gpu[key]} from {place or 'an unknown place'}")
        else:
            device.missing[label] = f"{library} was not found"
    driver = [str(path) for path in loaded if path.name.startswith("libcuda.so")]
    device.libraries += [f"driver from {each}" for each in driver]
    return device


def mismatch(device: Device, architecture: str) -> str:
    """Returns why programs for these architectures cannot run on the device, or nothing."""
    have = device.capability.partition(".")
    if not (have[0].isdigit() and have[2].isdigit()):
        return ""
    major, minor = int(have[0]), int(have[2])
    known = re.findall(r"([0-9]+)([0-9])([af]?)(-real|-virtual)?(?:;|,| |$)", architecture)
    for its_major, its_minor, special, kind in known:
        same = int(its_major) == major and int(its_minor) <= minor
        exact = same and int(its_minor) == minor
        newer = (major, minor) >= (int(its_major), int(its_minor))
        if exact or (not special and (same or (kind != "-real" and newer))):
            return ""
    if not known:  # "native" and the like
        return ""
    return (f"the programs were built for compute capability {architecture}, but {device.name} "
            f"has {device.capability}: their kernels will not start")
