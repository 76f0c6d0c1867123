# SPDX-License-Identifier: MIT
"""What the tests of scripts/gpu-check share: a checkout of its own, stand-ins for everything that
needs a GPU, and a packed folder of them."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))

from gpu_check import pack  # noqa: E402

DEVICE = "NVIDIA Test 100"

HALFSCOPE = r"""
out() { while (($# > 1)); do if [[ $1 == "$flag" ]]; then echo "$2"; fi; shift; done; }
case $1 in
  doctor)
    case ${2-} in
      --json) cat "$FAKE/doctor.json" ;;
      --help) cat "$FAKE/doctor-help" 2> /dev/null ;;
      --cudnn) echo "engines: 12" ;;
      *) printf 'HalfScope 0.1\n\nGPU\n  %s\n' "$(cat "$FAKE/doctor-text")" ;;
    esac ;;
  train)
    lanes=$(flag=--lanes; out "$@") run=$(flag=--out; out "$@") steps=$(flag=--steps; out "$@")
    lane=${lanes##*,} backend=${lanes##*,}
    backend=${backend%%:*}
    echo "$*" >> "$FAKE/trains"
    if [[ -e $FAKE/hang-$backend ]]; then touch "$FAKE/hangs"; sleep 60; fi
    if [[ -e $FAKE/hang-bits && $* == *--compare* ]]; then
      if [[ $lanes != *cuda-own* ]]; then echo "$lanes 1" > "$run"; fi
      sleep 60
    fi
    if [[ -e $FAKE/crash-$backend ]]; then kill -SEGV $$; fi
    if [[ -e $FAKE/refuse-$backend ]]; then echo "error: no memory" >&2; exit 3; fi
    echo "$lanes $steps" > "$run"
    sed "s/^/$lane /" "$FAKE/kernels" >&2 ;;
  report)
    read -r lanes steps < "$2"
    if [[ $3 == --json ]]; then sed "s/LANE/${lanes##*,}/" "$FAKE/report.json" > "$4"; exit; fi
    steps=$(cat "$FAKE/steps" 2> /dev/null || echo "$steps")
    { echo step,lane,loss,ms
      for ((i = 0; i < steps; ++i)); do
        for lane in ${lanes//,/ }; do
          loss=0.$i
          if [[ $lane == cuda-own* && -e $FAKE/other-losses ]]; then loss=1.$i; fi
          echo "$i,$lane,$loss,1.5"
        done
      done; } > "$4" ;;
  fprev) if [[ -e $FAKE/no-orders ]]; then echo "no such format" >&2; exit 2; fi
    echo "a tree of $*" ;;
