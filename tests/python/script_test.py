# SPDX-License-Identifier: MIT
"""Mistakes of training scripts in the order of their calls, which no tensor shows."""
import contextlib
import os
import tempfile
import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs
from networks import Mlp, batches

warnings.simplefilter("error")
torch.set_num_threads(2)


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "run.hscope")
        torch.manual_seed(0)

    def rules(self, step, *, optimizer=torch.optim.SGD, around=contextlib.nullcontext, every=1,
              wrap=lambda model: model):
        """Trains with a function of (scaler, optimizer, model, x, y) and returns the rules of what
        is found."""
        model = wrap(Mlp())
        optimizer = optimizer(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        with hs.watch(model, optimizer, out=self.file, overwrite=True, every=every), around():
            for x, y in batches((16, 20), 5, 12):
                optimizer.zero_grad()
                step(scaler, optimizer, model, x, y)
        return {each["rule"]: each["severity"] for each in hs.open(self.file).findings}

    @staticmethod
    def loss(model, x, y):
        with torch.autocast("cpu", torch.float16):
            return F.cross_entropy(model(x), y)


class Scaled(Script):
    def backward(self, scaler, model, x, y):
        scaler.scale(self.loss(model, x, y)).backward()

    def wrong(self, scaler, optimizer, model, x, y):
        self.backward(scaler, model, x, y)
        optimizer.step()

    def test_gradients_are_found(self):
        self.assertEqual(self.rules(self.wrong).get("scale_without_unscale"), "error")
        self.assertEqual(self.rules(self.wrong, every=5).get("scale_without_unscale"), "error")
        found = self.rules(self.wrong, optimizer=torch.optim.AdamW)
        self.assertEqual(found.get("scale_without_unscale"), "warning")

    def test_right_scripts(self):
        def step(scaler, optimizer, model, x, y):
            self.backward(scaler, model, x, y)
            scaler.step(optimizer)
            scaler.update()

        def clipped(scaler, optimizer, model, x, y):
            self.backward(scaler, model, x, y)
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        def by_hand(scaler, optimizer, model, x, y):
            self.backward(scaler, model, x, y)
            for parameter in model.parameters():
                parameter.grad /= scaler.get_scale()
            optimizer.step()

        def accumulated(scaler, optimizer, model, x, y):
            for half in (slice(0, 8), slice(8, 16)):
                self.backward(scaler, model, x[half], y[half])
            scaler.step(optimizer)
            scaler.update()

        def not_scaled(scaler, optimizer, model, x, y):
            self.loss(model, x, y).backward()
            optimizer.step()

        other = Mlp()  # has the scaler to itself, as the other network of a GAN may

        def beside(scaler, optimizer, model, x, y):
            not_scaled(scaler, optimizer, model, x, y)
            self.backward(scaler, other, x, y)

        for right in (step, clipped, by_hand, accumulated, not_scaled, beside):
            self.assertNotIn("scale_without_unscale", self.rules(right), right.__name__)

    def test_fused_optimizers_unscale_themselves(self):
        def step(scaler, optimizer, model, x, y):
            self.backward(scaler, model, x, y)
            scaler.step(optimizer)
            scaler.update()

        fused = self.rules(step, optimizer=lambda p, lr: torch.optim.SGD(p, lr, fused=True))
        self.assertNotIn("scale_without_unscale", fused)


class Unchanged(Script):
    """Weights that a step leaves as they are on purpose have lost no update."""

    def lost(self, optimizer, change=lambda model: None, rate=1e-5):
        model = Mlp().bfloat16()
        change(model)
        with hs.watch(model, optimizer := optimizer(model.parameters(), lr=rate), out=self.file,
                      overwrite=True):
            for x, y in batches((16, 20), 5, 4):
                optimizer.zero_grad()
                F.cross_entropy(model(x.bfloat16()).float(), y).backward()
                optimizer.step()
        return sum(hs.open(self.file).stats("fc1.weight_update")["lost"])

    def test_rate_of_zero(self):
        self.assertGreater(self.lost(torch.optim.SGD), 0)
        self.assertEqual(self.lost(torch.optim.SGD, rate=0.0), 0)

        def groups(parameters, lr):
            first, *others = parameters
            return torch.optim.SGD([{"params": [first], "lr": 0.0}, {"params": others}], lr=lr)
        self.assertEqual(self.lost(groups), 0)

    def test_weights_of_zero(self):
        class Masked(torch.optim.Optimizer):
            def __init__(self, parameters, lr):
                super().__init__(parameters, {"lr": lr})

            @torch.no_grad()
            def step(self):
                for parameter in self.param_groups[0]["params"]:
                    mask = parameter != 0
                    parameter.add_(parameter.grad, alpha=-self.param_groups[0]["lr"]).mul_(mask)

        def prune(model):
            with torch.no_grad():
                model.fc1.weight.zero_()
        self.assertGreater(self.lost(Masked), 0)
        self.assertEqual(self.lost(Masked, prune), 0)

    def test_rprop(self):
        self.assertEqual(self.lost(torch.optim.Rprop, rate=1e-3), 0)


class Wrapper(torch.optim.Optimizer):
    """An optimizer of a trainer: it has another one, and none of the state of its base."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.zero_grad, self.step = optimizer.zero_grad, optimizer.step
        self.param_groups = optimizer.param_groups


class Wrapped(Script):
    def test_optimizers_are_recorded(self):
        def step(scaler, optimizer, model, x, y):
            self.loss(model, x, y).backward()
            optimizer.step()
        self.rules(step, optimizer=lambda p, lr: Wrapper(torch.optim.SGD(p, lr)))
        run = hs.open(self.file)
        self.assertEqual(len(run.steps()["loss"]), 12)
        self.assertTrue(any(site["role"] == "update" for site in run.sites()))

    def test_skipped_steps_are_seen(self):
        def step(scaler, optimizer, model, x, y):
            scaler.scale(self.loss(model, x, y) * 1e6).backward()
            scaler.step(optimizer)
            scaler.update()
        self.rules(step, optimizer=lambda p, lr: Wrapper(torch.optim.SGD(p, lr)))
        steps = hs.open(self.file).steps()
        self.assertEqual(len(steps["loss"]), 12)
        self.assertTrue(steps["skipped"][0])


class Autocast(Script):
    @staticmethod
    def plain(scaler, optimizer, model, x, y):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    def test_compiled_code_casts_for_itself(self):
        def compiled(scaler, optimizer, model, x, y):
            self.plain(scaler, optimizer, model, x, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.rules(compiled, around=lambda: torch.autocast("cpu", torch.bfloat16),
                               wrap=lambda model: torch.compile(model, backend="eager"))
        self.assertNotIn("autocast_kept", found)

    def test_around_the_loop_is_found(self):
        def around(**more):
            return lambda: torch.autocast("cpu", torch.bfloat16, **more)
        self.assertEqual(self.rules(self.plain, around=around()).get("autocast_kept"), "error")
        # Without the cache, every forward pass casts again.
        self.assertNotIn("autocast_kept", self.rules(self.plain, around=around(cache_enabled=False)))

    def test_that_is_left_in_each_step(self):
        def whole(scaler, optimizer, model, x, y):
            with torch.autocast("cpu", torch.bfloat16):
                self.plain(scaler, optimizer, model, x, y)

        def forward_only(scaler, optimizer, model, x, y):
            self.loss(model, x, y).backward()
            optimizer.step()

        for right in (whole, forward_only, self.plain):
            self.assertNotIn("autocast_kept", self.rules(right), right.__name__)


if __name__ == "__main__":
    unittest.main()
