# SPDX-License-Identifier: MIT
"""hs.watch on trainings that are unusual or wrong: what it records, and what it says."""
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs
from networks import Gpt, Mlp, train_classifier, train_gpt

warnings.simplefilter("error")
torch.set_num_threads(2)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "run.hscope")
        torch.manual_seed(0)
        self.model = Mlp()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def batch(self):
        return torch.randn(8, 20), torch.randint(0, 5, (8,))


class HotConvolution(nn.Module):
    """conv2 is far too large for fp16 and runs in fp32. Gradients of fc overflow at 2^16."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.fc = nn.Linear(16 * 24 * 24, 10)
        nn.init.normal_(self.conv2.weight, std=1e4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        with torch.autocast("cpu", enabled=False):
            x = F.relu(self.conv2(x.float())) / 1e4
        return self.fc(x.flatten(1))


class GradientsOfWeights(Case):
    def test_have_the_format_that_autocast_computed_them_in(self):
        model = HotConvolution()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu")
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (8, 1, 28, 28), 12, scaler=scaler, classes=10,
                             dtype=torch.float16)
        run = hs.open(self.file)
        formats = {site["name"]: site["format"] for site in run.sites()}
        self.assertEqual(formats["fc.weight_grad"], "fp16")
        self.assertEqual(formats["conv2.weight_grad"], "fp32")
        self.assertEqual(formats["fc.weight_update"], "fp32")
        self.assertGreater(run.stats("fc.weight_grad")["pos_inf"][0], 0)
        self.assertEqual(run.stats("fc.activation_grad")["pos_inf"][0], 0)
        self.assertEqual(run.steps()["loss_scale"][0], 2.0**16)
        self.assertTrue(run.steps()["skipped"][0])
        for finding in run.findings:
            self.assertNotIn("Raise the loss scale", finding["action"]["text"])
        window = next(f for f in run.findings if f["rule"] == "loss_scale_window")
        self.assertLess(window["evidence"]["window_high"], 2.0**16)


class ScaledLosses(Case):
    def recorded(self, backward, steps=3, **options):
        """Returns losses of a training without autocast, and those that were recorded."""
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        losses = []
        with hs.watch(self.model, self.optimizer, out=self.file, **options):
            for _ in range(steps):
                x, y = self.batch()
                self.optimizer.zero_grad()
                losses.append(backward(scaler, F.cross_entropy(self.model(x), y)))
                scaler.step(self.optimizer)
                scaler.update()
        run = hs.open(self.file)
        self.assertEqual(run.steps()["loss_scale"].tolist(), [1024.0, 1024.0, 2048.0])
        return losses, run.steps()["loss"]

    def test_divided_after_scaling(self):
        def backward(scaler, loss):
            (scaler.scale(loss) / 8).backward()
            return float(loss.detach()) / 8
        losses, found = self.recorded(backward)
        np.testing.assert_allclose(found, losses, rtol=1e-6)

    def test_summed_after_scaling(self):
        def backward(scaler, loss):
            a, b = scaler.scale([loss, loss * loss])
            (a + b).backward()
            return float((loss + loss * loss).detach())
        for options in ({}, {"scaler": torch.amp.GradScaler("cpu"), "overwrite": True}):
            losses, found = self.recorded(backward, **options)
            np.testing.assert_allclose(found, losses, rtol=1e-6)

    def test_beside_a_loss_without_scale(self):
        def backward(scaler, loss):
            (self.model.fc1.weight.sum() * 0.25).backward()
            side = float(self.model.fc1.weight.detach().sum()) * 0.25
            scaler.scale(loss).backward()
            return float(loss.detach()) + side
        losses, found = self.recorded(backward)
        np.testing.assert_allclose(found, losses, rtol=1e-5)


class NothingIsLostSilently(Case):
    def test_optimizer_that_never_steps(self):
        other = torch.optim.SGD(self.model.parameters(), 0.1)
        watch = hs.watch(self.model, self.optimizer, out=self.file)
        train_classifier(self.model, other, (8, 20), 2)
        with self.assertWarnsRegex(UserWarning, "recorded no step: the optimizer given to watch"):
            watch.close()

    def test_close_before_any_step(self):
        watch = hs.watch(self.model, out=self.file)
        with self.assertWarnsRegex(UserWarning, "recorded no step: no optimizer"):
            watch.close()

    def test_evaluation_before_the_first_step(self):
        with hs.watch(self.model, self.optimizer, out=self.file) as watch:
            watch.eval(0.5, 0.25)
            train_classifier(self.model, self.optimizer, (8, 20), 2)
        lane = hs.open(self.file).report["lanes"][0]
        self.assertEqual((lane["test_accuracy"], lane["test_loss"]), (0.25, 0.5))

    def status_after(self, ending):
        script = ("import sys, torch, halfscope as hs\n"
                  "from networks import Mlp, train_classifier\n"
                  "model = Mlp()\n"
                  "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
                  "hs.watch(model, optimizer, out=sys.argv[1], overwrite=True)\n"
                  "def train():\n"
                  "    train_classifier(model, optimizer, (8, 20), 2)\n"
                  "train()\n" + ending)
        ended = subprocess.run([sys.executable, "-B", "-c", script, self.file],
                               capture_output=True, text=True,
                               cwd=os.path.dirname(os.path.abspath(__file__)))
        return hs.open(self.file).status, ended.returncode

    def test_endings_of_a_program(self):
        for ending, expected in (
                ("sys.exit(3)", ("interrupted", 3)),
                ("sys.exit('no more data')", ("interrupted", 1)),
                ("sys.exit(0)", ("complete", 0)),
                ("1 / 0", ("interrupted", 1)),
                ("try:\n    sys.exit(3)\nexcept SystemExit:\n    train()", ("complete", 0))):
            self.assertEqual(self.status_after(ending), expected, ending)


    def test_a_killed_program_loses_at_most_one_step(self):
        status, code = self.status_after("train()\nimport os\nos.kill(os.getpid(), 9)")
        self.assertEqual((status, code), ("died", -9))
        self.assertIn(len(hs.open(self.file).steps()["step"]), (3, 4))

    def test_a_forked_process_ends_and_leaves_the_file_alone(self):
        ending = ("import os\n"
                  "child = os.fork()\n"
                  "if child == 0:\n"
                  "    sys.exit(0)\n"
                  "os.waitpid(child, 0)\n"
                  "train()")
        self.assertEqual(self.status_after(ending), ("complete", 0))
        self.assertEqual(len(hs.open(self.file).steps()["step"]), 4)


class WrongArguments(Case):
    def check_nothing_stays(self):
        self.assertFalse(os.path.exists(self.file))
        self.assertIs(torch.autograd.backward, self.backward)
        self.assertFalse(self.model._forward_hooks or self.model._forward_pre_hooks)
        self.assertFalse(self.optimizer._optimizer_step_pre_hooks)
        with hs.watch(self.model, self.optimizer, out=self.file):  # no lock
            train_classifier(self.model, self.optimizer, (8, 20), 1)
        os.remove(self.file)

    def setUp(self):
        super().setUp()
        self.backward = torch.autograd.backward

    def test_are_refused_at_once(self):
        schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        for wrong, words in (({"optimizer": "adam"}, "optimizer must be.*not str"),
                             ({"optimizer": schedule}, "StepLR; give its optimizer"),
                             ({"data": 3}, "data must be a str"), ({"steps": "x"}, "steps.*'x'"),
                             ({"every": "x"}, "every"), ({"every": 2.0}, "every"),
                             ({"out": 3}, "PathLike"), ({"scaler": 1024.0}, "get_scale")):
            with self.assertRaisesRegex(TypeError, words):
                hs.watch(self.model, **{"out": self.file, **wrong})
            self.check_nothing_stays()
        for wrong in ({"every": 0}, {"steps": -1}, {"loss": "auto"}):
            with self.assertRaises(ValueError):
                hs.watch(self.model, out=self.file, **wrong)
            self.check_nothing_stays()

    def test_an_existing_file_needs_overwrite(self):
        open(self.file, "w").close()
        with self.assertRaisesRegex(hs.Error, "exists.*pass overwrite=True") as caught:
            hs.watch(self.model, out=self.file)
        self.assertNotIn("--", str(caught.exception))

    def test_integers_of_numpy(self):
        with hs.watch(self.model, self.optimizer, out=self.file, every=np.int64(2),
                      steps=np.int32(4)):
            train_classifier(self.model, self.optimizer, (8, 20), 4)
        stats = hs.open(self.file).stats("fc1.weight_update")
        np.testing.assert_array_equal(stats["step"], [0, 2])

    def test_a_constructor_that_fails_leaves_nothing(self):
        def fail(*args):
            raise RuntimeError("on purpose")
        self.optimizer.register_step_post_hook = fail
        with self.assertRaisesRegex(RuntimeError, "on purpose"):
            hs.watch(self.model, self.optimizer, out=self.file)
        del self.optimizer.register_step_post_hook
        self.check_nothing_stays()

    def test_a_file_that_cannot_begin_is_closed(self):
        watch = hs.watch(self.model, self.optimizer, out=self.file)
        train_classifier(self.model, self.optimizer, (8, 20), 0)
        self.model(torch.randn(8, 20))

        def fail():
            raise RuntimeError("on purpose")
        watch._begin = fail
        with self.assertWarnsRegex(UserWarning, "cannot close .*: on purpose"):
            watch.close()
        self.check_nothing_stays()


class SharedBackward(Case):
    def test_two_recordings_are_told(self):
        other = Mlp()
        theirs = torch.optim.SGD(other.parameters(), 0.1)
        with hs.watch(self.model, self.optimizer, out=self.file), \
                hs.watch(other, theirs, out=self.file + "2") as second:
            with self.assertWarnsRegex(UserWarning, "several recordings.*Watch.loss"):
                with warnings.catch_warnings():
                    warnings.simplefilter("always")
                    train_classifier(self.model, self.optimizer, (8, 20), 2)
            # No warning here: this one has its own loss.
            train_classifier(other, theirs, (8, 20), 1, before_step=lambda: second.loss(0.25))
        self.assertEqual(hs.open(self.file + "2").steps()["loss"].tolist(), [0.25])

    def test_a_closure_that_runs_several_times(self):
        optimizer = torch.optim.LBFGS(self.model.parameters(), lr=0.1, max_iter=4)
        x, y = self.batch()
        firsts = []
        with hs.watch(self.model, optimizer, out=self.file):
            for _ in range(2):
                losses = []

                def closure():
                    optimizer.zero_grad()
                    loss = F.cross_entropy(self.model(x), y)
                    loss.backward()
                    losses.append(float(loss.detach()))
                    return loss
                optimizer.step(closure)
                self.assertGreater(len(losses), 1)
                firsts.append(losses[0])
        np.testing.assert_allclose(hs.open(self.file).steps()["loss"], firsts, rtol=1e-6)


class Descriptions(Case):
    def test_batch_size_of_integer_inputs(self):
        model = Gpt()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            train_gpt(model, optimizer, 2)
        self.assertEqual(hs.open(self.file).report["run"]["batch"], 4)

    def test_loss_scales_are_exact(self):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=7)
        with hs.watch(self.model, self.optimizer, out=self.file):
            train_classifier(self.model, self.optimizer, (8, 20), 2, scaler=scaler)
        with open(self.file, "rb") as file:
            self.assertIn(b"torch:init=16777216,growth=2,backoff=0.5,interval=7", file.read())


if __name__ == "__main__":
    unittest.main()
