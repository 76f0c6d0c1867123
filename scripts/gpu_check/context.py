# SPDX-License-Identifier: MIT
"""The environment of a stage: arguments, programs, deadline, report."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import processes
from .arguments import Arguments
from .binaries import Binaries
from .evidence import Evidence
from .output import say
from .processes import Deadline, Job, Outcome


@dataclass
class Context:
    arguments: Arguments
    binaries: Binaries
    evidence: Evidence
    cpus: int
    stage: str = ""
    deadline: Deadline = field(default_factory=lambda: Deadline(0.0))
    data: dict[str, Any] = field(default_factory=dict)

    def folder(self) -> Path:
        """A folder for files of this stage."""
        path = self.evidence.work / self.stage
        path.mkdir(parents=True, exist_ok=True)
        return path

    def say(self, text: str) -> None:
        say(text)

    def piece(self, kind: str, **what: Any) -> None:
        """Adds a finished piece to the log and the report."""
        self.data["seconds"] = round(self.deadline.spent())
        self.evidence.log(kind, stage=self.stage, **what)
        self.evidence.save()

    def fail(self, text: str) -> None:
        self.data["failures"].append(text)
        self.say(f"FAILED: {text}")

    def not_checked(self, what: str, why: str) -> None:
        """Reports that a check is impossible here. This does not fail the stage."""
        text = f"{what}, because {why}"
        self.data["not_checked"].append(text)
        self.say(f"not checked: {text}")

    def job(self, name: str, program: str, *arguments: str, **options: Any) -> Job:
        """A job that runs one of our programs."""
        return self.command(name, [str(self.binaries.program(program)), *arguments], **options)

    def command(self, name: str, command: list[str], **options: Any) -> Job:
        env = {**self.binaries.env, **options.pop("env", {})}
        return Job(name, command, env=env, **options)

    def run(self, job: Job) -> Outcome:
        return processes.run(job, self.deadline, self.evidence.output)

    def run_all(self, jobs: Iterable[Job], at_once: int,
                keep: float = 0.0) -> Iterator[Outcome]:
        """Jobs end `keep` seconds before the stage does."""
        return processes.run_all(jobs, at_once, self.deadline.earlier(keep), self.evidence.output)
