# SPDX-License-Identifier: MIT
"""hs.watch on real trainings: what is recorded, and that the training does not notice."""
import copy
import gc
import io
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
import weakref

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs
from networks import Cnn, Gpt, Mlp, train_classifier, train_gpt
from reference import stats_of

warnings.simplefilter("error")
torch.set_num_threads(2)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "run.hscope")
        torch.manual_seed(0)

    def compare(self, values, site, run, window=-1, format=None):
        """Compares a recorded window with NumPy's statistics."""
        format = format or next(s["format"] for s in run.sites() if s["name"] == site)
        got = run.stats(site)
        for key, value in stats_of(values.detach().float().numpy(), format).items():
            if key in ("sum", "sum_sq"):
                self.assertAlmostEqual(got[key][window], value, delta=1e-9 * abs(value) + 1e-12)
            elif key == "exponents":
                np.testing.assert_array_equal(got[key][window], value)
            else:
                self.assertEqual(got[key][window], value, f"{site} {key}")


class Records(Case):
    def test_values_equal_numpy(self):
        model = Mlp()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2, amsgrad=True, maximize=True)
        x, y = torch.randn(8, 20), torch.randint(0, 5, (8,))
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        with hs.watch(model, optimizer, out=self.file):
            hidden = model.fc1(x)
            logits = model.fc2(F.relu(hidden))
            hidden.retain_grad()
            logits.retain_grad()
            loss = F.cross_entropy(logits, y)
            loss.backward()
            optimizer.step()
        run = hs.open(self.file)
        self.assertEqual(run.lanes, ["float32"])
        self.compare(hidden, "fc1.activation", run)
        self.compare(logits, "fc2.activation", run)
        self.compare(hidden.grad, "fc1.activation_grad", run)
        self.compare(logits.grad, "fc2.activation_grad", run)
        for name, parameter in model.named_parameters():
            self.compare(before[name], name, run)
            self.compare(parameter.grad, f"{name}_grad", run)
            self.compare(parameter.detach() - before[name], f"{name}_update", run)
            state = optimizer.state[parameter]
            self.compare(state["exp_avg"], f"{name}_adam_m", run)
            self.compare(state["exp_avg_sq"], f"{name}_adam_v", run)
            self.compare(state["max_exp_avg_sq"], f"{name}_adam_v_max", run)
        self.assertEqual(run.report["run"]["optimizer"], "adam:lr=0.01,maximize=true")
        row = run.steps()
        self.assertAlmostEqual(row["loss"][0], float(loss.detach()), places=6)
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))
        self.assertAlmostEqual(row["grad_norm"][0], float(norm), delta=1e-9 * float(norm))
        self.assertEqual(row["learning_rate"][0], 1e-2)

    def test_sites_are_in_execution_order_and_layers_know_their_inputs(self):
        model = Cnn()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (4, 1, 12, 12), 2)
        run = hs.open(self.file)
        names = [site["name"] for site in run.sites()]
        forward = [site["path"] for site in run.sites() if site["role"] == "activation"]
        self.assertEqual(forward, ["conv1", "bn", "relu", "conv2", "pool", "fc"])
        self.assertLess(names.index("conv1.weight"), names.index("conv1.activation"))
        self.assertLess(names.index("conv1.activation"), names.index("conv2.weight"))
        self.assertLess(names.index("fc.activation_grad"), names.index("conv1.weight_grad"))
        self.assertIn("conv1.weight_momentum", names)
        layers = {each["path"]: each for each in run.layers()}
        self.assertEqual([layers[p]["op"] for p in forward],
                         ["Conv", "BatchNormalization", "Relu", "Conv", "MaxPool", "Gemm"])
        self.assertEqual([layers[p]["inputs"] for p in forward],
                         [["input"], ["conv1"], ["bn"], ["relu"], ["conv2"], ["pool"]])
        self.assertEqual(layers["conv2"]["parameters"], 4 * 6 * 9 + 6)

    def test_loss_scaler(self):
        model = Cnn()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=4)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (4, 1, 12, 12), 30, scaler=scaler,
                             dtype=torch.float16)
        run = hs.open(self.file)
        rows = run.steps()
        self.assertEqual(run.lanes, ["mixed_float16"])
        self.assertEqual(len(rows["step"]), 30)
        self.assertGreater(rows["skipped"].sum(), 2)
        self.assertLess(rows["skipped"].sum(), 30)
        self.assertEqual(rows["loss_scale"][0], 2.0**40)
        for i in range(29):  # halves after a skipped step
            if rows["skipped"][i]:
                self.assertEqual(rows["loss_scale"][i + 1], rows["loss_scale"][i] / 2)
        self.assertTrue(np.isfinite(rows["loss"]).all())
        formats = {site["name"]: site["format"] for site in run.sites()}
        self.assertEqual(formats["conv1.activation"], "fp16")
        self.assertEqual(formats["conv1.weight"], "fp16")       # as autocast reads it
        self.assertEqual(formats["conv1.weight_update"], "fp32")  # as it is stored
        self.assertFalse(run.report["lanes"][0]["reference"])
        taken = rows["step"][~rows["skipped"]]
        np.testing.assert_array_equal(run.stats("fc.weight_update")["step"], taken)
        np.testing.assert_array_equal(run.stats("fc.weight")["step"], rows["step"])

    def test_gpt_in_bf16(self):
        model = Gpt()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        with hs.watch(model, optimizer, out=self.file):
            train_gpt(model, optimizer, 5, torch.bfloat16)
        run = hs.open(self.file)
        self.assertEqual(run.lanes, ["mixed_bfloat16"])
        layers = {each["path"]: each for each in run.layers()}
        self.assertEqual(layers["h.0.qkv"]["write"], "bf16")
        self.assertEqual(layers["h.0.ln1"]["write"], "fp32")
        self.assertEqual(layers["h.1.qkv"]["inputs"], ["h.1.ln1"])
        self.assertEqual(layers["h.0.proj"]["inputs"], ["h.0.proj/input"])
        self.assertEqual(layers["h.0.proj/input"]["inputs"], ["h.0.qkv"])
        self.assertEqual(layers["h.0.proj/input"]["op"], "Function")
        self.assertEqual(layers["h.0/input"]["inputs"], ["wte", "wpe"])
        self.assertEqual(layers["h.0.ln2/input"]["inputs"], ["h.0/input", "h.0.proj"])
        self.assertEqual(layers["wte"]["op"], "Gather")
        names = {site["name"] for site in run.sites()}
        self.assertIn("wte.weight_grad", names)       # shared with head, recorded once
        self.assertNotIn("head.weight_grad", names)
        self.assertEqual(run.state, "inconclusive")   # nothing to compare with

    def test_accumulation_merges(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            losses = train_classifier(model, optimizer, (8, 20), 3, parts=4)
        run = hs.open(self.file)
        np.testing.assert_array_equal(run.stats("fc1.activation")["n"], [8 * 16] * 3)
        np.testing.assert_array_equal(run.stats("fc1.activation_grad")["n"], [8 * 16] * 3)
        np.testing.assert_array_equal(run.stats("fc1.weight_grad")["n"], [20 * 16] * 3)
        np.testing.assert_allclose(run.steps()["loss"], losses, rtol=1e-6)
        self.compare(model.fc1.weight.grad, "fc1.weight_grad", run)

    def test_checkpointing_counts_once(self):
        expected = None
        for kind in (None, "reentrant", "plain"):
            torch.manual_seed(0)
            model = Gpt(checkpoint=kind)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            with hs.watch(model, optimizer, out=self.file, overwrite=True):
                train_gpt(model, optimizer, 2)
            run = hs.open(self.file)
            got = {}
            for site in run.sites():
                stats = run.stats(site["name"])
                got[site["name"]] = (stats["n"].tolist(), stats["max_abs"].tolist())
            if expected is None:
                expected = got
            self.assertEqual(got, expected, kind)

    def test_every_and_alarm(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file, every=10):
            for step, (x, y) in enumerate([(torch.randn(4, 20), torch.randint(0, 5, (4,)))] * 30):
                x = x * (float("inf") if step == 23 else 1.0)
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        run = hs.open(self.file)
        self.assertEqual(len(run.steps()["step"]), 30)
        np.testing.assert_array_equal(run.stats("fc1.weight_update")["step"], [0, 10, 20, 23, 24])
        np.testing.assert_array_equal(run.stats("fc1.activation")["step"], [0, 10, 20, 24])

    def test_non_contiguous_and_structured_outputs(self):
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(20, 10)

            def forward(self, x):
                y = self.fc(x)
                return {"left": y[:, ::2] * 1, "rest": (y.t(), None, 3)}

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.pair, self.out = Pair(), nn.Linear(5, 5)

            def forward(self, x):
                parts = self.pair(x)
                return self.out(parts["left"]) + parts["rest"][0].t()[:, :5]
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (8, 20), 2)
        run = hs.open(self.file)
        self.assertEqual(run.stats("pair.activation")["n"][0], 8 * 5)
        self.assertEqual(run.stats("pair.activation_2")["n"][0], 8 * 10)
        self.assertIn("pair", next(e for e in run.layers() if e["path"] == "out")["inputs"])

    def test_shared_modules_merge(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(5, 5)

            def forward(self, x):
                return self.fc(F.relu(self.fc(x)))
        model = Twice()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (8, 5), 2)
        run = hs.open(self.file)
        self.assertEqual(run.stats("fc.activation")["n"][0], 2 * 8 * 5)
        self.assertEqual(run.stats("fc.activation_grad")["n"][0], 2 * 8 * 5)

    def test_validation_does_not_count(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file) as watch:
            for _ in range(2):
                with torch.no_grad():
                    model(torch.randn(100, 20))
                train_classifier(model, optimizer, (8, 20), 1)
                watch.eval(0.5, 0.9)
            watch.eval(0.25, accuracy=0.95, auc=0.99)  # replaces the one of this step
        run = hs.open(self.file)
        evals = run.evals()
        np.testing.assert_array_equal(evals["step"], [1, 2])
        np.testing.assert_array_equal(evals["loss"], [0.5, 0.25])
        np.testing.assert_array_equal(evals["auc"], [np.nan, 0.99])
        self.assertTrue(np.isnan(evals["mean_iou"]).all())
        np.testing.assert_array_equal(run.stats("fc1.activation")["n"], [8 * 16] * 2)
        self.assertEqual(run.report["lanes"][0]["test_accuracy"], 0.95)

    def test_lost_updates_and_flushed_state(self):
        model = Mlp().bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), 1e-5)
        with hs.watch(model, optimizer, out=self.file):
            for x, y in ((torch.randn(8, 20), torch.randint(0, 5, (8,))) for _ in range(60)):
                before = model.fc1.weight.detach().clone()
                optimizer.zero_grad()
                F.cross_entropy(model(x.bfloat16()).float(), y).backward()
                optimizer.step()
        run = hs.open(self.file)
        self.assertEqual(run.lanes, ["bfloat16"])
        stats = run.stats("fc1.weight_update")
        same = (model.fc1.weight == before) & (model.fc1.weight.grad != 0)
        self.assertEqual(stats["lost"][-1], int(same.sum()))
        self.assertIn("lost_updates", [f["rule"] for f in run.findings])
        self.assertEqual(run.state, "attention")

    def test_large_tensors_are_measured_in_parts(self):
        # Several parts of 32,768 elements, the last one short, on one thread and on two.
        self.addCleanup(torch.set_num_threads, 2)
        results = []
        for threads, most in ((1, 0), (2, 0), (2, 1), (2, 5)):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(300, 401))
            optimizer = torch.optim.Adam(model.parameters(), 1e-2)
            file = f"{self.file}{threads}{most}"
            with hs.watch(model, optimizer, out=file, threads=most):
                for _ in range(2):
                    optimizer.zero_grad()
                    model(torch.randn(200, 300)).square().sum().backward()
                    before = model[0].weight.detach().clone()
                    optimizer.step()
            run = hs.open(file)
            state = optimizer.state[model[0].weight]
            self.compare(before, "0.weight", run)
            self.compare(model[0].weight - before, "0.weight_update", run)
            self.compare(model[0].weight.grad, "0.weight_grad", run)
            self.compare(state["exp_avg"], "0.weight_adam_m", run)
            self.compare(state["exp_avg_sq"], "0.weight_adam_v", run)
            results.append([run.stats(s["name"]) for s in run.sites()])
        for one, *others in zip(*results):
            for key in one:
                for other in others:
                    np.testing.assert_array_equal(one[key], other[key])

    @unittest.skipUnless(os.path.exists("/proc/self/task"), "needs times of threads")
    def test_threads_are_limited(self):
        script = ("import glob, sys, numpy as np\n"
                  "from halfscope import _core\n"
                  "recording = _core.Recording(sys.argv[1], True, int(sys.argv[2]))\n"
                  "x = np.ones(1 << 22, np.float32)\n"
                  "site = recording.add_site('x', 'x', 'weight', 'forward', 'X', 'fp32', [x.size])\n"
                  "for _ in range(40):\n"
                  "    recording.measure_all([(site, x)], False)\n"
                  "times = [int(open(each).read().split()[0])\n"
                  "         for each in glob.glob('/proc/self/task/*/schedstat')]\n"
                  "print(sum(each > 0.05 * sum(times) for each in times))\n")
        environment = {**os.environ, "OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "passive",
                       "OPENBLAS_NUM_THREADS": "1"}  # NumPy's own threads
        for most in (1, 2):
            done = subprocess.run([sys.executable, "-B", "-c", script, self.file, str(most)],
                                  capture_output=True, text=True, env=environment)
            self.assertEqual(done.stdout.strip(), str(most), done.stderr)

    def test_running_statistics(self):
        model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with hs.watch(model, optimizer, out=self.file):
            for step in range(3):
                x = torch.randn(8, 6)
                if step == 1:
                    x[0, 0] = torch.inf
                optimizer.zero_grad()
                scaler.scale(model(x).square().sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        run = hs.open(self.file)
        self.assertEqual(run.steps()["skipped"].tolist(), [False, True, False])
        self.compare(model[1].running_var, "1.running_var", run)
        mean = run.stats("1.running_mean")
        self.assertEqual((mean["pos_inf"] + mean["neg_inf"]).tolist(), [0, 4, 4])
        self.assertEqual(run.stats("1.running_var")["nan"].tolist(), [0, 4, 4])
        names = [s["name"] for s in run.sites()]
        self.assertLess(names.index("1.activation"), names.index("1.running_mean"))
        self.assertLess(names.index("1.running_var"), names.index("2.activation"))
        findings = [f for f in run.findings if f["rule"] == "unsafe_buffers"]
        self.assertIn("1", findings[0]["text"])

    def test_no_loss_is_not_a_loss_of_nan(self):
        for number, bad in enumerate((False, True)):
            model = Mlp()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            file = f"{self.file}{number}"
            with self.assertWarnsRegex(UserWarning, "no loss was found in step 0"):
                with hs.watch(model, optimizer, out=file, loss="manual"):
                    for step in range(60):
                        optimizer.zero_grad()
                        x = torch.randn(8, 20)
                        if bad and step == 50:
                            x[0] = torch.nan
                        model(x).square().mean().backward()
                        optimizer.step()
            run = hs.open(file)
            self.assertTrue(np.isnan(run.steps()["loss"]).all())
            self.assertEqual(run.state == "broken", bad, run.verdict)
            self.assertNotIn("loss", run.verdict)

    def test_a_loss_of_nan_counts(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            for _ in range(3):
                optimizer.zero_grad()
                (model(torch.randn(8, 20)).square().mean() * torch.nan).backward()
                optimizer.step()
        self.assertEqual(hs.open(self.file).state, "broken")

    def test_a_loss_of_nan_counts_where_gradients_are_finite(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            for _ in range(12):
                optimizer.zero_grad()
                (model(torch.randn(8, 20)).square().mean() + torch.nan).backward()
                optimizer.step()
        self.assertIn("the loss function gives NaN at step 0", hs.open(self.file).verdict)

    def test_finds_the_optimizer(self):
        model = Mlp()
        with hs.watch(model, out=self.file):
            other = nn.Linear(2, 2)
            wrong = torch.optim.SGD(other.parameters(), 0.1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            other(torch.randn(1, 2)).sum().backward()
            wrong.step()
            train_classifier(model, optimizer, (8, 20), 3)
        self.assertEqual(len(hs.open(self.file).steps()["step"]), 3)

    def test_a_run_that_overflows_is_broken(self):
        model = Cnn()
        with torch.no_grad():
            model.conv2.weight.mul_(2e5)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu")
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (4, 1, 12, 12), 60, scaler=scaler,
                             dtype=torch.float16)
        run = hs.open(self.file)
        self.assertEqual(run.state, "broken")
        self.assertIn("conv2 overflows fp16", run.verdict)
        self.assertIn("conv2", run.report["recommendation"]["text"])


class DoesNoHarm(Case):
    def both(self, make, train):
        """Returns what `train` gives without and with a watch, from the same seed."""
        results = []
        for watched in (False, True):
            torch.manual_seed(0)
            model = make()
            optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
            if watched:
                with hs.watch(model, optimizer, out=self.file, overwrite=True, every=2):
                    losses = train(model, optimizer)
            else:
                losses = train(model, optimizer)
            results.append((losses, [p.detach().clone() for p in model.parameters()]))
        return results

    def test_same_bits(self):
        def cnn(model, optimizer):
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
            return train_classifier(model, optimizer, (4, 1, 12, 12), 20, scaler=scaler,
                                    dtype=torch.float16)

        def gpt(model, optimizer):
            return train_gpt(model, optimizer, 6, torch.bfloat16)
        for make, train in ((Cnn, cnn), (Gpt, gpt), (lambda: Gpt(checkpoint="plain"), gpt)):
            (losses, weights), (losses_too, weights_too) = self.both(make, train)
            self.assertEqual(losses, losses_too)
            for a, b in zip(weights, weights_too):
                self.assertTrue(torch.equal(a, b))

    def test_keeps_no_graph(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (8, 20), 2)
            gc.disable()
            try:
                hidden = model(torch.randn(3, 20))
                loss = hidden.sum()
                alive = weakref.ref(hidden)
                loss.backward()
                optimizer.step()
                del hidden, loss
                self.assertIsNone(alive())
            finally:
                gc.enable()

    def test_memory_does_not_grow(self):
        model = Gpt()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with hs.watch(model, optimizer, out=self.file, every=3):
            train_gpt(model, optimizer, 60)
            before = resident()
            train_gpt(model, optimizer, 240)
            self.assertLess(resident() - before, 8 << 20)

    def test_leaves_nothing_behind(self):
        backward, step = torch.autograd.backward, torch.amp.GradScaler.step
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (8, 20), 2)
            self.assertIsNot(torch.autograd.backward, backward)
        self.assertIs(torch.autograd.backward, backward)
        self.assertIs(torch.amp.GradScaler.step, step)
        self.assertFalse(model._forward_hooks or model.fc1._forward_hooks)
        self.assertFalse(optimizer._optimizer_step_post_hooks)

    def test_copies_and_files_of_the_model_have_no_part_in_it(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        counts = {}
        for copies in (False, True):
            with hs.watch(model, optimizer, out=self.file, overwrite=True):
                average = torch.optim.swa_utils.AveragedModel(model) if copies else None
                for _ in range(3):
                    x = torch.randn(8, 20)
                    model(x).square().mean().backward()
                    optimizer.step()
                    if copies:
                        average.update_parameters(model)
                        average(torch.cat([x, x]))
                        file = io.BytesIO()
                        torch.save(copy.deepcopy(model), file)
                        torch.save(model, file)
                        file.seek(0)
                        torch.load(file, weights_only=False)(x)
            run = hs.open(self.file)
            counts[copies] = [list(run.stats(site["name"])["n"]) for site in run.sites()]
        self.assertEqual(counts[False], counts[True])

    def test_exceptions_of_the_user(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with self.assertRaises(ZeroDivisionError):
            with hs.watch(model, optimizer, out=self.file):
                train_classifier(model, optimizer, (8, 20), 3)
                model(torch.randn(3, 20))
                1 / 0
        run = hs.open(self.file)
        self.assertEqual((run.status, len(run.steps()["step"])), ("interrupted", 3))

    def test_faults_of_its_own(self):
        for broken in ("_measure_update", "_take_loss", "_end_step", "_on_backward"):
            model = Mlp()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            watch = hs.watch(model, optimizer, out=self.file, overwrite=True)
            train_classifier(model, optimizer, (8, 20), 3)

            def fail(*args):
                raise RuntimeError("on purpose")
            if broken == "_on_backward":
                watch._watch_loss = fail
            else:
                setattr(watch, broken, fail)
            with self.assertWarnsRegex(UserWarning, "stopped at step 3: RuntimeError: on purpose"):
                train_classifier(model, optimizer, (8, 20), 1, before_step=lambda: watch.loss(1.0))
            train_classifier(model, optimizer, (8, 20), 2)  # silently, without the watch
            watch.close()
            self.assertEqual(len(hs.open(self.file).steps()["step"]), 3)

    def test_wrong_arguments(self):
        model = Mlp()
        with self.assertRaises(TypeError):
            hs.watch("model", out=self.file)
        for wrong in ({"every": 0}, {"threads": -1}):
            with self.assertRaises(ValueError):
                hs.watch(model, out=self.file, **wrong)
        open(self.file, "w").close()
        with self.assertRaisesRegex(hs.Error, "exists"):
            hs.watch(model, out=self.file)
        with self.assertRaises(hs.Error):
            hs.open(self.file + ".missing")

    def test_compiled_models_are_told(self):
        model = Mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        compiled = torch.compile(model, backend="eager")
        with self.assertWarnsRegex(UserWarning, "compiled"):
            watch = hs.watch(compiled, optimizer, out=self.file)
        with watch:
            train_classifier(compiled, optimizer, (8, 20), 3)
        run = hs.open(self.file)
        np.testing.assert_array_equal(run.stats("fc1.weight_grad")["n"], [20 * 16] * 3)
        self.assertEqual(run.lanes, ["float32"])

    def test_the_format_of_compiled_code_is_known(self):
        for dtype, lane in ((torch.float16, "mixed_float16"), (torch.bfloat16, "mixed_bfloat16"),
                            (None, "float32")):
            for wrapped in (True, False):
                torch._dynamo.reset()
                torch.manual_seed(0)
                model = Mlp()
                with torch.no_grad():
                    model.fc1.weight[0, 0] = 1e5
                optimizer = torch.optim.SGD(model.parameters(), 1e-3)
                compiled = torch.compile(model, backend="aot_eager")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with hs.watch(compiled if wrapped else model, optimizer, out=self.file,
                                  overwrite=True):
                        train_classifier(compiled, optimizer, (8, 20), 3, dtype=dtype)
                run = hs.open(self.file)
                self.assertEqual(run.lanes, [lane], wrapped)
                formats = {site["name"]: site["format"] for site in run.sites()}
                expected = {torch.float16: "fp16", torch.bfloat16: "bf16", None: "fp32"}[dtype]
                self.assertEqual(formats["fc1.weight"], expected)
                self.assertEqual(formats["fc1.weight_grad"], expected)
                self.assertEqual(run.stats("fc1.weight")["overflow"][0],
                                 1 if dtype is torch.float16 else 0)
                if dtype is not None:
                    layers = {each["path"]: each["read"] for each in run.layers()}
                    self.assertEqual(layers, {"fc1": expected, "fc2": expected})


if __name__ == "__main__":
    unittest.main()