esac
"""

# A file with the name of a test says what that test does.
GPU_TEST = r"""
for argument in "$@"; do
  case $argument in
    --gtest_list_tests) cat "$FAKE/list"; exit ;;
    --gtest_filter=*) filter=${argument#*=} ;;
  esac
done
echo "$filter" >> "$FAKE/filters"
code=0
for name in ${filter//:/ }; do
  echo "[ RUN      ] $name"
  echo "$name" >> "$FAKE/began"
  file=$FAKE/test-${name//\//-}
  if [[ -e $file ]]; then source "$file"; else echo "[       OK ] $name (0 ms)"; fi
done
exit "$code"
"""

STEP_BENCH = r"""
echo "$*" > "$FAKE/bench-arguments"
echo "model plan step ms"
if [[ -e $FAKE/pytorch-fails ]]; then
  echo "PyTorch failed: CUDA error: no kernel image"
elif [[ ! -e $FAKE/pytorch-silent ]]; then
  echo "lenet mixed_float16 PyTorch   1.5"
fi
echo "lenet mixed_float16 cuda   0.5"
if [[ -e $FAKE/hang-bench ]]; then touch "$FAKE/hangs"; sleep 60; fi
exit "$(cat "$FAKE/bench" 2> /dev/null || echo 0)"
"""

LIST = """\
Gpu/OperatorBits.
  HaveTheBitsOfTheEmulator/Host_Conv  # GetParam() = 1
  HaveTheBitsOfTheEmulator/Cuda_Conv  # GetParam() = 2
  HaveTheBitsOfTheEmulator/Cuda_Relu  # GetParam() = 3
Gpu/OperatorSpecials.
  TreatSpecialValuesAlike/Cuda_Conv  # GetParam() = 2
Gpu/Training.
  InferenceIsTheEmulators/Host  # GetParam() = 0
  InferenceIsTheEmulators/Cuda  # GetParam() = 2
CudaBackend.
  SaysWhatIsMissing
CudnnEngines.
  ExistForEveryConvolutionThatItIsGiven
"""

KERNELS = """\
fc1 Gemm: cuBLASLt 13.1.0, [16 x 16 x 784] of fp16 and fp16: algorithm 66
fc2 Gemm: cuBLASLt 13.1.0, [10 x 16 x 16] of fp16 and fp16: algorithm 66
entry grad: CUDA graph
entry update: launched one by one: a scale that the host decides
"""


def stand_in(path: Path, text: str) -> None:
    """A program of these lines of bash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


def site(**members: Any) -> dict[str, Any]:
    return {"site": "fc1.activation", "op": "Gemm", "n": 1000, "differing": 0, "max_ulps": 0.0,
            "beyond": None, "kernel": None, "order": None, "sampled": 0, "explained": 0,
            "unexplained": None, **members}


class WithStandIns(unittest.TestCase):
    """Each test has a checkout `repo` with the scripts, stand-ins, and what they are told."""

    def setUp(self) -> None:
        self.work = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.repo, self.fake, self.packed = (self.work / name for name in ("repo", "fake", "pack"))
        for folder in (self.fake, self.repo / "bench", self.repo / "core", self.work / "tools"):
            folder.mkdir(parents=True)
        shutil.copytree(ROOT / "scripts", self.repo / "scripts",
                        ignore=shutil.ignore_patterns("__pycache__"))
        (self.repo / "bench" / "torch_gpu_step.py").write_text("print('{}')\n")
        (self.repo / "core" / "a.cpp").write_text("int a;\n")
        self.env = {**os.environ, "FAKE": str(self.fake), "HALFSCOPE_COMMIT": "abc1234",
                    "GIT_CEILING_DIRECTORIES": str(self.work), "PYTHONPATH": "",
                    "PATH": f"{self.work}/tools:{os.environ['PATH']}"}
        self.put("list", LIST)
        self.put("kernels", KERNELS)
        self.put("doctor-text", f"device 0: {DEVICE}")
        self.doctor()
        self.sites(site(kernel="cuBLASLt", differing=1, order="fp32", sampled=10, explained=10))
        self.programs(self.packed / "bin")
        self.manifest()

    def programs(self, folder: Path) -> None:
        for name, text in (("halfscope", HALFSCOPE), ("gpu_test", GPU_TEST),
                           ("gpu_step_bench", STEP_BENCH),
                           ("gpu_layer_bench", "echo 'fc1 forward 0.25'\n")):
            stand_in(folder / name, text)

    def put(self, name: str, text: str = "") -> None:
        (self.fake / name).write_text(text)

    def told(self, name: str) -> str:
        """Returns the notes of stand-ins in a file."""
        path = self.fake / name
        return path.read_text() if path.exists() else ""

    def makes(self, test: str, *lines: str) -> None:
        self.put("test-" + test.replace("/", "-"), "\n".join(lines) + "\n")

    def compared(self, operator: str, case: str, variant: str, verdict: str) -> str:
        row = "\\t".join((operator, case, variant, verdict))
        return f"printf '{row}\\n' >> \"$HALFSCOPE_BITS_TABLE\""

    def doctor(self, **members: Any) -> None:
        gpu = {"state": "ready", "toolkit": "13.0", "cublas_lt": "13.1", "cudnn": "9.19", "nccl": "2.28.9",
               "devices": [{"name": DEVICE, "compute_capability": "9.0"}], **members}
        self.put("doctor.json", json.dumps({"gpu": gpu}))

    def sites(self, *sites: dict[str, Any]) -> None:
        self.put("report.json", json.dumps(
            {"kernels": [{"lane": "LANE", "steps": [0], "text": "some", "sites": list(sites)}]}))

    def manifest(self, **members: Any) -> None:
        (self.packed / pack.MANIFEST).unlink(missing_ok=True)
        (self.packed / "bench").mkdir(exist_ok=True)
        shutil.copy(self.repo / "bench" / "torch_gpu_step.py", self.packed / "bench")
        files = pack.files_of(self.packed)
        digest = subprocess.run(
            [sys.executable, "-Bc", "from gpu_check import sources; print(sources.digest())"],
            cwd=self.repo / "scripts", capture_output=True, text=True, check=True).stdout.strip()
        text = {"schema": pack.SCHEMA, "created": "2026-01-01", "commit": "abc1234",
                "sources": digest, "architecture": "90", "simulated": False, "compilers": "g++",
                "glibc": "2.2", "id": pack.identity(files), "files": files, **members}
        (self.packed / pack.MANIFEST).write_text(json.dumps(text))

    def command(self, *arguments: str, packed: bool = True) -> list[str]:
        return [sys.executable, str(self.repo / "scripts" / "gpu-check"),
                *(["--binaries", str(self.packed)] if packed else []), *arguments]

    def check(self, code: int, *arguments: str, packed: bool = True) -> str:
        """Runs the script; returns what it printed on both streams."""
        done = subprocess.run(self.command(*arguments, packed=packed), env=self.env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, code, done.stdout[-3000:])
        self.assertNotIn("Traceback", done.stdout)
        return done.stdout

    def markdown(self, name: str = "nvidia-test-100") -> str:
        return (self.repo / "docs" / "gpu" / f"{name}.md").read_text()

    def report(self, name: str = "nvidia-test-100") -> dict[str, Any]:
        state: dict[str, Any] = json.loads(
            (self.repo / "docs" / "gpu" / f"{name}.json").read_text())
        return state

    def stage(self, name: str) -> dict[str, Any]:
        data: dict[str, Any] = self.report()["stages"][name]
        return data

    def log(self) -> list[dict[str, Any]]:
        text = (self.repo / "build-gpu" / "gpu-check" / "evidence.log").read_text()
        return [json.loads(line) for line in text.splitlines()]
