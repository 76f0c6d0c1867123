#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks every page of the documentation against the program.

- Fenced blocks marked `console` are run, in order, in one scratch folder per page. The output must match; `...`
  stands for any text in a line, a line `...` for any lines. A comment `<!-- needs: mnist -->` before a block skips it
  where that data is missing. The test data is in the folder `data` of the scratch folder.
- Other commands (inline code, tables, plain blocks) must have a known name, known flags and, for `train` and `run`,
  values that the program accepts.
- Relative links and anchors must exist. Snippets in C++, C and CMake must be verbatim parts of files that tests run.

HALFSCOPE_REWRITE=1 replaces expected outputs that differ. Usage: docs_test.py PROGRAM SOURCE_FOLDER
"""
import difflib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

PROGRAM, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
DATA = pathlib.Path(os.environ.get("HALFSCOPE_TEST_DATA", ROOT.parent / "shared" / "data"))
# What `needs:` may name, below the data folder.
NEEDS = {"mnist": "mnist", "cifar10": "cifar10-subset", "models": "models", "mma-vectors": "mma-vectors"}
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "NO_COLOR": "1",
               "HALFSCOPE_CACHE": "", "HALFSCOPE_PROGRESS": "", "COLUMNS": "80"}
# Files that snippets of a language must be parts of.
SNIPPETS = {"cpp": "examples/*.cpp", "c++": "examples/*.cpp", "c": "examples/*.c",
            "cmake": "tests/install/*/CMakeLists.txt"}
# Flags of programs other than halfscope that the reference mentions.
OTHER_FLAGS = {"--fmad", "--version"}


def run(command, folder):
    """Returns the exit code and the output, standard error included."""
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=ENVIRONMENT, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def line_matches(expected, actual):
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), actual) is not None


def matches(expected, actual):
    """Whether lines match, where a line `...` stands for any number of lines."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(matches(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    return bool(actual) and line_matches(expected[0], actual[0]) and matches(expected[1:], actual[1:])


def rewritten(expected, actual):
    """Returns the lines of `actual`, with the dots of `expected` kept where the lines correspond."""
    cost = {(0, 0): (0.0, [])}
    for i in range(len(expected) + 1):
        for j in range(len(actual) + 1):
            ways = []
            dots = i > 0 and expected[i - 1].strip() == "..."
            if dots:
                ways += [(cost[i - 1, j][0], cost[i - 1, j][1] + [expected[i - 1]])]
                ways += [cost[i, j - 1]] if j > 0 else []
            elif i > 0:
                ways += [(cost[i - 1, j][0] + 1, cost[i - 1, j][1])]
            if j > 0 and not dots:
                ways += [(cost[i, j - 1][0] + 1, cost[i, j - 1][1] + [actual[j - 1]])]
            if i > 0 and j > 0 and not dots:
                before, lines = cost[i - 1, j - 1]
                same = line_matches(expected[i - 1], actual[j - 1])
                ratio = difflib.SequenceMatcher(None, expected[i - 1], actual[j - 1]).ratio()
                ways += [(before + (0 if same else 1.5 - ratio), lines + [(expected if same else actual)[
                    i - 1 if same else j - 1]])]
            if i or j:
                cost[i, j] = min(ways, key=lambda way: way[0])
    return cost[len(expected), len(actual)][1]


def blocks_of(text):
    """Yields (language, first line, lines, what it needs) of each fenced block; lines count from 0."""
    lines = text.split("\n")
    inside, needs = None, None
    for number, line in enumerate(lines):
        if inside is None:
            if line.startswith("```"):
                inside = (line[3:].strip(), number + 1)
            elif line.startswith("<!-- needs:"):
                needs = line[len("<!-- needs:"):].split("--")[0].strip()
            elif line.strip():
                needs = None
        elif line.startswith("```"):
            yield inside[0], inside[1], lines[inside[1]:number], needs
            inside, needs = None, None


def commands_in(lines):
    """Returns [command, expected lines] of each `$ command` of a console block."""
    commands = []
    for line in lines:
        if line.startswith("$ "):
            commands.append([line[2:], []])
        elif commands and commands[-1][0].endswith("\\") and not commands[-1][1]:
            commands[-1][0] = commands[-1][0] + "\n" + line
        elif commands:
            commands[-1][1].append(line)
    return commands


