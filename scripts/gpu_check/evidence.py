# SPDX-License-Identifier: MIT
"""The report of one device, written again after every finished piece.

docs/gpu/DEVICE.json is all that is known, docs/gpu/DEVICE.md the same for people. Both are
replaced at once (written beside, then renamed), so a call that is killed leaves the last whole
one. Two logs grow in the work folder: evidence.log, a line of JSON per piece, and output.log, all
that programs printed. --report names a folder that has the report and the logs as well, and a
later call may continue from that folder alone.
"""
from __future__ import annotations

import datetime
import json
import os
import re
import shutil
from pathlib import Path
from typing import IO, Any

from . import report
from .processes import OutputLog

SCHEMA = "halfscope.gpu-check/2"
STAGES = ("first", "tests", "profile", "bench", "sanitize")
LOGS = ("evidence.log", "output.log")
PASSED, FAILED, CUT_OFF, NOT_RUN = "passed", "failed", "cut off", "not run"


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def file_name(device: str) -> str:
    """NVIDIA H200 -> nvidia-h200"""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "device"


def read_state(path: Path, key: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the report in a file if it is about this device and these binaries."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        return None
    if any(state.get(name) != value for name, value in key.items()):
        return None
    return state if isinstance(state.get("stages"), dict) else None


def merged(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the newest report, with the last run of each stage."""
    def started(data: dict[str, Any]) -> str:
        return str(data.get("started"))
    newest = max(states, key=lambda each: str(each.get("date")))
    stages: dict[str, Any] = {}
    for state in [newest, *states]:
        for name, data in state["stages"].items():
            if name not in stages or started(data) > started(stages[name]):
                stages[name] = data
    return {**newest, "stages": stages}


def logged_until(folder: Path, key: dict[str, Any]) -> str:
    """When evidence.log of a folder was last written to, or nothing if its last call was about
    another device or other binaries."""
    try:
        text = (folder / LOGS[0]).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    until, ours = "", False
    for line in text.splitlines():
        try:
            piece = json.loads(line)
        except ValueError:  # the call was killed in this line
            continue
        if not isinstance(piece, dict):
            continue
        if piece.get("kind") == "call":
            ours = all(piece.get(name) == value for name, value in key.items())
        until = str(piece.get("time"))
    return until if ours else ""


class Evidence:
    """The report of one device and one set of binaries."""

    def __init__(self, docs: Path, work: Path, report_folder: Path | None, device: str,
                 binaries: dict[str, Any]) -> None:
        self.name = file_name(device)
        docs, self.work = docs.resolve(), work.resolve()
        more = [report_folder.resolve()] if report_folder else []
        self.folders = list(dict.fromkeys([docs, *more]))
        key = {"device": device, "binaries": binaries}
        self.state: dict[str, Any] = {"schema": SCHEMA, **key, "date": "", "doctor": "",
                                      "libraries": [], "notes": [], "stages": {}}
        states = [read_state(folder / f"{self.name}.json", key) for folder in self.folders]
        known = [each for each in states if each is not None]
        if known:
            self.state = merged(known)
        self._logs: list[IO[str]] = []
        self.output = OutputLog(self._open_logs(list(dict.fromkeys([self.work, *more])),
                                                key if known else None))

    def _open_logs(self, folders: list[Path], key: dict[str, Any] | None) -> list[IO[str]]:
        """Opens both logs in every folder, to continue the newest ones with this key or, without
        any, from the beginning. Returns those for output."""
        times = {folder: logged_until(folder, key) if key else "" for folder in folders}
        source = max(folders, key=lambda each: times[each])
        outputs: list[IO[str]] = []
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            for name, files in zip(LOGS, (self._logs, outputs)):
                if folder != source and times[source] and (source / name).exists():
                    shutil.copyfile(source / name, folder / name)
                files.append(open(folder / name, "a" if times[source] else "w", encoding="utf-8"))
        return outputs

    def log(self, kind: str, **what: Any) -> None:
        """Appends one piece to evidence.log."""
        line = json.dumps({"time": now(), "kind": kind, **what}, ensure_ascii=True)
        for file in self._logs:
            file.write(line + "\n")
            file.flush()

    def begin(self, stage: str, limit: float) -> dict[str, Any]:
        """Forgets what an earlier call found in this stage. Until end() the stage counts as cut
        off, so that the report is right when nothing ends it."""
        data: dict[str, Any] = {"result": CUT_OFF, "why": "the stage did not come to its end",
                                "started": now(), "seconds": 0, "limit": round(limit),
                                "not_checked": [], "failures": []}
        self.state["stages"][stage] = data
        self.log("begin", stage=stage, limit=round(limit))
        self.save()
        return data

    def end(self, stage: str, result: str, why: str, seconds: float) -> None:
        data = self.state["stages"][stage]
        data.update(result=result, why=why, seconds=round(seconds))
        self.log("end", stage=stage, result=result, why=why, seconds=round(seconds))
        self.save()

    def save(self) -> None:
        """Writes both forms of the report to all its folders."""
        self.state["date"] = now()
        ordered = {name: self.state["stages"][name] for name in STAGES
                   if name in self.state["stages"]}
        self.state["stages"] = ordered
        texts = {"json": json.dumps(self.state, indent=1, ensure_ascii=True) + "\n",
                 "md": report.markdown(self.state)}
        for folder in self.folders:
            for ending, text in texts.items():
                write_atomically(folder / f"{self.name}.{ending}", report.without_homes(text))

    def close(self) -> None:
        for file in self._logs + self.output.files:
            file.close()
