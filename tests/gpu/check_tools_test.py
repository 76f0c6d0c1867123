# SPDX-License-Identifier: MIT
"""The parts of scripts/gpu-check that read other programs' output, and its stages around
compute-sanitizer and CMake. With the name of a gpu_test: also that the tests it names exist.

    check_tools_test.py [GPU_TEST]
"""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from check_support import WithStandIns, site, stand_in
from gpu_check import (bits_table, device, elf, gtest, kernels, ncu, pack, stage_sanitize,
                       stage_tests)
from gpu_check.arguments import Arguments
from gpu_check.build import PROGRAMS
from gpu_check.libraries import find_tool
from gpu_check.processes import Deadline, Job, OutputLog, run, run_all
from gpu_check.stop import Stop

GPU_TEST: str | None = None


class Processes(unittest.TestCase):
    def shell(self, text: str, timeout: float = 60.0) -> Job:
        return Job(text, ["bash", "-c", text], timeout)

    def test_outcomes_say_how_it_ended(self) -> None:
        for text, what in (("exit 0", "passed"), ("echo no; exit 3", "exit code 3: no"),
                           ("kill -SEGV $$", "killed by SIGSEGV"),
                           ("echo a >&2; echo b; exit 1", "exit code 1: a")):
            outcome = run(self.shell(text), Deadline(20.0), OutputLog())
            self.assertEqual(outcome.what(), what)
        nothing = run(Job("x", ["/no/such"]), Deadline(9.0), OutputLog())
        self.assertIn("cannot start /no/such: No such file", nothing.what())

    def test_a_program_is_stopped_with_what_it_started(self) -> None:
        start = time.monotonic()
        outcome = run(self.shell("trap '' TERM; echo begun; sleep 60 & wait; wait", timeout=0.3),
                      Deadline(20.0), OutputLog())
        self.assertEqual((outcome.stopped, outcome.cut, outcome.out), (True, False, "begun"))
        self.assertLess(time.monotonic() - start, 12.0)
        outcome = run(self.shell("sleep 60"), Deadline(0.3), OutputLog())
        self.assertEqual((outcome.stopped, outcome.cut), (True, True))

    def test_all_run_and_no_more_at_once(self) -> None:
        jobs = [self.shell(f"echo {i}; sleep 0.2") for i in range(6)]
        start = time.monotonic()
        outcomes = list(run_all(jobs, 3, Deadline(20.0), OutputLog()))
        self.assertEqual(sorted(each.out for each in outcomes), [str(i) for i in range(6)])
        self.assertGreater(time.monotonic() - start, 0.39)
        late = list(run_all([self.shell("sleep 9")] * 3, 1, Deadline(0.2), OutputLog()))
        self.assertEqual([each.stopped for each in late], [True, False, False])
        self.assertEqual(late[2].what(), "not run: the stage's time was over")

    def test_lines_come_whole_and_at_once(self) -> None:
        seen: list[tuple[str, bool]] = []
        job = self.shell("printf 'a'; sleep 0.1; printf 'b\\nc\\xff'; echo e >&2")
        job.on_line = lambda text, is_error: seen.append((text, is_error))
        run(job, Deadline(20.0), OutputLog())
        self.assertEqual(sorted(seen), [("ab", False), ("c\ufffd", False), ("e", True)])


