# SPDX-License-Identifier: MIT
"""What scripts/gpu-check makes of its stages: results, tables, what could not be checked, and what
is left of a call that is killed. With stand-ins for the GPU and everything built for it."""
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from check_support import DEVICE, KERNELS, LIST, WithStandIns, site, stand_in
from gpu_check import pack
from gpu_check.libraries import find_tool

CONV = "Gpu/OperatorBits.HaveTheBitsOfTheEmulator/Cuda_Conv"
RELU = "Gpu/OperatorBits.HaveTheBitsOfTheEmulator/Cuda_Relu"


class Arguments(WithStandIns):
    def test_wrong_ones_are_usage_errors(self) -> None:
        for arguments in (["--stage", "all"], ["--stage"], ["--limit", "soon"], ["more"],
                          ["--arch", "90"], ["--simulated"], ["--build", "b"],
                          ["--pack", "p", "--stage", "first"]):
            self.check(2, *arguments)
        self.check(2, "--pack", "p", "--simulated", packed=False)
        self.check(2, "--pack", "p", "--arch", "hopper", packed=False)
        out = self.check(2, "--pack", "p", "--arch", "80", "--build", "b", packed=False)
        self.assertEqual(out, "gpu-check: --arch decides what is built; with --build nothing is "
                         "built\nhint: see scripts/gpu-check --help\n")
        self.assertIn("--binaries DIR", self.check(0, "--help"))


class PackedFolder(WithStandIns):
    def test_must_be_whole(self) -> None:
        (self.packed / "bin" / "gpu_test").write_text("#!/bin/sh\n")
        self.assertIn("bin/gpu_test has changed", self.check(2, "--stage", "tests"))
        (self.packed / "bin" / "gpu_test").unlink()
        self.assertIn("bin/gpu_test not found", self.check(2, "--stage", "tests"))
        self.manifest(schema="halfscope.gpu-pack/0")
        self.assertIn("another version", self.check(2))
        self.manifest(glibc=2.2)
        self.assertIn("'glibc' is missing or of the wrong type", self.check(2))
        self.manifest(files=[{"path": "bin/gpu_test"}])
        self.assertIn("no path or no sha256", self.check(2))
        for name in pack.MEMBERS:
            self.manifest(**{name: None})
            self.assertIn(f"'{name}' is missing", self.check(2))
        (self.packed / "manifest.json").write_text("{")
        self.assertIn("cannot read", self.check(2))
        (self.packed / "manifest.json").unlink()
        self.assertIn("manifest.json not found", self.check(2))

    def test_may_be_of_other_sources(self) -> None:
        self.manifest(sources="0123456789abcdef", commit="fedcba9")
        out = self.check(0, "--stage", "tests")
        self.assertIn("packed from other sources (0123456789abcdef, commit fedcba9)", out)
        self.assertIn("commit fedcba9", self.markdown())
        self.assertIn("packed from other sources", self.markdown())

    def test_warns_where_programs_may_not_start(self) -> None:
        self.manifest(glibc="99.0", architecture="80-real")
        out = self.check(0, "--stage", "tests")
        self.assertIn("the packed programs need 99.0", out)
        self.assertIn("built for compute capability 80-real", out)
        self.assertIn(f"{DEVICE} has 9.0", self.markdown())

    def test_runs_from_anywhere_and_read_only(self) -> None:
        moved = self.work / "other place"
        os.rename(self.packed, moved)
        for path in (moved / "bin", moved):
            path.chmod(0o555)
        try:
            self.packed = moved
            self.check(0, "--stage", "tests")
        finally:
            for path in (moved, moved / "bin"):
                path.chmod(0o755)


