# SPDX-License-Identifier: MIT
"""scripts/gpu-check --pack, and the packed folder at work: in a root directory that holds nothing
but Python's own files, glibc, this checkout and that folder. The device is simulated.

    pack_test.py BUILD     BUILD: the build folder with the simulated programs

Needs to be root, or user namespaces; skipped without.
"""
from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from pathlib import Path

from check_support import ROOT
from gpu_check import elf, pack, sources

BUILD = Path()
# Libraries that Python's modules may need besides glibc; our programs need none of them.
PYTHON_LIBRARIES = re.compile(r"libpython3.*|libffi\..*|linux-vdso.*|libcrypt\..*")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "test", "tests", "site-packages", "dist-packages",
                                  "ensurepip", "idlelib", "tkinter", "turtledemo", "lib2to3",
                                  "config-*", "lib-dynload", "*.a")
TESTS = "CudaBackend.*:*Training.Sizes*:*Operators.Refuse*:*Training.Labels*"
LIMITS = ["--quick", "--tests", TESTS]
ENV = {"PYTHONHOME": sys.base_prefix, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def libraries(program: Path) -> dict[str, str]:
    """Returns what the loader finds for a file: paths by name; the loader itself by its path."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^\s*(\S+) => (/\S+) ", done.stdout, re.M))
    found |= {each: each for each in re.findall(r"^\s*(/\S+) \(", done.stdout, re.M)}
    return found


def is_python_or_glibc(name: str) -> bool:
    name = Path(name).name
    return bool(elf.GLIBC.fullmatch(name) or PYTHON_LIBRARIES.fullmatch(name))


def enter(root: Path) -> list[str] | None:
    """How to start a program with another root directory, if that is possible here. The loader
    reads $ORIGIN from /proc."""
    script = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
    for user in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *user, "--mount", "sh", "-c", script, str(root)]
        try:
            done = subprocess.run([*command, sys.executable, "-c", "open('/proc/self/exe')"],
                                  capture_output=True, env=ENV, check=False)
        except OSError:
            return None
        if done.returncode == 0:
            return command
    return None


class InAnEmptyRoot(unittest.TestCase):
    def copy(self, source: Path) -> None:
        """A file, under the same name, in the new root."""
        target = self.root / str(source).lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)

    def copy_python(self) -> None:
        program = Path(sys.executable)
        wanted = [program.resolve()]
        for name in ("stdlib", "platstdlib"):
            folder = Path(sysconfig.get_path(name))
            target = self.root / str(folder).lstrip("/")
            if not target.exists():
                shutil.copytree(folder, target, ignore=LEFT_OUT)
        for module in Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so"):
            if all(is_python_or_glibc(name) for name in libraries(module)):
                wanted.append(module)
        for each in wanted:
            self.copy(each)
            for path in libraries(each).values():
                self.copy(Path(path))
        if program != program.resolve():
            link = self.root / str(program).lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(program.resolve(), link)

    def setUp(self) -> None:
        self.work = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.root = self.work / "root"
        self.copy_python()
        for name in ("dev", "proc", "tmp", "trace"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "dev" / "null").touch()  # a device is not needed to be read as empty
        for name in ("scripts", "bench", *sources.FOLDERS):
            shutil.copytree(ROOT / name, self.root / "kit" / name, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(ROOT / "CMakeLists.txt", self.root / "kit")
        command = enter(self.root)
        if command is None:
            print("SKIPPED: neither root nor user namespaces can change the root directory here")
            self.skipTest("no other root directory")
        self.enter = command

    def test_the_packed_folder_is_all_it_needs(self) -> None:
        packed = self.root / "packed"
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "gpu-check"), "--pack", str(packed),
             "--simulated", "--build", str(BUILD)], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for each in (packed / "bin").iterdir():
            self.assertEqual(elf.run_path(each), ("RPATH", pack.RUN_PATH))
        # Outside the pack, the root has only the libraries of the Python interpreter.
        names = {each.name for each in (packed / "lib").iterdir()}
        self.assertIn("libstdc++.so.6", names)
        names -= set(libraries(Path(sys.executable).resolve()))
        outside = [path for path in self.root.rglob("*") if path.name in names
                   and not path.is_relative_to(packed)]
        self.assertEqual(outside, [])

        env = {**ENV, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": "/trace/ld"}
        done = subprocess.run(
            [*self.enter, sys.executable, "/kit/scripts/gpu-check", "--binaries", "/packed",
             "--stage", "first", "--stage", "tests", "--report", "/report", *LIMITS], env=env,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("packed from other sources", done.stdout)
        report = json.loads((self.root / "report" / "simulated-device.json").read_text())
        self.assertEqual([(name, each["result"]) for name, each in report["stages"].items()],
                         [("first", "passed"), ("tests", "passed")])
        self.assertEqual(len(report["stages"]["first"]["lanes"]), 3)
        self.assertTrue(all(each["bits"]["kernels"] for each in report["stages"]["first"]["lanes"]))
        self.assertGreater(len(report["stages"]["tests"]["groups"]), 3)
        self.assertIn("cuDNN 9.19 from /packed/bin/../lib/libcudnn.so.9", report["libraries"])
        self.check_trace(packed)

    def check_trace(self, packed: Path) -> None:
        """Every library that one of our programs opened is glibc's or comes from the folder."""
        programs = 0
        for trace in (self.root / "trace").iterdir():
            text = trace.read_text(errors="replace")
            if not re.search(r"initialize program: /packed/bin/", text):
                continue
            programs += 1
            for path in re.findall(r"calling init: (\S+)", text):
                ours = path.startswith("/packed/bin/../lib/")
                self.assertTrue(ours or elf.GLIBC.fullmatch(Path(path).name), path)
        self.assertGreater(programs, 10)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1))
    unittest.main()
