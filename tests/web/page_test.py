#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens the lab page in headless Chromium and checks what it shows.

usage: page_test.py LAB.HTML [FOLDER]   writes pictures of the tabs to FOLDER
"""

import html
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

# Fragment of the address, title of the page, name of the picture.
PAGES = [
    ("", "fp16 0.1 = 0.0999755859375 - HalfScope float lab", "bits"),
    ("fp16%200.1", "fp16 0.1 = 0.0999755859375 - HalfScope float lab", None),
    ("bf16 3.14159", "bf16 3.14159 = 3.140625 - HalfScope float lab", None),
    ("e4m3fn%200x7e", "e4m3fn 0x7e = 448 - HalfScope float lab", "e4m3fn"),
    ("e2m1 2.5&tab=line", "e2m1 2.5 = 2 - HalfScope float lab", "line"),
    ("tab=rounding", "fp16 0.1 = 0.0999755859375 - HalfScope float lab", "rounding"),
    ("tab=arithmetic", "fp16 0.1 = 0.0999755859375 - HalfScope float lab", "arithmetic"),
    ("tab=accumulate", "fp16 0.1 = 0.0999755859375 - HalfScope float lab", "accumulate"),
    ("tab=formats", "fp16 0.1 = 0.0999755859375 - HalfScope float lab", "formats"),
    ("nonsense", "fp16 0.1 = 0.0999755859375 - HalfScope float lab", None),
]


def chromium(address, *options):
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless=new", "--no-sandbox", "--use-angle=swiftshader",
                   "--enable-unsafe-swiftshader", "--hide-scrollbars", "--window-size=1440,900",
                   f"--user-data-dir={profile}", "--virtual-time-budget=4000", *options, address]
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def read_png(file):
    """Returns width, height and rows of RGB triples of an 8-bit picture without interlacing."""
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and color in (2, 6) and not interlaced
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    channels = 3 if color == 2 else 4
    raw, stride, rows = zlib.decompress(packed), width * channels, []
    before = bytearray(stride)
    for y in range(height):
        line = raw[y * (stride + 1):(y + 1) * (stride + 1)]
        kind, row = line[0], bytearray(line[1:])
        for i in range(stride):
            left = row[i - channels] if i >= channels else 0
            up = before[i]
            corner = before[i - channels] if i >= channels else 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = up
            elif kind == 3:
                guess = (left + up) // 2
            elif kind == 4:
                p = left + up - corner
                guess = min((abs(p - left), 0, left), (abs(p - up), 1, up),
                            (abs(p - corner), 2, corner))[2]
            else:
                guess = 0
            row[i] = (row[i] + guess) & 255
        rows.append([tuple(row[i:i + 3]) for i in range(0, stride, channels)])
        before = row
    return width, height, rows


def main():
    page = pathlib.Path(sys.argv[1]).resolve()
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    failures, pictures = 0, {}

    def check(good, text):
        nonlocal failures
        failures += not good
        print(f"  {'ok  ' if good else 'FAIL'} {text}")

    for fragment, title, name in PAGES:
        address = page.as_uri() + ("#" + fragment if fragment else "")
        document = chromium(address, "--dump-dom")
        found = re.search(r"<title>(.*?)</title>", document, re.S)
        shown = html.unescape(found.group(1)) if found else ""
        count = re.search(r'data-pictures="(\d+)"', document)
        check(shown == title and count, f"#{fragment}: title '{shown}', {count and count.group(1)} pictures")
        if name is None:
            continue
        picture = folder / f"{name}.png"
        picture.unlink(missing_ok=True)
        chromium(address, f"--screenshot={picture}")
        if not picture.exists():
            check(False, f"{name}: no picture")
            continue
        width, height, rows = read_png(picture)
        colors = {color for row in rows for color in row}
        busy = sum(len(set(row)) > 1 for row in rows) / height
        pictures[name] = hash(tuple(map(tuple, rows)))
        check((width, height) == (1440, 900) and len(colors) > 60 and busy > 0.3,
              f"{name}: {width}x{height}, {len(colors)} colors, {busy:.0%} of the lines not empty")
    check(len(set(pictures.values())) == len(pictures), "every tab has a picture of its own")
    if failures:
        sys.exit(f"page_test.py: {failures} checks failed")


if __name__ == "__main__":
    main()