class Device(WithStandIns):
    def test_without_a_gpu_nothing_is_checked(self) -> None:
        self.doctor(state="no_driver", devices=[])
        self.put("doctor-text", "no NVIDIA driver is loaded")
        self.assertIn("no NVIDIA driver is loaded", self.check(3))
        self.assertFalse((self.repo / "docs").exists())
        stand_in(self.work / "tools" / "nvidia-smi", "exit 9\n")
        self.assertIn("no NVIDIA GPU is visible", self.check(3, packed=False))

    def test_programs_that_do_not_start_say_why(self) -> None:
        stand_in(self.packed / "bin" / "halfscope", "echo 'GLIBC_2.99 not found' >&2; exit 1\n")
        self.manifest()
        self.assertIn("GLIBC_2.99 not found", self.check(1))

    def test_a_library_that_is_missing_is_told(self) -> None:
        self.doctor(cudnn=None, nccl=None)
        out = self.check(0, "--stage", "tests")
        for line in ("not checked: products by cuDNN, because libcudnn.so.9 was not found",
                     "not checked: messages by NCCL, because libnccl.so.2 was not found"):
            self.assertIn(line, out)
            self.assertIn(line, self.markdown())
        self.assertIn("cuBLASLt 13.1 from", self.markdown())

    def test_another_device_has_a_report_of_its_own(self) -> None:
        self.check(0, "--stage", "tests")
        self.doctor(devices=[{"name": "NVIDIA Other", "compute_capability": "9.0"}])
        self.check(0, "--stage", "bench")
        self.assertEqual(list(self.report("nvidia-other")["stages"]), ["bench"])
        self.assertEqual(list(self.report()["stages"]), ["tests"])


class First(WithStandIns):
    def first(self, code: int = 0) -> str:
        return self.check(code, "--stage", "first")

    def test_tells_kernels_graphs_and_bits(self) -> None:
        self.first()
        self.assertEqual(self.stage("first")["result"], "passed")
        text = self.markdown()
        self.assertIn("grad: CUDA graph; update: launched one by one", text)
        self.assertIn("| Gemm | 2 | cuBLASLt 13.1.0, fp16 and fp16: algorithm 66 |", text)
        self.assertIn("99.900% equal", text)
        self.assertIn("100.000% explained by fp32", text)
        self.assertIn("| resnet20 | cuda-fast | passed | 1.5 |", text)
        self.assertEqual(self.told("trains").count("--no-record"), 6)
        self.assertEqual(self.told("trains").count("--compare"), 6)
        self.assertNotIn("not checked: whether", text)

    def test_a_graph_that_is_not_captured_fails(self) -> None:
        self.put("kernels", KERNELS.replace("CUDA graph", "not captured: cudaMalloc in a stream"))
        out = self.first(1)
        self.assertIn("entry grad not captured: cudaMalloc in a stream", out)
        self.assertIn("not captured: cudaMalloc in a stream", self.markdown())

    def test_silence_about_graphs_is_told(self) -> None:
        self.put("kernels", KERNELS.partition("entry")[0])
        self.assertIn("not checked: whether resnet20 on cuda runs as CUDA graphs", self.first())

    def test_a_backend_that_dies_leaves_the_others(self) -> None:
        self.put("crash-cuda")
        self.put("refuse-cuda-own")
        out = self.first(1)
        self.assertIn("resnet20 on cuda: killed by SIGSEGV", out)
        self.assertIn("resnet20 on cuda-own: exit code 3: error: no memory", out)
        self.assertIn("| resnet20 | cuda-fast | passed |", self.markdown())
        self.assertEqual(self.stage("first")["result"], "failed")

    def test_bits_are_judged(self) -> None:
        for faulty in (site(differing=1), site(kernel="cuBLASLt", differing=1, beyond=1)):
            self.sites(faulty)
            self.assertIn("kernel fault at fc1.activation", self.first(1))
            self.assertIn("KERNEL FAULT", self.markdown())
        self.sites()
        self.put("other-losses")
        self.assertIn("resnet20 on cuda-own: 20 of 20 losses differ", self.first(1))
        (self.fake / "other-losses").unlink()
        self.put("report.json", '{"kernels": []}')
        self.assertIn("no kernel was compared with the emulator", self.first(1))
        self.put("steps", "7")
        self.assertIn("7 of 20 steps are in the run file", self.first(1))

    def test_ends_in_time_with_what_it_has(self) -> None:
        self.put("hang-cuda-fast")
        out = self.check(1, "--stage", "first", "--limit", "3")
        self.assertIn("first     cut off", out)
        self.assertIn("stopped after 3 s", self.markdown())
        self.assertIn("| mlp:784-512-512-10 | cuda | passed |", self.markdown())

    def test_bits_that_take_too_long_are_told_as_far_as_they_got(self) -> None:
        self.put("hang-bits")
        path = self.repo / "scripts" / "gpu_check" / "stage_first.py"
        path.write_text(path.read_text().replace("KEPT_SECONDS = 15.0", "KEPT_SECONDS = 2.0"))
        out = self.check(1, "--stage", "first", "--limit", "6")
        self.assertIn("6 of 6 comparisons of bits did not come to their end", out)
        self.assertIn("| 99.900% of 1 tensors | 1 of 1 |", self.markdown())
        self.assertIn("any bits of mlp:784-512-512-10 on cuda-own, because no step was", out)
        self.assertEqual(self.stage("first")["failures"], [])

    def test_cudnn_is_probed(self) -> None:
        name = "CudnnProbe.TellsTheEngineOfEveryConvolution"
        row = "cudnn\\tlenet\\tfloat32\\tcuda\\tconv1 Conv\\t2 proposed\\t"
        self.makes(name, f"printf '{row}cuDNN 9: engine 7\\ta, b\\n'",
                   f"printf '{row}own kernel; cuDNN: no engine\\t\\n'",
                   f'echo "[       OK ] {name} (0 ms)"')
        self.first()
        self.assertIn("cuDNN runs 1 of 2 convolutions", self.markdown())
        self.assertIn("not cuDNN: lenet float32 cuda conv1 Conv: own kernel; cuDNN: no engine",
                      self.markdown())
        self.makes(name, "echo 'a.cpp:1: Skipped'", "echo 'cuDNN is not installed'",
                   f'echo "[  SKIPPED ] {name} (0 ms)"')
        self.assertIn("because cuDNN is not installed", self.first())
        self.makes(name, "echo 'a.cpp:1: Failure'", "echo 'none: 3'",
                   f'echo "[  FAILED  ] {name} (0 ms)"', "code=1")
        self.assertIn("none: 3", self.first(1))