class GoogleTest(unittest.TestCase):
    def test_lists(self) -> None:
        text = "Running main() from x.cc\nA/B.\n  C/Cuda_Conv  # GetParam() = 2\nD.\n  E\n"
        self.assertEqual(gtest.parse_list(text), ["A/B.C/Cuda_Conv", "D.E"])

    def test_results(self) -> None:
        text = ("[ RUN      ] A.B\n[       OK ] A.B (3 ms)\n[ RUN      ] A.C/Cuda\n"
                "a.cpp:7: Failure\nExpected: 1\n[  FAILED  ] A.C/Cuda, where GetParam() = 2 (1 ms)"
                "\n[ RUN      ] A.D\n[  SKIPPED ] A.D (0 ms)\n[  PASSED  ] 1 test.\n"
                "[  FAILED  ] A.C/Cuda, where GetParam() = 2\n[ RUN      ] A.E\n")
        results = gtest.parse_results(text)
        self.assertEqual((results.passed, results.failed, results.skipped, results.running),
                         (["A.B"], ["A.C/Cuda"], ["A.D"], "A.E"))
        self.assertEqual(results.notes, ["a.cpp:7: Failure", "Expected: 1"])

    def test_groups(self) -> None:
        for name, group in (("G/O.Bits/Cuda_Conv", "Conv"), ("G/T.Steps/Cuda", "G/T.Steps"),
                            ("G/T.Steps/Host", None), ("CudaBackend.A", "CudaBackend.A"),
                            ("X/LibrariesOnDevice.A/1", "X/LibrariesOnDevice.A/1"),
                            ("Divisor.A", None)):
            self.assertEqual(stage_tests.group_of(name), group, name)


class Kernels(unittest.TestCase):
    def test_lines_of_a_lane(self) -> None:
        text = ("cuda:p fc1 Gemm: cuBLASLt 13, [1 x 2 x 3] of fp16: tile 1\n"
                "cuda:p entry grad: not captured: a malloc: in a stream\nother fc1 Gemm: x\n"
                "note: lane cuda:p is lost\n")
        said = kernels.parse_lines(text, "cuda:p")
        self.assertEqual(said["products"], [["fc1", "Gemm",
                                             "cuBLASLt 13, [1 x 2 x 3] of fp16: tile 1"]])
        self.assertEqual(said["entries"], [["grad", "not captured: a malloc: in a stream"]])
        self.assertTrue(kernels.capture_failed(said["entries"][0][1]))
        self.assertFalse(kernels.capture_failed("launched one by one: a host loop"))

    def test_shapes_are_left_out(self) -> None:
        self.assertEqual(
            kernels.without_shape("cuDNN 9, forward of [2x1x28x28] with [16x1x3x3] in tf32: e 7"),
            "cuDNN 9, forward in tf32: e 7")

    def test_sites(self) -> None:
        own = kernels.check_site(site(differing=1))
        library = kernels.check_site(site(differing=1, kernel="k", unexplained="too long"))
        beyond = kernels.check_site(site(differing=1, kernel="k", beyond=1))
        self.assertEqual([own["fault"], library["fault"], beyond["fault"]], [True, False, True])
        self.assertIn("not explained: too long", library["text"])


class NsightCompute(unittest.TestCase):
    def test_pages_in_rows_and_in_columns(self) -> None:
        raw = ('==PROF== x\n"ID","Kernel Name","Grid Size","gpu__time_duration.sum",'
               '"launch__registers_per_thread"\n"","","","us","register/thread"\n'
               '"0","a","(1, 1, 1)","1,002.5","40"\n"1","b","(1, 1, 1)","n/a","41"\n')
        first, second = ncu.parse(raw)
        self.assertEqual(first.metrics, {ncu.TIME: 1002.5, ncu.REGISTERS: 40.0})
        self.assertEqual(second.metrics, {ncu.REGISTERS: 41.0})
        self.assertEqual(ncu.parse("==ERROR== no"), [])
        self.assertEqual(ncu.parse('"ID","Other"\n"0","1"\n'), [])

    def test_names_are_short(self) -> None:
        self.assertEqual(ncu.short_name("void halfscope::gpu::run_items<halfscope::gpu::"
                                        "(anonymous namespace)::Round<float, A<B<C<int>>>>>(int)"),
                         "run_items<Round<float, A<B<..>>>>")
        self.assertEqual(ncu.short_name("plain_kernel"), "plain_kernel")
        self.assertLessEqual(len(ncu.short_name("k" * 300)), ncu.MOST_LENGTH)

    def test_the_last_step_is_found(self) -> None:
        names = ["setup", "x", "a", "b", "x", "a", "b"]
        launches = [ncu.Launch(name) for name in names]
        self.assertEqual(ncu.last_step(launches, 2), (4, 3))
        self.assertIsNone(ncu.last_step([ncu.Launch("a")], 2))