def check_console(name, text, failures):
    """Runs the console blocks of a page. Returns the text with its outputs rewritten."""
    lines, offset, code = text.split("\n"), 0, 0
    with tempfile.TemporaryDirectory(prefix="halfscope_docs_") as folder:
        if DATA.is_dir():
            os.symlink(DATA, os.path.join(folder, "data"))
        for language, first, block, needs in blocks_of(text):
            if language != "console":
                continue
            if needs is not None and not (DATA / NEEDS[needs]).exists():
                print(f"{name}:{first}: skipped, no {needs} in {DATA}")
                continue
            new = []
            for command, expected in commands_in(block):
                if command == "echo $?":
                    output = str(code)
                else:
                    code, output = run(command, folder)
                actual = [line.rstrip() for line in output.rstrip("\n").split("\n")] if output else []
                same = matches(expected, actual)
                if not same:
                    failures.append(f"{name}:{first}: $ {command}\n" + "\n".join(
                        difflib.unified_diff(expected, actual, "documented", "printed", lineterm="", n=1)))
                new += ["$ " + command] + (expected if same else rewritten(expected, actual))
            new = "\n".join(new).split("\n")
            lines[first + offset:first + offset + len(block)] = new
            offset += len(new) - len(block)
    return "\n".join(lines)


def flags_of_help():
    """Returns the flags of each command, and of all."""
    listing = run("halfscope --help", ROOT)[1]
    names = re.findall(r"^  ([a-z][a-z-]+)  ", listing, re.M)
    flags = {name: set(re.findall(r"--[a-z][a-z0-9-]*", run(f"halfscope {name} --help", ROOT)[1])) for name in names}
    flags["diagnose"] |= flags["train"] | flags["run"]  # the settings of the network it records
    everything = set().union(*flags.values())
    return flags | {"help": set()}, everything


def spans_of(text):
    """Returns (line number, code) of inline code and of lines in plain blocks. Comments and console blocks are left out."""
    spans, fence = [], None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:].strip()
        elif fence in ("", "sh", "bash") and line.strip():
            spans.append((number, line.split("  #")[0].removeprefix("$ ")))
        elif fence is None:
            spans += [(number, code) for code in re.findall(r"`([^`]+)`", line)]
    return spans