class Tests(WithStandIns):
    def run_tests(self, code: int = 0, *more: str) -> str:
        return self.check(code, "--stage", "tests", *more)

    def test_one_process_per_operator(self) -> None:
        self.run_tests()
        filters = sorted(self.told("filters").split())
        self.assertEqual(filters, sorted([
            f"{CONV}:Gpu/OperatorSpecials.TreatSpecialValuesAlike/Cuda_Conv", RELU,
            "CudaBackend.SaysWhatIsMissing", "Gpu/Training.InferenceIsTheEmulators/Cuda"]))
        self.assertIn("4 of 4 processes passed", self.markdown())
        self.assertIn("not checked: the table of operators", self.markdown())

    def test_the_table_shows_what_differs(self) -> None:
        self.makes(CONV, self.compared("Conv", "a", "fp16 fp32", "equal"),
                       self.compared("Conv", "b", "fp16 fp32", "differs: y[3] is 1, not 2"),
                       self.compared("Conv", "a", "bf16 fp32", "error: no kernel"),
                       f'echo "[  FAILED  ] {CONV} (0 ms)"', "code=1")
        self.makes(RELU, self.compared("Relu", "a", "fp16 fp32", "equal"),
                       self.compared("mma special values", "Inf times 0", "fp16", "differs: NaN"),
                       f'echo "[       OK ] {RELU} (0 ms)"')
        out = self.run_tests(1)
        self.assertRegex(out, r"(?m)^bits  1$")
        self.assertRegex(out, r"(?m)^Conv  x!  1 failed$")
        self.assertRegex(out, r"(?m)^Relu  =\.$")
        text = self.markdown()
        self.assertIn("- bits: 1 fp16 fp32; 2 bf16 fp32", text)
        self.assertIn("| Conv | fp16 fp32 | b | differs: y[3] is 1, not 2 |", text)
        self.assertIn("0 of 1 as the model computes them", text)
        self.assertIn("| Inf times 0 | fp16 | differs: NaN |", text)
        self.assertEqual(self.stage("tests")["groups"]["Relu"]["result"], "passed")
        self.assertEqual(self.stage("tests")["cells"]["Conv"],
                         {"fp16 fp32": "x", "bf16 fp32": "!"})

    def test_the_table_has_a_part_for_each_kind_of_comparison(self) -> None:
        rows = [self.compared("Relu", "a", f"variant {i}", "equal") for i in range(12)]
        rows.append(self.compared("Relu", "a", "many tiles, fp16", "equal"))
        self.makes(RELU, *rows, f'echo "[       OK ] {RELU} (0 ms)"')
        out = self.run_tests()
        self.assertIn("bits        1          11\nConv        .......... ..\n"
                      "Relu        ========== ==\n\nmany tiles  1\nRelu        =\n", out)
        self.assertIn("- many tiles: 1 fp16", out)

    def test_special_values_alone_do_not_fail(self) -> None:
        self.makes(RELU, self.compared("mma special values", "NaN", "fp16", "differs: 0"),
                       f'echo "[       OK ] {RELU} (0 ms)"')
        self.run_tests()

    def test_a_difference_fails_although_the_test_passes(self) -> None:
        self.makes(RELU, self.compared("Relu", "a", "fp16", "differs: all"),
                       f'echo "[       OK ] {RELU} (0 ms)"')
        self.assertIn("1 comparisons differ", self.run_tests(1))

    def test_goes_on_after_a_crash(self) -> None:
        self.makes(CONV, self.compared("Conv", "a", "fp16", "equal"), "kill -ABRT $$")
        out = self.run_tests(1)
        self.assertIn(f"Conv: crashed, killed by SIGABRT in {CONV}", out)
        groups = self.stage("tests")["groups"]
        self.assertEqual(len(groups), 4)
        self.assertEqual(sum(each["result"] == "passed" for each in groups.values()), 3)
        self.assertRegex(out, r"(?m)^Conv +=")

    def test_skipped_and_missing_tests_fail(self) -> None:
        self.makes(RELU, "echo 'a.cpp:1: Skipped'", "echo 'no GPU here'",
                       f'echo "[  SKIPPED ] {RELU} (0 ms)"')
        self.assertIn("Relu: 1 skipped; no GPU here", self.run_tests(1))
        self.makes(RELU, ":")
        self.assertIn("Relu: 0 of 1 tests passed", self.run_tests(1))
        self.put("list", LIST.replace("Cuda", "Cpu"))
        self.assertIn("lists no test that needs a device", self.run_tests(1))

    def test_one_that_hangs_ends_with_the_stage(self) -> None:
        self.makes(CONV, self.compared("Conv", "a", "fp16", "equal"), "sleep 60")
        out = self.run_tests(1, "--limit", "2")
        self.assertIn("Conv: stopped after 2 s", out)
        data = self.stage("tests")
        self.assertEqual(data["result"], "cut off")
        self.assertIn("1 of 4 processes did not end: Conv", data["why"])
        self.assertEqual(data["cells"]["Conv"], {"fp16": "="})

    def test_a_part_is_told_to_be_one(self) -> None:
        self.assertIn("not checked: all tests, because --tests chose '*Conv'",
                      self.run_tests(0, "--tests", "*Conv"))


