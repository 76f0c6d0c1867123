# SPDX-License-Identifier: MIT
"""The Markdown of a report: a summary of what was and was not checked, then each stage."""
from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

MOST_FAILURES = 40  # in the list at the top; the JSON has all of them


def table(head: list[str], rows: Iterable[list[Any]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    for row in rows:
        lines.append("| " + " | ".join(cell(each) for each in row) + " |")
    return lines


def cell(value: Any) -> str:
    """A value as the text of a cell."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def block(text: str) -> list[str]:
    """Returns the text as a verbatim block."""
    return ["```", text.rstrip("\n").replace("```", "'''"), "```"]


def without_homes(text: str) -> str:
    """Returns the text without the paths of a machine's home folders: reports are committed, and
    tests/house/text_rules.cpp rejects such paths."""
    return re.sub(r"(?<![\w.\-}*)/~])/(?:(?:home|root|work)/|tmp/(?=bash))", "~/", text)


def stage_line(name: str, data: dict[str, Any]) -> list[Any]:
    return [name, data["result"], data["seconds"], data.get("why", "")]


def not_checked(state: dict[str, Any]) -> list[str]:
    """Everything that could not be checked, with the reason."""
    from .evidence import STAGES  # evidence.py writes reports
    lines = list(state.get("notes", []))
    for name in STAGES:
        data = state["stages"].get(name)
        if data is None:
            lines.append(f"not checked: stage {name}, because no call has run it yet")
            continue
        lines += [f"not checked: {each}" for each in data["not_checked"]]
        if data["result"] == "cut off":
            lines.append(f"not checked: the rest of stage {name}, because {data['why']}")
    return lines


def markdown(state: dict[str, Any]) -> str:
    binaries = state["binaries"]
    lines = [f"# {state['device']}", "",
             f"Written by `scripts/gpu-check` on {state['date']} UTC.", "",
             f"Binaries: commit {binaries.get('commit', 'unknown')}, "
             f"{binaries.get('built', 'unknown')}, for compute capability "
             f"{binaries.get('architecture', 'unknown')}, sources "
             f"`{binaries.get('sources', 'unknown')}`.", ""]
    lines += table(["stage", "result", "seconds", ""],
                   [stage_line(*each) for each in state["stages"].items()])
    missing = not_checked(state)
    if missing:
        lines += ["", "## Notes, and what was not checked"] + [f"- {each}" for each in missing]
    failures = [(name, each) for name, data in state["stages"].items()
                for each in data["failures"]]
    if failures:
        lines += ["", "## Failures"]
        lines += [f"- {name}: {text}" for name, text in failures[:MOST_FAILURES]]
        if len(failures) > MOST_FAILURES:
            lines.append(f"- and {len(failures) - MOST_FAILURES} more: see the JSON file")
    for name, data in state["stages"].items():
        module = importlib.import_module(f".stage_{name}", __package__)
        lines += ["", f"## {module.TITLE}"] + module.render(data)
    lines += ["", "## Machine"] + block(state["doctor"])
    lines += [f"- {each}" for each in state["libraries"]]
    return "\n".join(lines) + "\n"
