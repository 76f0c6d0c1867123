# SPDX-License-Identifier: MIT
"""Starts programs, reads their output line by line, and stops them in time.

One thread only: every program's output is read in one loop, so that a program can be told to die
with this one (PR_SET_PDEATHSIG is about the thread that started it).
"""
from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

GRACE = 5.0  # seconds between SIGTERM and SIGKILL
MOST_KEPT = 8 << 20  # characters of one program's output that are kept in memory
MOST_LOGGED = 12 << 20  # bytes of a log of everything that programs printed
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Interrupted(Exception):
    """Raised when a signal asks this program to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")


class Deadline:
    """The end of a stage."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.start = time.monotonic()

    def earlier(self, seconds: float) -> Deadline:
        """Returns an earlier deadline that leaves some time before this one."""
        return Deadline(max(0.0, self.left() - seconds))

    def left(self) -> float:
        return self.start + self.seconds - time.monotonic()

    def spent(self) -> float:
        return time.monotonic() - self.start

    def passed(self) -> bool:
        return self.left() <= 0.0


@dataclass
class Job:
    """A program to start. `on_line` gets each line and whether it came from standard error."""

    name: str
    command: list[str]
    timeout: float = 1e9
    env: dict[str, str] = field(default_factory=dict)
    on_line: Callable[[str, bool], None] | None = None


@dataclass
class Outcome:
    """Result of a job. `code` is None if it was stopped; `error` says why it did not start. `cut`
    means that the stage ran out of time, not the job."""

    job: Job
    code: int | None = None
    seconds: float = 0.0
    out: str = ""
    err: str = ""
    stopped: bool = False
    cut: bool = False
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def started(self) -> bool:
        return not self.error and (self.code is not None or self.stopped)

    @property
    def crashed(self) -> bool:
        return self.code is not None and self.code < 0

    def last_line(self) -> str:
        """Returns the last line of standard error, or else of all output."""
        for text in (self.err, self.out):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            if lines:
                return lines[-1][:300]
        return ""

    def what(self) -> str:
        """Describes the result in words."""
        if self.error:
            return self.error
        if self.stopped:
            return f"stopped after {self.seconds:.0f} s"
        if self.code is None:
            return "not run: the stage's time was over"
        if self.code < 0:
            return f"killed by {signal_name(-self.code)}"
        if self.code == 0:
            return "passed"
        last = self.last_line()
        return f"exit code {self.code}" + (f": {last}" if last else "")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OutputLog:
    """Logs the output of programs in several copies, each of limited size."""

    def __init__(self, files: Iterable[IO[str]] = ()) -> None:
        self.files = list(files)

    def write(self, text: str) -> None:
        for file in self.files:
            size = file.tell()
            if size > MOST_LOGGED:
                continue
            file.write(text)
            if size + len(text) > MOST_LOGGED:
                file.write("[this log is full: the rest is left out]\n")
            file.flush()


class _Running:
    def __init__(self, job: Job, timeout: float, cut: bool, log: OutputLog) -> None:
        self.outcome = Outcome(job)
        self.cut = cut
        self.log = log
        self.start = time.monotonic()
        self.end = self.start + timeout
        self.kill_at = 0.0
        self.text: dict[bool, list[str]] = {False: [], True: []}
        self.rest: dict[bool, bytes] = {False: b"", True: b""}
        self.kept = 0
        env = {**os.environ, **job.env}
        self.process = subprocess.Popen(
            job.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=env, start_new_session=True, preexec_fn=_die_with_parent)

    def line(self, raw: bytes, is_error: bool) -> None:
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        if self.kept < MOST_KEPT:
            self.kept += len(text) + 1
            self.text[is_error].append(text)
        self.log.write(f"[{self.outcome.job.name}] {text}\n")
        if self.outcome.job.on_line is not None:
            self.outcome.job.on_line(text, is_error)

    def read(self, data: bytes, is_error: bool) -> None:
        lines = (self.rest[is_error] + data).split(b"\n")
        self.rest[is_error] = lines.pop()
        for each in lines:
            self.line(each, is_error)

    def finish(self) -> Outcome:
        for is_error in (False, True):
            if self.rest[is_error]:
                self.line(self.rest[is_error], is_error)
        outcome = self.outcome
        outcome.seconds = time.monotonic() - self.start
        code = self.process.wait()
        if not outcome.stopped:
            outcome.code = code
        outcome.out = "\n".join(self.text[False])
        outcome.err = "\n".join(self.text[True])
        self.log.write(f"[{outcome.job.name}] -- {outcome.what()}, {outcome.seconds:.1f} s\n")
        return outcome

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


