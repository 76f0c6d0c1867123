# SPDX-License-Identifier: MIT
"""`halfscope convert FOLDER`: files of tensors that another program saved, as a run."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

import numpy as np

import halfscope as hs
from reference import stats_of

PROGRAM = os.environ.get("HALFSCOPE_PROGRAM") or shutil.which("halfscope")
if PROGRAM is None:
    raise SystemExit("skipped: no halfscope in PATH or HALFSCOPE_PROGRAM")


def safetensors(file, tensors):
    """Writes {name: (dtype, array of its bits)}, as the format's own page describes it."""
    header, data = {}, b""
    for name, (dtype, bits) in tensors.items():
        begin = len(data)
        data += bits.tobytes()
        header[name] = {"dtype": dtype, "shape": list(bits.shape),
                        "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "tensors")
        self.out = os.path.join(folder.name, "run.hscope")
        os.mkdir(self.folder)
        self.random = np.random.default_rng(0)

    def save(self, name, values):
        np.save(os.path.join(self.folder, f"{name}.npy"), values)
        return values

    def normal(self, *shape, dtype="float32", scale=1.0):
        return (scale * self.random.standard_normal(shape)).astype(dtype)

    def about(self, **more):
        with open(os.path.join(self.folder, "run.json"), "w") as file:
            json.dump({"schema": "halfscope.tensors/1", **more}, file)

    def convert(self, *words, code=0):
        done = subprocess.run([PROGRAM, "convert", self.folder, "--out", self.out, *words],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code != 0:
            self.assertEqual(done.stderr.count("\n"), 2, done.stderr)
            self.assertFalse(os.path.exists(self.out))
        return done.stdout if code == 0 else done.stderr

    def refused(self, text, code=3):
        self.assertIn(text, self.convert(code=code))

    def check(self, run, site, window, values, format):
        got = run.stats(site)
        for key, value in stats_of(values, format).items():
            if key in ("sum", "sum_sq"):
                np.testing.assert_allclose(got[key][window], value, rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_array_equal(got[key][window], value, f"{site} {key}")

    def test_statistics_equal_numpy(self):
        kept = {}
        for step in (0, 5):
            for module in ("block.conv", "fc"):
                for role, dtype in (("activation", "float16"), ("weight", "float32"),
                                    ("gradient", "float64"), ("activation_gradient", "float16"),
                                    ("update", "float32")):
                    values = self.normal(70, 100, dtype=dtype, scale=1e-4)
                    kept[step, module, role] = self.save(f"{step}.{module}.{role}", values)
        self.about(model="Net", steps=[{"step": 0, "loss": 2.5, "loss_scale": 8.0},
                                       {"step": 1, "loss": 2.25}, {"step": 5, "loss": 2.0}],
                   layers=[{"path": "fc", "operator": "Gemm", "inputs": ["input"]},
                           {"path": "block.conv", "operator": "Conv", "inputs": ["fc"]}])
        self.assertIn("20 tensors of 2 modules in 3 steps", self.convert())
        run = hs.open(self.out)
        self.assertEqual((run.status, run.lanes), ("complete", ["mixed_fp16"]))
        for window, step in enumerate((0, 5)):
            self.assertEqual(run.stats("fc.activation")["step"][window], step)
            for module in ("block.conv", "fc"):
                for role, site, format in (("activation", "activation", "fp16"),
                                           ("weight", "weight", "fp32"),
                                           ("activation_gradient", "activation_grad", "fp16"),
                                           ("update", "weight_update", "fp32")):
                    self.check(run, f"{module}.{site}", window, kept[step, module, role], format)
        np.testing.assert_array_equal(run.steps()["loss"], [2.5, 2.25, 2.0])
        norm = np.sqrt(sum((kept[0, m, "gradient"] ** 2).sum() for m in ("block.conv", "fc"))) / 8
        np.testing.assert_allclose(run.steps()["grad_norm"][0], norm, rtol=1e-6)
        names = [site["name"] for site in run.sites()]
        self.assertLess(names.index("fc.activation"), names.index("block.conv.activation"))
        self.assertLess(names.index("block.conv.weight_grad"), names.index("fc.weight_grad"))
        self.assertEqual([layer["op"] for layer in run.layers()], ["Gemm", "Conv"])

    def test_safetensors_of_narrow_types(self):
        bits = self.random.integers(0, 256, (33, 5)).astype("uint8")
        brain = self.normal(8, 8)
        high = (brain.view("uint32") >> 16).astype("uint16")
        safetensors(os.path.join(self.folder, "all.safetensors"),
                    {"3.fc.activation": ("F8_E5M2", bits), "3.fc.weight": ("BF16", high)})
        self.convert()
        run = hs.open(self.out)
        exact = (bits.astype("uint16") << 8).view("float16")  # E5M2 is the upper half of fp16
        self.check(run, "fc.activation", 0, exact, "e5m2")
        self.check(run, "fc.weight", 0, (high.astype("uint32") << 16).view("float32"), "bf16")

    def test_overflow_is_found(self):
        for step in range(3):
            values = self.normal(64, 64, dtype="float16")
            values[0] = np.inf
            self.save(f"{step}.a.activation", self.normal(4, 4, dtype="float16"))
            self.save(f"{step}.b.activation", values)
        self.about(layers=[{"path": "a", "operator": "Gemm", "inputs": ["input"]},
                           {"path": "b", "operator": "Gemm", "inputs": ["a"]}])
        self.convert()
        run = hs.open(self.out)
        self.assertEqual(run.state, "broken")
        self.assertIn("b overflows fp16", run.verdict)

    def test_lost_updates(self):
        gradient, update = self.normal(40, 40), self.normal(40, 40)
        gradient[0], update[:2] = 0, 0
        self.save("0.fc.gradient", gradient)
        self.save("0.fc.update", update)
        self.convert()
        stats = hs.open(self.out).stats("fc.weight_update")
        self.assertEqual((stats["lost"][0], stats["zero"][0]), (40, 40))

    def test_missing_roles_and_mixed_steps(self):
        self.save("0.a.activation", self.normal(4))
        self.save("7.a.activation", self.normal(4))
        self.save("7.b.weight", self.normal(4))
        self.save("9.b.weight", self.normal(4))
        self.convert()
        run = hs.open(self.out)
        self.assertEqual(run.steps()["step"].tolist(), [0, 7, 9])
        self.assertEqual(run.stats("a.activation")["step"].tolist(), [0, 7])
        self.assertEqual(run.stats("b.weight")["step"].tolist(), [7, 9])
        self.assertNotEqual(run.state, "broken")  # no loss is not a loss of NaN

    def test_files_in_other_orders_and_other_files(self):
        values = self.normal(6, 4)
        self.save("0.a.weight", np.asfortranarray(values))
        self.save("1.a.weight", values.astype(">f4"))
        with open(os.path.join(self.folder, "notes.txt"), "w") as file:
            file.write("x")
        os.mkfifo(os.path.join(self.folder, "2.a.weight.npy"))
        os.mkdir(os.path.join(self.folder, "3.a.weight.npy"))
        self.assertIn("3 other files not read", self.convert())
        run = hs.open(self.out)
        for window in (0, 1):
            self.check(run, "a.weight", window, values, "fp32")

    def test_hostile_names(self):
        for name, text in (("a.activation", "is not STEP.MODULE.ROLE"),
                           ("0..activation", "is not STEP.MODULE.ROLE"),
                           ("x.a.activation", "does not begin with the number of a step"),
                           ("-1.a.activation", "does not begin with the number of a step"),
                           ("0x1.a.activation", "does not begin with the number of a step"),
                           ("9999999999999999999999.a.weight", "does not begin with the number"),
                           ("0.a.activations", "does not end with activation"),
                           ("0.a\x1b[31m.weight", "cannot be printed")):
            self.save(name, self.normal(2))
            message = self.convert(code=3)
            self.assertIn(text, message)
            self.assertNotIn("\x1b", message)
            os.remove(os.path.join(self.folder, f"{name}.npy"))

    def test_names_that_are_no_paths(self):
        self.save("0.a*?[b].activation", self.normal(2, dtype="float16"))
        self.save("0.c d.activation", self.normal(2))
        self.convert()
        self.assertEqual({s["path"] for s in hs.open(self.out).sites()}, {"a*?[b]", "c d"})

    def test_the_same_tensor_twice(self):
        self.save("0.a.weight", self.normal(2))
        self.save("00.a.weight", self.normal(2))
        self.refused("is there twice")

    def test_types(self):
        self.save("0.a.weight", np.arange(4))
        self.refused("has type int64, which is not a floating-point type")
        self.save("0.a.weight", self.normal(4))
        self.save("1.a.weight", self.normal(4, dtype="float16"))
        self.refused("'1.a.weight' is fp16, but in an earlier step it is fp32")

    def test_links_out_of_the_folder(self):
        outside = os.path.join(os.path.dirname(self.folder), "outside.npy")
        np.save(outside, self.normal(2))
        os.symlink(outside, os.path.join(self.folder, "0.a.weight.npy"))
        self.refused("is a link to something outside the folder")
        os.remove(os.path.join(self.folder, "0.a.weight.npy"))
        self.save("0.a.weight", self.normal(2))
        os.symlink("0.a.weight.npy", os.path.join(self.folder, "1.a.weight.npy"))
        self.convert()

    def test_empty_and_damaged_folders(self):
        self.refused("has no .npy or .safetensors files")
        with open(os.path.join(self.folder, "0.a.weight.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00\xff\xff{")
        self.convert(code=3)
        os.remove(os.path.join(self.folder, "0.a.weight.npy"))
        self.save("0.a.weight", self.normal(2))
        for text, more in (("does not say", {"schema": "other/1"}), ("is not a list", {"steps": 3}),
                           ("is not a number", {"steps": [{"step": 0, "loss": []}]}),
                           ("is there twice", {"steps": [{"step": 0}, {"step": 0}]}),
                           ("a layer has no path", {"layers": [{}]}),
                           ("is not pytorch or keras", {"framework": "x"})):
            self.about(**more)
            self.refused(text)

    def test_flags_of_networks(self):
        self.save("0.a.weight", self.normal(2))
        self.assertIn("--plan is for networks", self.convert("--plan", "float16", code=2))


if __name__ == "__main__":
    unittest.main()
