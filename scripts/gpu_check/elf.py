# SPDX-License-Identifier: MIT
"""ELF files for packing: reads their dependencies and changes their run path."""
from __future__ import annotations

import re
import struct
from pathlib import Path

# Matches the shared libraries and programs of glibc, which every system has.
GLIBC = re.compile(r"(ld-linux.*|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl|nsl|thread_db|"
                   r"BrokenLocale|nss_.*))\.so(\..*)?")
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_STRTAB, DT_RPATH, DT_RUNPATH = 0, 5, 15, 29


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6) == b"\x7fELF\x02\x01"  # 64 bits, little endian


def glibc_needed(path: Path) -> tuple[int, int]:
    """Returns the newest glibc version among the symbols that the file needs."""
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes())
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))


def _dynamic(data: bytes | bytearray) -> tuple[list[tuple[int, int, int]], int]:
    """(place in the file, tag, value) of all dynamic entries, and where their strings begin."""
    start, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(count)]
    entries: list[tuple[int, int, int]] = []
    for kind, _, offset, _, _, length in segments:
        for place in range(offset, offset + length, 16) if kind == PT_DYNAMIC else ():
            tag, value = struct.unpack_from("<qQ", data, place)
            if tag == DT_NULL:
                break
            entries.append((place, tag, value))
    strings = next((value for _, tag, value in entries if tag == DT_STRTAB), 0)
    for kind, _, offset, address, _, length in segments:
        if kind == PT_LOAD and address <= strings < address + length:
            return entries, strings - address + offset
    return entries, strings


def run_path(path: Path) -> tuple[str, str] | None:
    """("RPATH" or "RUNPATH", the folders), or None if the file names none."""
    data = path.read_bytes()
    entries, strings = _dynamic(data)
    for _, tag, value in entries:
        if tag in (DT_RPATH, DT_RUNPATH):
            begin = strings + value
            text = data[begin:data.index(b"\0", begin)].decode()
            return "RPATH" if tag == DT_RPATH else "RUNPATH", text
    return None


def set_run_path(path: Path, folders: str) -> bool:
    """Replaces the file's run path by `folders` and makes it an RPATH, which the loader also uses
    for the dependencies of libraries. Returns False if the file has no run path or too short a
    one."""
    data = bytearray(path.read_bytes())
    entries, strings = _dynamic(data)
    for place, tag, value in entries:
        if tag not in (DT_RPATH, DT_RUNPATH):
            continue
        begin = strings + value
        text = folders.encode() + b"\0"
        if len(text) > data.index(b"\0", begin) + 1 - begin:
            return False
        data[begin:begin + len(text)] = text
        struct.pack_into("<q", data, place, DT_RPATH)
        path.write_bytes(data)
        return True
    return False
