# SPDX-License-Identifier: MIT
"""The packed folder: programs and their libraries, to run on a machine that has only a driver.

  bin/            halfscope, gpu_test, gpu_step_bench, gpu_layer_bench
  lib/            the shared libraries they need, but for glibc's, the driver's, cuBLASLt and cuDNN
  bench/          torch_gpu_step.py
  manifest.json   what was packed
The programs look for libraries in $ORIGIN/../lib, so the folder may be moved and be read-only.
It is packed in DIR.partial and replaces DIR when it is complete.
"""
from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import build, elf, sources
from .arguments import Arguments
from .stop import FAILED, USAGE, Stop

SCHEMA = "halfscope.gpu-pack/1"
MANIFEST = "manifest.json"
MEMBERS = {"created": str, "commit": str, "sources": str, "architecture": str, "simulated": bool,
           "compilers": str, "glibc": str, "id": str, "files": list}
RUN_PATH = "$ORIGIN/../lib"
MARKER = "packed-by-gpu-check"  # in DIR.partial, while a folder is packed
MOST_BYTES = 128 << 20
SIMULATED = {"halfscope": "halfscope_simulated", "gpu_test": "gpu_simulated_test",
             "gpu_step_bench": "gpu_step_bench_simulated",
             "gpu_layer_bench": "gpu_layer_bench_simulated"}
# Not packed, from the GPU machine: the driver, and libraries that have to match it.
DEVICE_LIBRARIES = re.compile(r"lib(cuda|nvidia-.*|cublas|cublasLt|cudnn.*|nvrtc.*)\.so(\..*)?")


def needed_libraries(program: Path) -> dict[str, Path]:
    """Returns every library that this machine's loader finds for a program, by name."""
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False,
                          env=env)
    if done.returncode:
        raise Stop(FAILED, f"ldd cannot read {program}: {done.stderr.strip()}")
    found: dict[str, Path] = {}
    for line in done.stdout.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if not arrow:
            continue
        if rest.startswith("not found"):
            raise Stop(FAILED, f"{program.name} needs {name}, which this machine does not have")
        found[name] = Path(rest.rsplit(" (", 1)[0])
    return found


def belongs_in_pack(name: str, path: Path, build_folder: Path) -> bool:
    if path.resolve().is_relative_to(build_folder.resolve()):
        return True  # libraries of the simulated device
    return not elf.GLIBC.fullmatch(name) and not DEVICE_LIBRARIES.fullmatch(name)


