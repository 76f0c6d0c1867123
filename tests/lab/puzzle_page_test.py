#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plays a level on the page that `halfscope puzzle --html` writes, in headless Chromium.

usage: puzzle_page_test.py PROGRAM
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "web"))
from browser import Browser  # noqa: E402

failures = 0


def check(shown, expected, what):
    global failures
    failures += shown != expected
    print(f"  {'ok  ' if shown == expected else 'FAIL'} {what}: {shown!r}", flush=True)


def buttons(browser):
    return browser.ask("[...document.querySelectorAll('#levels button')].map(b => b.textContent).join('|')")


def answer(browser, letters):
    """Ticks exactly these choices, and runs."""
    browser.ask(f"document.querySelectorAll('#choices input').forEach((box, i) => "
                f"{{ if (box.checked !== {letters!r}.includes('abcdef'[i])) box.click(); }})")
    browser.ask("document.getElementById('run').click()")
    return browser.ask("document.getElementById('verdict').textContent")


def opens_with(browser, page, levels):
    browser.go(page)
    return browser.wait("document.getElementById('levels') && "
                        f"document.getElementById('levels').textContent === {levels!r}", seconds=10)


def play(browser, page):
    browser.go(page)
    assert browser.wait("document.getElementById('foot') && document.getElementById('foot').textContent")
    check(buttons(browser), "1", "a new level has its number")
    check(answer(browser, "a").startswith("Not solved."), True, "a wrong answer")
    check(buttons(browser), "1", "and the level is not marked")
    check(answer(browser, "d").startswith("Solved."), True, "an answer that costs too much")
    check(buttons(browser), "1 \u2713", "a solved level keeps its number")
    check(answer(browser, "c").startswith("Solved."), True, "the cheapest answer")
    check(buttons(browser), "1 \u2605", "a level at par keeps its number")
    # A busy Chromium may open the page again before it has stored what the page saved.
    check(any(opens_with(browser, page, "1 \u2605") for _ in range(3)), True,
          "the page remembers it")


def main():
    if shutil.which("chromium") is None:
        print("SKIPPED: chromium is not installed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "puzzle.html"
        subprocess.run([sys.argv[1], "puzzle", "1", "--html", str(page)], check=True)
        browser = Browser()
        try:
            play(browser, page.as_uri())
        finally:
            browser.close()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