class Profile(WithStandIns):
    HEAD = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
            '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
            '"Metric Value"')

    def ncu(self, *names: str) -> None:
        lines = ["==PROF== Connected to process 1", self.HEAD]
        for i, name in enumerate(names):
            start = f'"{i}","1","h","h","{name}","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","c"'
            lines += [f'{start},"gpu__time_duration.sum","ns","1,{i}00.0"',
                      f'{start},"dram__throughput.avg.pct_of_peak_sustained_elapsed","%","40"']
        self.put("ncu.csv", "\n".join(lines) + "\n")
        stand_in(self.work / "tools" / "ncu", 'echo "$*" >> "$FAKE/ncus"; cat "$FAKE/ncu.csv"\n')

    def test_ranks_the_kernels_of_the_last_step(self) -> None:
        self.ncu("setup", "void gemm<float>(int)", "loss", "void gemm<float>(int)", "loss")
        out = self.check(0, "--stage", "profile")
        self.assertIn("resnet20 on cuda-fast: 2 kernels, 3 us", out)
        row = self.stage("profile")["profiles"][0]["rows"][0]
        self.assertEqual((row["kernel"], row["count"], row["us"]), ("loss", 1, 1.4))
        self.assertIn("| `gemm<float>` | 1 | 1.3 | 48.1% | 40% |", self.markdown())
        self.assertIn("--launch-skip 3 --launch-count 2", self.told("ncus"))
        self.assertIn("--clock-control none", self.told("ncus"))
        self.assertEqual(len(self.told("ncus").splitlines()), 12)

    def test_what_cannot_be_read_is_kept(self) -> None:
        stand_in(self.work / "tools" / "ncu", "echo '==ERROR== The application returned an error "
                 "code (3)'; echo 'other text'; exit 1\n")
        self.assertIn("no kernel was measured", self.check(1, "--stage", "profile"))
        self.assertIn("==ERROR== The application returned an error code (3)\nother text",
                      self.markdown())

    def test_a_profiler_that_may_not_is_told(self) -> None:
        stand_in(self.work / "tools" / "ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; "
                 'echo x >> "$FAKE/ncus"; exit 1\n')
        out = self.check(0, "--stage", "profile")
        self.assertIn("not checked: kernel times, because ncu cannot profile here: "
                      "ERR_NVGPUCTRPERM - no permission", out)
        self.assertEqual(self.told("ncus"), "x\n")

    @unittest.skipIf(find_tool("ncu"), "this machine has one")
    def test_without_the_tool_it_says_so(self) -> None:
        out = self.check(0, "--stage", "profile")
        self.assertIn("not checked: kernel times, because ncu (Nsight Compute) is not", out)
        self.assertEqual(self.stage("profile")["result"], "not run")