def _strip(path: Path, kind: str) -> None:
    done = subprocess.run(["strip", kind, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Stop(FAILED, f"strip failed for {path.name}: {done.stderr.strip()}")


def _copy(source: Path, target: Path, kind: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    _strip(target, kind)


def _set_run_path(path: Path, required: bool) -> None:
    """Checks run paths: programs must look into their lib/ folder, and libraries nowhere else."""
    known = elf.run_path(path)
    if known == ("RPATH", RUN_PATH) or (not required and known in (None, ("RPATH", "$ORIGIN"))):
        return
    if not elf.set_run_path(path, RUN_PATH):
        raise Stop(USAGE, f"{path.name} was built without a run path for packing",
                   "let --pack build it, or configure that folder with "
                   "-DCMAKE_BUILD_RPATH='$ORIGIN/../lib' "
                   "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags")


def fault_of(manifest: Any) -> str:
    """Returns what is wrong with the content of a manifest, or nothing."""
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        return "it was written by another version of gpu-check"
    for name, kind in MEMBERS.items():
        if not isinstance(manifest.get(name), kind):
            return f"'{name}' is missing or of the wrong type"
    for each in manifest["files"]:
        if not isinstance(each, dict) or not all(isinstance(each.get(name), str)
                                                 for name in ("path", "sha256")):
            return "an entry of 'files' has no path or no sha256"
    return ""


def check_target(folder: Path) -> None:
    """Refuses a folder with anything that --pack did not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise Stop(USAGE, f"'{folder}' is not a folder")
    if not any(folder.iterdir()):
        return
    hint = "name an empty or a new folder"
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = None
    if fault_of(manifest):
        raise Stop(USAGE, f"'{folder}' is not empty, and --pack did not write it", hint)
    ours = {MANIFEST, *(each["path"] for each in manifest["files"])}
    other = {each.relative_to(folder).as_posix() for each in folder.rglob("*")
             if each.is_symlink() or not each.is_dir()} - ours
    if other:
        raise Stop(USAGE, f"'{folder}' contains files that --pack did not write, such as "
                   f"'{min(other)}'", hint)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yields a new folder, which then replaces another one unless an exception ends the block."""
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.exists() and not (partial / MARKER).is_file():
        raise Stop(USAGE, f"'{partial}' is in the way, and --pack did not write it",
                   "rename it, or name another folder")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed call
    new, old = partial / "new", partial / "old"
    try:
        partial.mkdir(parents=True)
        (partial / MARKER).touch()
        new.mkdir()
        yield new
        check_target(folder)  # again: the build took a while
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
    except OSError as error:
        raise Stop(FAILED, f"cannot write '{folder}': {error}") from error
    finally:
        if (partial / MARKER).is_file():
            shutil.rmtree(partial, ignore_errors=True)


def files_of(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            content = path.read_bytes()
            found.append({"path": path.relative_to(folder).as_posix(), "bytes": len(content),
                          "sha256": hashlib.sha256(content).hexdigest()})
    return found


def identity(files: list[dict[str, Any]]) -> str:
    """Returns an id that differs for different sets of files."""
    lines = "".join(f"{each['path']} {each['sha256']}\n" for each in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _programs(built: Path, simulated: bool) -> dict[str, Path]:
    """The programs of a build folder by their names in the packed folder."""
    programs = {name: built / "bin" / (SIMULATED[name] if simulated else name)
                for name in build.PROGRAMS}
    for program in programs.values():
        if not program.is_file():
            raise Stop(USAGE, f"'{program}' not found",
                       "build it with scripts/test, or configure with -DHALFSCOPE_CUDA=TOOLKIT"
                       if simulated else "build it first")
    return programs


def pack(arguments: Arguments) -> None:
    assert arguments.pack is not None
    folder = arguments.pack.resolve()
    arch = arguments.arch or "90"
    check_target(folder)
    if arguments.build is not None:
        built = arguments.build
        if not (built / "bin").is_dir():
            raise Stop(USAGE, f"'{built}' is not a build folder: {built / 'bin'} not found")
        if build.cache_entry(built, "HALFSCOPE_CUDA") == "CHECK" and not arguments.simulated:
            raise Stop(USAGE, f"the GPU code in '{built}' is slow, as HALFSCOPE_CUDA=CHECK compiles it",
                       "configure with -DHALFSCOPE_CUDA=ON and build again, or leave out --build")
        arch = build.cache_entry(built, "CMAKE_CUDA_ARCHITECTURES") or arch
    else:
        built = sources.ROOT / f"build-pack-{arch}"
        build.build(built, f"{arch}-real")
    programs = _programs(built, arguments.simulated)
    if arguments.build is not None:
        for program in programs.values():
            if program.stat().st_mtime < sources.newest():
                print(f"note: sources have changed since {program.name} was built")
    with replacing(folder) as new:
        _fill(new, programs, built)
        _finish(new, built, arch, arguments.simulated)
    print(f"packed {folder}: run scripts/gpu-check --binaries {folder} on the GPU machine")


def _fill(folder: Path, programs: dict[str, Path], built: Path) -> None:
    for each in ("bin", "lib", "bench"):
        (folder / each).mkdir()
    libraries: dict[str, Path] = {}
    for name, program in programs.items():
        needed = needed_libraries(program)
        libraries |= {each: path for each, path in needed.items()
                      if belongs_in_pack(each, path, built)}
        _copy(program, folder / "bin" / name, "--strip-all")
        _set_run_path(folder / "bin" / name, True)
    for name, path in sorted(libraries.items()):
        _copy(path, folder / "lib" / name, "--strip-unneeded")
        _set_run_path(folder / "lib" / name, False)
    shutil.copyfile(sources.ROOT / "bench" / "torch_gpu_step.py",
                    folder / "bench" / "torch_gpu_step.py")


def _finish(folder: Path, built: Path, arch: str, simulated: bool) -> None:
    files = files_of(folder)
    glibc = max(elf.glibc_needed(folder / each["path"]) for each in files
                if each["path"].startswith(("bin/", "lib/")))
    manifest = {
        "schema": SCHEMA, "created": datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="seconds"),
        "commit": sources.commit(), "sources": sources.digest(), "architecture": arch,
        "simulated": simulated, "compilers": build.compilers(built),
        "glibc": ".".join(map(str, glibc)), "id": identity(files), "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    total = sum(each["bytes"] for each in files)
    for each in files:
        print(f"{each['bytes'] / (1 << 20):8.2f} MiB  {each['path']}")
    print(f"{total / (1 << 20):8.2f} MiB  in all; needs glibc {manifest['glibc']} or newer")
    if total > MOST_BYTES and not simulated:  # programs for tests are not sent anywhere
        raise Stop(FAILED, f"the folder is larger than {MOST_BYTES >> 20} MiB")
