#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Opens the lab page in headless Chromium, checks what it shows, and uses it.

usage: page_test.py LAB.HTML [FOLDER]   writes pictures of the tabs to FOLDER
"""

import pathlib
import sys
import tempfile

from browser import Browser, read_png

TENTH = "fp16 0.1 = 0.0999755859375 - HalfScope float lab"
# Fragment of the address, title of the page, name of the picture.
PAGES = [
    ("", TENTH, "bits"),
    ("bf16 3.14159", "bf16 3.14159 = 3.140625 - HalfScope float lab", None),
    ("e4m3fn%200x7e", "e4m3fn 0x7e = 448 - HalfScope float lab", "e4m3fn"),
    ("e2m1 2.5&tab=line", "e2m1 2.5 = 2 - HalfScope float lab", "line"),
    ("tab=rounding", TENTH, "rounding"),
    ("tab=arithmetic", TENTH, "arithmetic"),
    ("tab=accumulate", TENTH, "accumulate"),
    ("tab=formats", TENTH, "formats"),
    ("tab=step", TENTH, "step"),  # trains
    ("tab=puzzles", TENTH, "puzzles"),  # runs networks
    ("tab=blocks", TENTH, "blocks"),
    ("nonsense", TENTH, None),
]

failures = 0


def check(good, text):
    global failures
    failures += not good
    print(f"  {'ok  ' if good else 'FAIL'} {text}", flush=True)


def check_pages(browser, page, folder):
    pictures = set()
    names = [name for _, _, name in PAGES if name]
    for fragment, title, name in PAGES:
        browser.go(page + ("#" + fragment if fragment else ""))
        drawn = browser.wait("document.body && document.body.dataset.pictures >= 4")
        shown = browser.ask("document.title")
        check(drawn and shown == title, f"#{fragment}: '{shown}'")
        if name is None:
            continue
        data = browser.picture()
        (folder / f"{name}.png").write_bytes(data)
        width, height, rows = read_png(data)
        colors = len({color for row in rows for color in row})
        busy = sum(len(set(row)) > 8 for row in rows) / height
        pictures.add(data)
        check((width, height) == (1440, 900) and colors > 60 and busy > 0.1,
              f"{name}: {width}x{height}, {colors} colors, text or lines in {busy:.0%} of the rows")
    check(len(pictures) == len(names), "every tab has a picture of its own")


def click_widget(browser, path):
    """Clicks a widget by its path (gui/widgets/track.h)."""
    place = f"Module.ccall('halfscope_place', 'string', ['string'], ['{path}'])"
    if not browser.wait(place, 5):
        check(False, f"no widget {path}")
        return
    browser.click(*map(float, browser.ask(place).split()))


def check_use(browser, page):
    browser.go(page + "#fp16 0.1")
    browser.wait("document.body && document.body.dataset.pictures >= 4")
    click_widget(browser, "lab/entry")
    browser.press_control("A")
    browser.type("2049")
    check(browser.wait("document.title.startsWith('fp16 2049 = 2048 ')", 5),
          f"typing a number: '{browser.ask('document.title')}'")
    browser.press_control("A")
    browser.press_control("C")
    browser.type("7")
    check(browser.wait("document.title.startsWith('fp16 7 = 7 ')", 5),
          f"copying it and typing another: '{browser.ask('document.title')}'")
    browser.press_control("A")
    browser.press_control("V")
    check(browser.wait("document.title.startsWith('fp16 2049 = 2048 ')", 5),
          f"pasting it: '{browser.ask('document.title')}'")
    browser.press_control("A")
    browser.ask("navigator.clipboard.writeText('448')")  # as if another program had copied it
    browser.press_control("V")
    check(browser.wait("document.title.startsWith('fp16 448 = 448 ')", 5),
          f"pasting from elsewhere: '{browser.ask('document.title')}'")
    browser.key("Enter", 13)
    check(browser.wait("location.hash === '#fp16%20448'", 5),
          f"the address follows: {browser.ask('location.hash')}")
    browser.press_control("A")
    browser.click(700, 700)
    browser.ask("location.hash = '#bf16 1&tab=line'")
    check(browser.wait("document.title.startsWith('bf16 1 = 1 ')", 5),
          f"another fragment by hand: '{browser.ask('document.title')}'")
    click_widget(browser, "page/copy_link")
    check(browser.wait("page.pasted.endsWith('lab.html#bf16%201&tab=line')", 5),
          f"copying the link: {browser.ask('page.pasted.split(String.fromCharCode(47)).pop()')}")
    browser.size(700, 500, 2)
    check(browser.wait("Module.canvas.width === 1400 && Module.canvas.height === 1000", 5),
          "a smaller window with twice the resolution: "
          f"{browser.ask('Module.canvas.width')}x{browser.ask('Module.canvas.height')}")
    before = browser.ask("+document.body.dataset.pictures")
    check(browser.wait(f"document.body.dataset.pictures > {before}", 5), "it still draws")


def main():
    page = pathlib.Path(sys.argv[1]).resolve().as_uri()
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    browser = Browser()
    try:
        check_pages(browser, page, folder)
        check_use(browser, page)
        (folder / "small.png").write_bytes(browser.picture())
    finally:
        browser.close()
    if failures:
        sys.exit(f"page_test.py: {failures} checks failed")


if __name__ == "__main__":
    main()