class Bench(WithStandIns):
    def test_lines_are_in_the_report(self) -> None:
        out = self.check(0, "--stage", "bench")
        for text in ("lenet mixed_float16 PyTorch   1.5", "fc1 forward 0.25",
                     "fp16, [512 x 4096] times [4096 x 10]", "a tree of fprev --backend cuda"):
            self.assertIn(text, out)
            self.assertIn(text, self.markdown())
        self.assertIn(f"--torch-script {self.packed}/bench/torch_gpu_step.py",
                      self.told("bench-arguments"))
        self.assertEqual(sum(each["kind"] == "row" for each in self.log()), 4)

    def test_errors_of_pytorch_are_told(self) -> None:
        self.put("pytorch-fails")
        line = "PyTorch failed: CUDA error: no kernel image"
        self.assertIn(f"not checked: a step against PyTorch, because {line}",
                      self.check(0, "--stage", "bench"))
        self.assertIn(line, self.markdown())
        (self.fake / "pytorch-fails").unlink()
        self.put("pytorch-silent")
        self.assertIn("gpu_step_bench printed no time of PyTorch",
                      self.check(0, "--stage", "bench"))
        (self.work / "torch.py").write_text("raise ImportError('libcudart.so.13 not found')\n")
        self.env["PYTHONPATH"] = str(self.work)
        self.assertIn("libcudart.so.13 not found", self.check(0, "--stage", "bench"))

    def test_failures_fail(self) -> None:
        self.put("bench", "3")
        self.assertIn("gpu_step_bench: exit code 3", self.check(1, "--stage", "bench"))
        self.assertIn("lenet mixed_float16 cuda   0.5", self.markdown())
        self.put("bench", "0")
        self.put("no-orders")
        self.assertIn("found no order at all", self.check(1, "--stage", "bench"))

    def test_stops_in_time(self) -> None:
        self.put("hang-bench")
        out = self.check(0, "--stage", "bench", "--limit", "5")
        self.assertIn("not checked: the rest of gpu_step_bench, because it was stopped", out)
        self.assertIn("fc1 forward 0.25", self.markdown())


