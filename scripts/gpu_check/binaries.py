# SPDX-License-Identifier: MIT
"""The programs that stages start: from a packed folder, or built on this machine."""
from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import build, pack, sources
from .stop import FAILED, USAGE, Stop

BUILD = sources.ROOT / "build-gpu"
STAMP = "gpu-check-built.json"  # next to the programs that were built here


@dataclass
class Binaries:
    bin: Path
    torch_script: Path
    info: dict[str, Any]  # for the report; the same in each call with the same programs
    simulated: bool = False
    notes: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def program(self, name: str) -> Path:
        return self.bin / name


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(".") if each.isdigit())


def glibc_here() -> str:
    """Returns the version of this machine's glibc, or "" for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return ""
    return version if name == "glibc" else ""


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a packed folder after checking that its files are unchanged."""
    path = folder / pack.MANIFEST
    hint = "make one with scripts/gpu-check --pack DIR"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Stop(USAGE, f"'{folder}' is not a packed folder: {pack.MANIFEST} not found",
                   hint) from None
    except (OSError, ValueError) as error:
        raise Stop(USAGE, f"cannot read '{path}': {error}", hint) from error
    fault = pack.fault_of(manifest)
    if fault:
        raise Stop(USAGE, f"cannot use '{path}': {fault}", hint)
    assert isinstance(manifest, dict)
    for each in manifest["files"]:
        file = folder / each["path"]
        if not file.is_file():
            raise Stop(USAGE, f"the packed folder is not complete: {each['path']} not found",
                       "copy the whole folder again")
        if hashlib.sha256(file.read_bytes()).hexdigest() != each["sha256"]:
            raise Stop(USAGE, f"the packed folder is damaged: {each['path']} has changed",
                       "copy or pack it again")
    if not os.access(folder / "bin" / "halfscope", os.X_OK):
        raise Stop(USAGE, f"'{folder / 'bin' / 'halfscope'}' cannot be run: it is not executable",
                   f"chmod +x {folder}/bin/*, or copy it to a disk that allows programs")
    return manifest


def from_pack(folder: Path) -> Binaries:
    folder = folder.absolute()
    manifest = read_manifest(folder)
    notes = []
    here, needed = glibc_here(), manifest["glibc"]
    if not here:
        notes.append("this machine does not use glibc: the packed programs may not start")
    elif _version(here) < _version(needed):
        notes.append(f"this machine has glibc {here}, but the packed programs need {needed}: they "
                     "may not start. Pack them on an older system, or build here")
    own = sources.digest()
    if own != manifest["sources"]:
        notes.append(f"the programs were packed from other sources ({manifest['sources']}, commit "
                     f"{manifest['commit']}) than this checkout has ({own})")
    info = {"commit": manifest["commit"], "sources": manifest["sources"],
            "architecture": manifest["architecture"], "id": manifest["id"],
            "built": f"packed {manifest['created']} with {manifest['compilers']}"}
    return Binaries(folder / "bin", folder / "bench" / "torch_gpu_step.py", info,
                    bool(manifest["simulated"]), notes)


def from_build(arch: str) -> Binaries:
    """Returns the programs, built now unless they are up to date for this architecture."""
    digest, wanted = sources.digest(), arch or "native"
    stamp = BUILD / STAMP
    try:
        info = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        info = {}
    if not isinstance(info, dict):
        info = {}
    programs = all((BUILD / "bin" / name).is_file() for name in build.PROGRAMS)
    if info.get("sources") != digest or info.get("architecture") != wanted or not programs:
        print(f"building in {BUILD}", flush=True)
        stamp.unlink(missing_ok=True)
        build.build(BUILD, wanted)
        info = {"commit": sources.commit(), "sources": digest, "architecture": wanted,
                "built": f"built on this machine with {build.compilers(BUILD)}"}
        stamp.write_text(json.dumps(info) + "\n", encoding="utf-8")
    return Binaries(BUILD / "bin", sources.ROOT / "bench" / "torch_gpu_step.py", info)


def missing_programs(binaries: Binaries) -> None:
    for name in build.PROGRAMS:
        if not os.access(binaries.program(name), os.X_OK):
            raise Stop(FAILED, f"'{binaries.program(name)}' not found, or not executable")
