# SPDX-License-Identifier: MIT
"""The command line of scripts/gpu-check."""
from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .evidence import STAGES
from .stop import USAGE

EPILOG = """\
stages, in this order:
  first      what to know first: doctor, 20 steps of two networks on every backend, with kernels,
             CUDA graphs, and bits against the emulator; cuDNN's engines (3 minutes)
  tests      every test that needs a device, one process per operator
  profile    the kernels of one training step under Nsight Compute, ranked by time
  bench      training steps against PyTorch, products layer by layer, orders of sums
  sanitize   tests under compute-sanitizer

On a machine that can build but has no GPU:      scripts/gpu-check --pack DIR
On the machine with the GPU, with this checkout: scripts/gpu-check --binaries DIR
Without --binaries the programs are built on the machine with the GPU, in build-gpu.

The report is docs/gpu/DEVICE.md and DEVICE.json. It is written again after every finished
piece, so a call that is killed leaves everything up to there. A later call with other stages
completes the report of the same binaries.

exit codes: 0 everything that ran passed, 1 something failed or was cut off,
            2 wrong arguments or binaries, 3 no GPU here
"""


@dataclass(frozen=True)
class Arguments:
    stages: tuple[str, ...] = STAGES
    binaries: Path | None = None
    report: Path | None = None
    limit: float | None = None
    tests: str = ""
    quick: bool = False
    pack: Path | None = None
    simulated: bool = False
    build: Path | None = None
    arch: str = ""


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return float(text)


def _arch(text: str) -> str:
    if not re.fullmatch(r"[0-9]{2,3}[af]?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a compute capability such as 90")
    return text


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}\nhint: see scripts/gpu-check --help\n")


def parse(argv: list[str]) -> Arguments:
    """Exits with code 2, a line with the error and a hint if the arguments are wrong."""
    parser = _Parser(
        prog="gpu-check", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG,
        allow_abbrev=False,
        description="Checks HalfScope on an NVIDIA GPU and writes what it finds to docs/gpu.")
    parser.add_argument("--stage", action="append", choices=STAGES, metavar="NAME",
                        help="stage to run; may be repeated [all, in order]")
    parser.add_argument("--binaries", type=Path, metavar="DIR",
                        help="folder made by --pack to run the programs from")
    parser.add_argument("--report", type=Path, metavar="FOLDER",
                        help="also write the report and its logs here (4 files)")
    parser.add_argument("--limit", type=_seconds, metavar="SECONDS",
                        help="stop each stage after this time [first 180, others 530]")
    parser.add_argument("--tests", default="", metavar="FILTER",
                        help="GoogleTest filter that narrows the stage tests [all]")
    parser.add_argument("--quick", action="store_true",
                        help="small networks and few steps, to try the stages out")
    pack = parser.add_argument_group("packing, on a machine without a GPU")
    pack.add_argument("--pack", type=Path, metavar="DIR",
                      help="build for a device and put everything it needs into DIR")
    pack.add_argument("--arch", type=_arch, metavar="CC",
                      help="compute capability to build for [90 with --pack, else the GPU's]")
    pack.add_argument("--build", type=Path, metavar="FOLDER",
                      help="pack the programs of this build folder instead of building")
    pack.add_argument("--simulated", action="store_true",
                      help="pack the programs of the simulated device; needs --build")
    given = parser.parse_args(argv)
    if given.pack is None and (given.simulated or given.build):
        parser.error("--simulated and --build work with --pack only")
    if given.pack is not None and (given.stage or given.binaries or given.report or given.limit
                                   or given.tests or given.quick):
        parser.error("--pack runs no stages: give only --arch, --build and --simulated with it")
    if given.simulated and not given.build:
        parser.error("--simulated needs --build: name the build folder with the simulated programs")
    if given.build and given.arch:
        parser.error("--arch decides what is built; with --build nothing is built")
    if given.binaries is not None and given.arch:
        parser.error("--arch decides what is built; with --binaries nothing is built")
    wanted = tuple(name for name in STAGES if not given.stage or name in given.stage)
    return Arguments(wanted, given.binaries, given.report, given.limit, given.tests, given.quick,
                     given.pack, given.simulated, given.build, given.arch or "")