class Evidence(WithStandIns):
    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self.command(*arguments), env=self.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, name: str) -> None:
        for _ in range(300):
            if (self.fake / name).exists():
                time.sleep(0.3)  # what it printed before is read
                return
            time.sleep(0.05)
        self.fail(f"no stand-in came to {name}")

    def killed(self, number: int, folder: str | None = None) -> int:
        """A call that is ended in the middle of its second stage; its exit code."""
        self.put("hang-bench")
        more = ["--report", folder] if folder else []
        process = self.start("--stage", "tests", "--stage", "bench", *more)
        self.wait_for("hangs")
        process.send_signal(number)
        code = process.wait(20)
        (self.fake / "hang-bench").unlink()
        return code

    def test_is_kept_when_the_call_is_killed(self) -> None:
        folder = self.work / "copy"
        self.assertEqual(self.killed(signal.SIGKILL, str(folder)), -signal.SIGKILL)
        self.assertEqual(self.stage("tests")["result"], "passed")
        data = self.stage("bench")
        self.assertEqual(data["result"], "cut off")
        self.assertIn("lenet mixed_float16 cuda   0.5", data["steps"])
        self.assertIn("| bench | cut off |", self.markdown())
        self.assertIn("not checked: the rest of stage bench", self.markdown())
        self.assertIn("lenet mixed_float16 cuda   0.5", [each.get("line") for each in self.log()])
        self.assertEqual(sorted(path.name for path in folder.iterdir()), [
            "evidence.log", "nvidia-test-100.json", "nvidia-test-100.md", "output.log"])
        self.assertEqual((folder / "nvidia-test-100.md").read_text(), self.markdown())
        self.assertIn("lenet mixed_float16 cuda   0.5", (folder / "output.log").read_text())
        # Its child processes are gone, too.
        self.assertNotIn(str(self.packed), subprocess.run(
            ["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout)

    def test_a_stage_that_is_killed_before_its_first_piece_is_cut_off(self) -> None:
        self.check(0, "--stage", "tests")
        stand_in(self.work / "tools" / "compute-sanitizer", 'touch "$FAKE/hangs"; sleep 60\n')
        self.put("list", LIST + "Gpu/O.\n  SumAsTensorCoresDo/Cuda_Gemm\n")
        process = self.start("--stage", "sanitize")
        self.wait_for("hangs")
        process.kill()
        process.wait(20)
        self.assertEqual(self.stage("sanitize")["result"], "cut off")
        self.assertEqual(self.stage("tests")["result"], "passed")

    def test_is_kept_when_the_call_is_asked_to_end(self) -> None:
        self.assertEqual(self.killed(signal.SIGTERM), 1)
        self.assertEqual(self.stage("bench")["why"], "stopped by SIGTERM")
        self.assertEqual(self.stage("bench")["result"], "cut off")
        self.assertIn("lenet mixed_float16 cuda   0.5", self.markdown())

    def test_has_no_path_of_one_machine(self) -> None:
        for place in ("home", "root", "work"):
            self.put("doctor-text", f"device 0: {DEVICE}, /usr/{place}/a, '/{place}/me/b.so'")
            self.check(0, "--stage", "tests")
            for text in (self.markdown(), json.dumps(self.report())):
                self.assertIn(f"/usr/{place}/a, '~/me/b.so'", text)

    def test_goes_on_when_nobody_reads_the_output(self) -> None:
        self.put("test-" + CONV.replace("/", "-"), "sleep 1\n")
        process = subprocess.Popen(self.command("--stage", "tests", "--stage", "bench"),
                                   env=self.env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait(30)
        self.assertEqual(self.stage("bench")["result"], "passed")

    def test_later_calls_complete_it(self) -> None:
        self.check(0, "--stage", "tests")
        self.check(0, "--stage", "bench")
        self.assertEqual(list(self.report()["stages"]), ["tests", "bench"])
        self.put("bench", "3")
        self.check(1, "--stage", "bench")
        self.assertEqual(self.stage("bench")["result"], "failed")
        self.assertEqual(self.stage("tests")["result"], "passed")

    def test_a_folder_alone_can_be_completed(self) -> None:
        folder = str(self.work / "copy")
        self.check(0, "--stage", "tests", "--report", folder)
        for path in (self.repo / "docs" / "gpu").iterdir():
            path.unlink()
        shutil.rmtree(self.repo / "build-gpu")  # as in a fresh checkout
        self.check(0, "--stage", "bench", "--report", folder)
        self.assertEqual(list(self.report()["stages"]), ["tests", "bench"])
        for place in (self.work / "copy", self.repo / "build-gpu" / "gpu-check"):
            log = (place / "evidence.log").read_text()
            self.assertEqual(log.count('"kind": "call"'), 2)
            self.assertIn("gpu_test", (place / "output.log").read_text())
            self.assertIn("gpu_step_bench", (place / "output.log").read_text())

    def test_a_folder_with_a_newer_report_counts(self) -> None:
        folder = self.work / "copy"
        self.check(0, "--stage", "tests")
        name = "nvidia-test-100.json"
        folder.mkdir()
        newer = self.report()
        newer["date"] = newer["stages"]["tests"]["started"] = "2999-01-01 00:00:00"
        newer["stages"]["tests"]["why"] = "newer"
        (folder / name).write_text(json.dumps(newer))
        self.check(0, "--stage", "bench")
        self.check(0, "--stage", "profile", "--report", str(folder))
        self.assertEqual(list(self.report()["stages"]), ["tests", "profile", "bench"])
        self.assertEqual(self.stage("tests")["why"], "newer")

    def test_logs_of_another_device_do_not_replace_those_of_the_folder(self) -> None:
        folder = self.work / "copy"
        self.check(0, "--stage", "tests", "--report", str(folder))
        self.doctor(devices=[{"name": "NVIDIA Other", "compute_capability": "9.0"}])
        self.check(0, "--stage", "bench")
        self.doctor()
        self.check(0, "--stage", "bench", "--report", str(folder))
        log = (folder / "evidence.log").read_text()
        self.assertEqual(log.count('"kind": "call"'), 2)
        self.assertNotIn("NVIDIA Other", log)

    def test_the_work_folder_may_be_named(self) -> None:
        folder = self.repo / "build-gpu" / "gpu-check"
        self.check(0, "--stage", "tests", "--report", f"{folder}/../gpu-check")
        self.assertTrue((folder / "nvidia-test-100.json").exists())
        self.assertEqual(sum(each["kind"] == "call" for each in self.log()), 1)
        (self.work / "file").touch()
        self.assertIn("hint: name another folder with --report",
                      self.check(2, "--report", str(self.work / "file")))

    def test_other_programs_begin_a_new_one(self) -> None:
        self.check(0, "--stage", "tests")
        self.manifest(id="another")
        self.check(0, "--stage", "bench")
        self.assertEqual(list(self.report()["stages"]), ["bench"])

    def test_all_stages_run_in_order(self) -> None:
        stand_in(self.work / "tools" / "ncu", "exit 1\n")
        stand_in(self.work / "tools" / "compute-sanitizer", "exit 1\n")
        out = self.check(1, "--stage", "sanitize", "--stage", "first", "--stage", "profile",
                         "--stage", "bench", "--stage", "tests")
        places = [out.index(f"== {name}:") for name in ("first", "tests", "profile", "bench",
                                                        "sanitize")]
        self.assertEqual(places, sorted(places))
        self.assertEqual([each["result"] for each in self.report()["stages"].values()],
                         ["passed", "passed", "failed", "passed", "failed"])

    def test_an_error_of_the_script_is_a_failure(self) -> None:
        path = self.repo / "scripts" / "gpu_check" / "stage_tests.py"
        path.write_text(path.read_text().replace("def run(context: Context) -> tuple[str, str]:",
                                                 "def run(context: Context) -> tuple[str, str]:\n"
                                                 "    raise ValueError('broken')", 1))
        done = subprocess.run(self.command("--stage", "tests", "--stage", "bench"), env=self.env,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu-check itself failed", done.stdout)
        self.assertIn("ValueError: broken", self.markdown())
        self.assertEqual(self.stage("bench")["result"], "passed")


if __name__ == "__main__":
    unittest.main()