def accepts_values(command, folder):
    """Returns the program's complaint about the values of a `train` or `run` command, or ""."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    if any(re.search(r"\.\.\.|[|<>\[\]()\\;]|\b[A-Z]{2,}\b|^[A-Z]$", word) for word in words) or len(words) < 3:
        return ""
    if "--help" in words or "--print-config" in words:
        return ""
    code, output = run(shlex.join(words + ["--print-config"]), folder)
    files = [part for word in words for part in re.split(r"[,=:]", word) if re.search(r"\.\w", part)]
    return "" if code == 0 or any(file in output for file in files) else output


def check_commands(name, text, flags, everything, failures):
    with tempfile.TemporaryDirectory(prefix="halfscope_docs_") as folder:
        for number, code in spans_of(text):
            code = code.replace("\\|", "|")
            for part in re.split(r"&&|;", code):
                words = part.split()
                if len(words) < 2 or words[0] != "halfscope" or not re.fullmatch(r"[a-z-]+", words[1]):
                    continue
                if words[1].startswith("-"):
                    continue
                if words[1] not in flags:
                    failures.append(f"{name}:{number}: no command '{words[1]}': {part}")
                    continue
                for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", part.split("| ")[0]):
                    if flag not in flags[words[1]] | {"--help"}:
                        failures.append(f"{name}:{number}: {words[1]} has no flag {flag}")
                if words[1] in ("train", "run"):
                    problem = accepts_values(part, folder)
                    if problem:
                        failures.append(f"{name}:{number}: {part}: {problem}")
            if name.startswith("docs/reference/") or name == "docs/contracts.md":
                for flag in re.findall(r"^--[a-z][a-z0-9-]*", code):
                    if flag not in everything | OTHER_FLAGS:
                        failures.append(f"{name}:{number}: no command has the flag {flag}")


def anchors_of(text):
    anchors, fence = set(), False
    for line in text.split("\n"):
        fence ^= line.startswith("```")
        heading = None if fence else re.match(r"#+ (.*)", line)
        if heading:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            base = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            anchor, count = base, 0
            while anchor in anchors:
                count += 1
                anchor = f"{base}-{count}"
            anchors.add(anchor)
    return anchors


def check_links(name, text, failures):
    plain = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    for target in re.findall(r"\]\(([^)\s]+)\)", plain):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if path and not file.exists():
            failures.append(f"{name}: link to {target}: file not found")
        elif anchor and file.suffix == ".md":
            other = text if not path else file.read_text()
            if anchor not in anchors_of(other):
                failures.append(f"{name}: link to {target}: no such heading")


def check_places_in_code(failures):
    """Pages that sources name must exist."""
    for folder in ("core", "emulation", "gpu", "analysis", "gui", "cli", "tests", "bench", "examples", "scripts"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix not in (".h", ".cpp", ".cu", ".cuh", ".py", ".inc", ".txt") or file.name == "docs_test.py":
                continue
            for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.(?:md|json)\b", file.read_text(errors="replace")):
                if not (ROOT / page).exists() and not page.startswith("docs/gpu/"):
                    failures.append(f"{file.relative_to(ROOT)} names {page}, which does not exist")


def check_snippets(name, text, failures):
    for language, first, block, _ in blocks_of(text):
        if language not in SNIPPETS:
            continue
        files = ["\n".join(line.strip() for line in file.read_text().split("\n"))
                 for file in sorted(ROOT.glob(SNIPPETS[language]))]
        wanted = "\n".join(line.strip() for line in block)
        if not any(wanted in file for file in files):
            failures.append(f"{name}:{first}: this snippet is not part of a file {SNIPPETS[language]}")


def check_page(name, text, flags, everything):
    """Returns the failures of a page and its text with outputs rewritten."""
    failures = []
    check_links(name, text, failures)
    check_snippets(name, text, failures)
    check_commands(name, text, flags, everything, failures)
    return failures, check_console(name, text, failures)


def self_check(flags, everything):
    """Planted mistakes must fail, and right text must pass."""
    good = "# A\n```console\n$ echo one; echo two 3 ms; echo four\none\ntwo ... ms\n...\n```\n[a](#a) `halfscope train --steps 5`\n"
    bad = {
        "a wrong output": "```console\n$ echo one\ntwo\n```\n",
        "a missing line": "```console\n$ echo one; echo two\none\n```\n",
        "a wrong exit code": "```console\n$ false\n$ echo $?\n0\n```\n",
        "an unknown command": "`halfscope trian`\n",
        "an unknown flag": "| `halfscope train --stepps 5` |\n",
        "a wrong value": "`halfscope train --optimizer sdg`\n",
        "a missing file": "[a](nowhere.md)\n",
        "a missing anchor": "[a](#nowhere)\n",
        "a snippet of no example": "```cpp\nint nowhere = 1;\n```\n",
        "a snippet of no example in C": "```c\nint nowhere = 1;\n```\n",
    }
    problems = [f"self check, right text: {each}" for each in
                check_page("docs/self.md", good, flags, everything)[0]]
    for what, text in bad.items():
        if not check_page("docs/contracts.md", text, flags, everything)[0]:
            problems.append(f"self check: {what} was not found")
    repaired = check_page("docs/self.md", bad["a wrong output"], flags, everything)[1]
    if repaired != "```console\n$ echo one\none\n```\n":
        problems.append(f"self check: outputs are rewritten as\n{repaired}")
    return problems


def main():
    names = [str(path.relative_to(ROOT)) for path in
             sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "examples").rglob("*.md"))]
    pages = {name: (ROOT / name).read_text() for name in names}
    flags, everything = flags_of_help()
    failures = self_check(flags, everything)
    check_places_in_code(failures)
    for name, text in pages.items():
        found, new = check_page(name, text, flags, everything)
        if os.environ.get("HALFSCOPE_REWRITE") == "1" and new != text:
            (ROOT / name).write_text(new)
            print(f"{name}: outputs rewritten")
        failures += found
    print("\n".join(failures) if failures else f"{len(pages)} pages checked, no failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