class Elf(unittest.TestCase):
    def test_run_paths_are_replaced_in_place(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        source, program = folder / "a.c", folder / "a"
        source.write_text("int main(void) { return 0; }\n")
        made = subprocess.run(["cc", str(source), "-o", str(program), "-Wl,--enable-new-dtags",
                               f"-Wl,-rpath,{folder}/some/longer/folder"], check=False)
        if made.returncode:
            self.skipTest("no C compiler")
        self.assertEqual(elf.run_path(program), ("RUNPATH", f"{folder}/some/longer/folder"))
        self.assertTrue(elf.set_run_path(program, pack.RUN_PATH))
        self.assertEqual(elf.run_path(program), ("RPATH", pack.RUN_PATH))
        self.assertFalse(elf.set_run_path(program, "x" * 999))
        self.assertEqual(subprocess.run([str(program)], check=False).returncode, 0)
        self.assertGreaterEqual(elf.glibc_needed(program), (2, 2))

    def test_libraries_of_the_system_stay_there(self) -> None:
        there = Path("/lib/x")
        for name, packed in (("libc.so.6", False), ("ld-linux-x86-64.so.2", False),
                             ("libcuda.so.1", False), ("libnvidia-ml.so.1", False),
                             ("libcublasLt.so.13", False), ("libcudnn.so.9", False),
                             ("libcrypto.so.3", True), ("libstdc++.so.6", True),
                             ("libcudart.so.13", True)):
            self.assertEqual(pack.belongs_in_pack(name, there, Path("/build")), packed, name)
        self.assertTrue(pack.belongs_in_pack("libcudnn.so.9", Path("/build/t/libcudnn.so.9"),
                                             Path("/build")))


class Packing(unittest.TestCase):
    def setUp(self) -> None:
        self.work = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.folder = self.work / "pack"

    def content(self) -> list[str]:
        return sorted(each.relative_to(self.work).as_posix() for each in self.work.rglob("*")
                      if each.is_file())

    def put(self, name: str, text: str = "") -> None:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def packed(self) -> None:
        """A folder that was packed earlier."""
        self.put("pack/bin/halfscope")
        members = {name: kind() for name, kind in pack.MEMBERS.items()}
        self.put("pack/manifest.json", json.dumps(
            {**members, "schema": pack.SCHEMA, "files": pack.files_of(self.folder)}))

    def test_leaves_folders_that_it_did_not_write(self) -> None:
        self.put("pack/bin/tool")
        for build_folder in (Path("/nonexistent"), None):
            with self.assertRaisesRegex(Stop, "not empty, and --pack did not write it"):
                pack.pack(Arguments(pack=self.folder, build=build_folder))
        self.put("pack/manifest.json", '{"schema": "halfscope.gpu-pack/1"}')
        with self.assertRaisesRegex(Stop, "did not write it"):
            pack.check_target(self.folder)
        self.assertEqual(self.content(), ["pack/bin/tool", "pack/manifest.json"])
        shutil.rmtree(self.folder)
        self.packed()
        pack.check_target(self.folder)
        self.put("pack/bin/mine.txt")
        with self.assertRaisesRegex(Stop, "did not write, such as 'bin/mine.txt'"):
            pack.check_target(self.folder)
        self.put("pack.partial/mine.txt")
        with self.assertRaisesRegex(Stop, "pack.partial' is in the way"):
            with pack.replacing(self.work / "pack"):
                pass
        self.assertIn("pack.partial/mine.txt", self.content())

    def test_replaces_a_pack_when_the_new_one_is_complete(self) -> None:
        self.packed()
        self.put(f"pack.partial/{pack.MARKER}")  # of a call that was killed
        before = ["pack/bin/halfscope", "pack/manifest.json"]
        with self.assertRaisesRegex(Stop, "is not a build folder"):
            pack.pack(Arguments(pack=self.folder, build=Path("/nonexistent")))
        with self.assertRaises(KeyboardInterrupt):
            with pack.replacing(self.folder) as new:
                (new / "new.txt").touch()
                raise KeyboardInterrupt
        self.assertEqual(self.content(), before)
        with pack.replacing(self.folder) as new:
            (new / "new.txt").touch()
            self.assertTrue((self.folder / "manifest.json").exists())
        self.assertEqual(self.content(), ["pack/new.txt"])
        self.assertEqual([each.name for each in self.work.iterdir()], ["pack"])

    def test_a_refused_build_folder_leaves_nothing(self) -> None:
        (self.work / "build" / "bin").mkdir(parents=True)
        for simulated, hint in ((False, "build it first"), (True, "HALFSCOPE_CUDA=TOOLKIT")):
            with self.assertRaisesRegex(Stop, f"not found\n.*{hint}"):
                pack.pack(Arguments(pack=self.folder, build=self.work / "build",
                                    simulated=simulated))
        self.assertEqual([each.name for each in self.work.iterdir()], ["build"])

    def test_refuses_programs_that_were_compiled_for_a_check(self) -> None:
        build = self.work / "build"
        (build / "bin").mkdir(parents=True)
        (build / "CMakeCache.txt").write_text("HALFSCOPE_CUDA:STRING=CHECK\n")
        with self.assertRaisesRegex(Stop, "is slow.*\n.*HALFSCOPE_CUDA=ON"):
            pack.pack(Arguments(pack=self.folder, build=build))
        with self.assertRaisesRegex(Stop, "not found"):  # a simulated device does not mind
            pack.pack(Arguments(pack=self.folder, build=build, simulated=True))

    def test_needs_programs_that_look_beside_themselves(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            build = Path(name, "build")
            (build / "bin").mkdir(parents=True)
            arguments = Arguments(pack=Path(name, "pack"), build=build)
            with self.assertRaisesRegex(Stop, "bin/halfscope' not found"):
                pack.pack(arguments)
            for each in PROGRAMS:
                shutil.copy2(Path(sys.executable).resolve(), build / "bin" / each)
            if elf.run_path(build / "bin" / "halfscope") is None:
                with self.assertRaisesRegex(Stop, "without a run path.*\n.*CMAKE_BUILD_RPATH"):
                    pack.pack(arguments)


class Architectures(unittest.TestCase):
    def test_fit(self) -> None:
        def fits(capability: str, architecture: str) -> bool:
            return not device.mismatch(device.Device("d", capability, ""), architecture)
        for capability, architecture, good in (
                ("9.0", "90-real", True), ("9.0", "90", True), ("9.0", "80", True),
                ("9.0", "80-real", False), ("8.9", "80-real", True), ("8.0", "90", False),
                ("9.0", "80-real;90", True), ("10.0", "90a", False), ("12.0", "90", True),
                ("9.0", "native", True)):
            self.assertEqual(fits(capability, architecture), good, (capability, architecture))


class Bits(unittest.TestCase):
    def test_the_worst_case_counts(self) -> None:
        table = bits_table.BitsTable({})
        for verdict in ("equal", "error: a", "differs: b", "equal"):
            table.add("Conv", "case", "fp16", verdict)
        table.add("Relu", "case", "bf16", "what?")
        self.assertEqual(bits_table.grid(table.data, {"Relu": "1 failed"}),
                         ["bits  1", "Conv  !.", "Relu  .!  1 failed"])


class Sanitizer(WithStandIns):
    """Uses none of this machine's tools: a stand-in comes first on PATH."""

    def setUp(self) -> None:
        super().setUp()
        tests = stage_sanitize.OWN_TESTS
        self.put("list", "Gpu/O.\n" + "".join(f"  {name}/Cuda\n  {name}/Host\n" for name in tests)
                 + "LibrariesOnDevice.\n  AreNearTheEmulatorAndRepeatTheirBits\n")

    def sanitizer(self, *lines: str) -> None:
        stand_in(self.work / "tools" / "compute-sanitizer",
                 'echo "$*" >> "$FAKE/calls"\n' + "\n".join(lines) + "\n")

    def sanitize(self, code: int, *more: str) -> dict[str, str]:
        self.check(code, "--stage", "sanitize", *more)
        tools = self.stage("sanitize")["tools"]
        assert isinstance(tools, dict)
        return tools

    def test_no_errors(self) -> None:
        self.sanitizer('while [[ $1 == --* ]]; do if [[ $1 == --report-api-errors || $1 == --tool '
                       '|| $1 == --error-exitcode || $1 == --print-limit ]]; then shift; fi; '
                       'shift; done', '"$@"')
        tools = self.sanitize(0)
        self.assertRegex(tools["memcheck"], r"^no errors \(9 tests, ")
        self.assertRegex(tools["racecheck"], r"^no errors \(8 tests, ")
        self.assertRegex(tools["synccheck"], r"^no errors \(8 tests, ")

    def test_errors(self) -> None:
        self.sanitizer('if [[ $* == *racecheck* ]]; then',
                       'echo "========= Error: Race reported between Write access"',
                       'echo "========= RACECHECK SUMMARY: 1 hazard"; exit 99; fi')
        tools = self.sanitize(1)
        self.assertRegex(tools["racecheck"], "^errors: .*Race reported between")
        self.assertEqual(tools["memcheck"], "0 of 9 tests passed, the others did not run")

    def test_time(self) -> None:
        self.sanitizer('echo "========= Invalid __global__ read of size 4 bytes"; sleep 60')
        tools = self.sanitize(1, "--limit", "2")
        self.assertRegex(tools["memcheck"], "^errors: 1 Invalid __global__ read")
        self.sanitizer("sleep 60")
        tools = self.sanitize(0, "--limit", "2")
        self.assertRegex(tools["memcheck"], "^stopped after 1 s, no errors until then$")
        self.assertIn("not checked: all tests under memcheck, because it was stopped",
                      self.markdown())

    def test_a_tool_that_does_not_start(self) -> None:
        self.sanitizer('echo "no device"; exit 1')
        self.assertEqual(self.sanitize(1)["memcheck"], "exit code 1: no device")
        self.put("list", "Gpu/O.\n  MakeTheSameIndices/Cuda\n")
        self.assertIn("gpu_test has no test SumAsTensorCoresDo",
                      self.check(1, "--stage", "sanitize"))

    @unittest.skipIf(find_tool("compute-sanitizer"), "this machine has one")
    def test_without_the_tool_it_says_so(self) -> None:
        out = self.check(0, "--stage", "sanitize")
        self.assertIn("because compute-sanitizer is not on this machine", out)

    def test_the_tests_exist(self) -> None:
        if GPU_TEST is None:
            self.skipTest("no gpu_test was named")
        listed = subprocess.run([GPU_TEST, "--gtest_list_tests"], capture_output=True, text=True,
                                check=True)
        names = gtest.parse_list(listed.stdout)
        for wanted in (stage_sanitize.OWN_TESTS, stage_sanitize.LIBRARY_TESTS):
            chosen, unknown = stage_sanitize.choose(names, wanted)
            self.assertEqual(unknown, [])
            self.assertTrue(chosen)
        groups = stage_tests.groups_of(names)
        self.assertGreater(len(groups), 10)
        self.assertIn("CudaBackend.SaysWhatIsMissing", groups)


class Build(WithStandIns):
    """The fallback, with a CMake that notes its arguments and copies the stand-ins."""

    def setUp(self) -> None:
        super().setUp()
        stand_in(self.work / "tools" / "nvidia-smi", "echo 'GPU 0: NVIDIA Test 100'\n")
        self.programs(self.work / "built")
        stand_in(self.work / "tools" / "cmake", r"""
echo "cmake $*" >> "$FAKE/cmakes"
if [[ -e $FAKE/no-build ]]; then exit 1; fi
case $1 in
  --build) mkdir -p "$2/bin"; cp "$FAKE/../built/"* "$2/bin" ;;
  *) while (($# > 0)); do if [[ $1 == -B ]]; then mkdir -p "$2"; build=$2; fi; shift; done
    for name in CUBLASLT CUDNN; do
      if [[ ! -e $FAKE/no-$name ]]; then echo "HALFSCOPE_${name}_INCLUDE:PATH=/x"; fi
    done > "$build/CMakeCache.txt" ;;
esac
""")

    def test_once_for_the_same_sources(self) -> None:
        self.check(0, "--stage", "tests", packed=False)
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=native", self.told("cmakes"))
        self.assertIn("-DHALFSCOPE_WERROR=OFF -DCMAKE_CUDA_FLAGS= ", self.told("cmakes"))
        self.assertIn("-DCMAKE_BUILD_RPATH=$ORIGIN/../lib", self.told("cmakes"))
        self.assertIn("commit abc1234, built on this machine", self.markdown())
        self.put("cmakes")
        self.check(0, "--stage", "bench", packed=False)
        self.assertEqual(self.told("cmakes"), "")
        self.assertEqual(list(self.report()["stages"]), ["tests", "bench"])
        (self.repo / "core" / "a.cpp").write_text("int b;\n")
        self.check(0, "--stage", "bench", packed=False)
        self.assertIn("cmake --build", self.told("cmakes"))
        self.assertEqual(list(self.report()["stages"]), ["bench"])

    def test_again_for_another_gpu(self) -> None:
        for capability, arch in (("9.0", "90-real"), ("8.0", "80-real"), ("8.0", "")):
            stand_in(self.work / "tools" / "nvidia-smi",
                     f'if [[ $1 == -L ]]; then echo "GPU 0: x"; else echo {capability}; fi\n')
            self.doctor(devices=[{"name": "NVIDIA Test 100", "compute_capability": capability}])
            self.put("cmakes")
            self.check(0, "--stage", "tests", packed=False)
            if arch:
                self.assertIn(f"-DCMAKE_CUDA_ARCHITECTURES={arch} ", self.told("cmakes"))
            else:
                self.assertEqual(self.told("cmakes"), "")

    def test_without_a_report_none_is_mentioned(self) -> None:
        for more in ([], ["--pack", str(self.work / "new")]):
            (self.fake / "builds").unlink(missing_ok=True)
            stand_in(self.work / "tools" / "cmake", 'touch "$FAKE/builds"; exec sleep 5\n')
            process = subprocess.Popen(
                self.command(*more, packed=False), env=self.env, text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self.addCleanup(process.kill)
            while not (self.fake / "builds").exists() and process.poll() is None:
                time.sleep(0.05)
            process.terminate()
            assert process.stderr is not None
            self.assertEqual(process.stderr.read(), "gpu-check: stopped by SIGTERM\n")
            process.stderr.close()
            self.assertEqual(process.wait(), 1)

    def test_that_fails_says_what_to_do(self) -> None:
        self.put("no-build")
        self.assertIn("scripts/gpu-check --pack DIR", self.check(1, packed=False))
        (self.fake / "no-build").unlink()
        self.put("no-CUDNN")
        self.assertIn("cudnn_version.h was not found", self.check(1, packed=False))


class Libraries(WithStandIns):
    def test_of_python_packages_are_found(self) -> None:
        site_packages = self.work / "site"
        for package, library in (("cu13", "libcublasLt.so.13"), ("cudnn", "libcudnn.so.9")):
            folder = site_packages / "nvidia" / package / "lib"
            folder.mkdir(parents=True)
            (folder / library).touch()
        self.env["PYTHONPATH"] = str(site_packages)
        self.env["LD_LIBRARY_PATH"] = "/own"
        self.doctor(cublas_lt=None, cudnn=None)
        program = self.packed / "bin" / "halfscope"
        program.write_text(program.read_text().replace(
            "case $1 in", 'echo "${LD_LIBRARY_PATH-}" >> "$FAKE/paths"\ncase $1 in', 1))
        self.manifest()
        self.check(0, "--stage", "tests")
        self.assertIn(f"{site_packages}/nvidia/cudnn/lib:{site_packages}/nvidia/cu13/lib:/own",
                      self.told("paths"))


if __name__ == "__main__":
    if len(sys.argv) > 1 and "/" in sys.argv[1]:
        GPU_TEST = sys.argv.pop(1)
    unittest.main()