_alive: set[_Running] = set()


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def stop_all() -> None:
    """Ends every program that is still running, with its child processes."""
    for running in list(_alive):
        running.signal(signal.SIGKILL)
        running.process.wait()
        _alive.discard(running)


def _start(job: Job, deadline: Deadline, log: OutputLog) -> _Running | Outcome:
    left = deadline.left()
    if left <= 0.0:
        return Outcome(job, cut=True)
    log.write(f"\n[{job.name}] $ {' '.join(job.command)}\n")
    try:
        return _Running(job, min(left, job.timeout), left <= job.timeout, log)
    except OSError as error:
        failed = Outcome(job, error=f"cannot start {job.command[0]}: {error.strerror}")
        log.write(f"[{job.name}] -- {failed.error}\n")
        return failed


def run_all(jobs: Iterable[Job], at_once: int, deadline: Deadline,
            log: OutputLog) -> Iterator[Outcome]:
    """Runs up to `at_once` jobs at a time and yields each outcome when it is there. Jobs that are
    not started before the deadline come last, with code None."""
    waiting = list(jobs)
    with selectors.DefaultSelector() as selector:
        running: dict[_Running, int] = {}  # and how many pipes are open
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    started = _start(waiting.pop(0), deadline, log)
                    if isinstance(started, Outcome):
                        yield started
                        continue
                    _alive.add(started)
                    running[started] = 2
                    for pipe, is_error in ((started.process.stdout, False),
                                           (started.process.stderr, True)):
                        assert pipe is not None
                        os.set_blocking(pipe.fileno(), False)
                        selector.register(pipe, selectors.EVENT_READ, (started, is_error))
                if not running:
                    continue
                yield from _turn(selector, running)
        finally:
            for each in list(running):
                each.signal(signal.SIGKILL)
                each.process.wait()
                _alive.discard(each)


def _turn(selector: selectors.BaseSelector, running: dict[_Running, int]) -> Iterator[Outcome]:
    """Reads the available output once, and stops programs that ran too long."""
    now = time.monotonic()
    next_end = min(each.kill_at or each.end for each in running)
    for key, _ in selector.select(max(0.0, min(next_end - now, 1.0))):
        each, is_error = key.data
        data = os.read(key.fd, 1 << 16)
        if data:
            each.read(data, is_error)
            continue
        selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]
        running[each] -= 1
    now = time.monotonic()
    for each in list(running):
        if not each.outcome.stopped and now >= each.end:
            each.outcome.stopped, each.outcome.cut = True, each.cut
            each.kill_at = now + GRACE
            each.signal(signal.SIGTERM)
        elif each.kill_at and now >= each.kill_at:
            each.signal(signal.SIGKILL)
            each.kill_at = now + GRACE
        # A program may end and leave its pipes to a child process.
        ended = each.process.poll() is not None
        if running[each] == 0 or (ended and each.outcome.stopped):
            for key in [k for k in selector.get_map().values() if k.data[0] is each]:
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
            each.signal(signal.SIGKILL)
            del running[each]
            outcome = each.finish()
            _alive.discard(each)
            yield outcome


def run(job: Job, deadline: Deadline, log: OutputLog) -> Outcome:
    """Runs one job to its end."""
    return next(run_all([job], 1, deadline, log))
