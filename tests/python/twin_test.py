# SPDX-License-Identifier: MIT
"""hs.save_twin: HalfScope repeats PyTorch's losses, and proves the cure of a planted overflow."""
import copy
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs
from networks import Cnn, Gpt, Mlp, batches

try:
    import onnx
    import onnxscript  # noqa: F401
    from onnx import numpy_helper
except ImportError as missing:
    raise SystemExit(f"skipped: {missing.name} is not installed")

PROGRAM = os.environ.get("HALFSCOPE_PROGRAM") or shutil.which("halfscope")
warnings.simplefilter("error")
torch.set_num_threads(2)


class Hot(nn.Module):
    """The outputs of conv2 are larger than 65504."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3)
        self.fc = nn.Linear(8 * 8 * 8, 5)
        nn.init.normal_(self.conv2.weight, std=1e4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x)) / 1e4
        return self.fc(x.flatten(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "twin")
        torch.manual_seed(0)

    def save(self, model, loss=nn.CrossEntropyLoss(), data=None, optimizer=None, **more):
        optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-3)
        return hs.save_twin(model, loss, optimizer, data, self.folder, **more)

    def document(self):
        with open(os.path.join(self.folder, "twin.json")) as file:
            return json.load(file)

    def change(self, change):
        document = self.document()
        change(document)
        with open(os.path.join(self.folder, "twin.json"), "w") as file:
            json.dump(document, file)

    def refuse(self, text, model, *arguments, **more):
        with self.assertRaisesRegex(hs.Error, text):
            self.save(model, *arguments, **more)

    def diagnose(self, *words, code=0, plan="mixed_float16"):
        if PROGRAM is None:
            self.skipTest("no halfscope in PATH or HALFSCOPE_PROGRAM")
        done = subprocess.run([PROGRAM, "diagnose", self.folder, "--plan", plan, *words],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if "--json" in words and code == 0:
            return json.loads(done.stdout)
        return done.stdout + done.stderr

    def train(self, plan, *words):
        """Trains the twin under a plan and returns its run file."""
        arguments = list(self.document()["arguments"])
        for flag in ("--model", "--data"):
            place = arguments.index(flag) + 1
            arguments[place] = os.path.join(self.folder, arguments[place])
        run = os.path.join(self.folder, "run.hscope")
        self.run_program("train", *arguments, "--plan", plan, "--out", run, "--quiet", "--force",
                         *words)
        return run

    def run_program(self, *words):
        if PROGRAM is None:
            self.skipTest("no halfscope in PATH or HALFSCOPE_PROGRAM")
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)

    def repeated(self, *words):
        """Returns what diagnose prints, after a check that it repeats PyTorch's losses."""
        result = self.diagnose("--json", "--no-twins", *words)
        self.assertIn(result["twin"]["repeats"], ("bitwise", "rounding"))
        self.assertLess(result["twin"]["largest_difference"], 1e-4)
        return result


class Repeats(Case):
    def check(self, *words):
        result = self.repeated(*words)
        self.assertEqual(result["twin"]["steps"], len(self.document()["losses"]))

    def test_mlp_with_momentum(self):
        model = Mlp()
        self.save(model, data=batches((8, 20), 5, 4), steps=30,
                  optimizer=torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
        self.check()

    def test_cnn_with_batch_norm(self):
        self.save(Cnn(), data=batches((8, 1, 12, 12), 5, 4), steps=30)
        self.check()

    def test_model_that_returns_the_loss(self):
        data = [(torch.randint(0, 50, (4, 16)), torch.randint(0, 50, (4, 16))) for _ in range(2)]
        self.save(Gpt(layers=1), None, data, steps=10)
        self.check()

    def test_other_losses_and_frozen_weights(self):
        for loss, targets in ((nn.MSELoss(), torch.randn(8, 5)),
                              (nn.BCEWithLogitsLoss(), torch.rand(8, 5).round())):
            model = Mlp()
            model.fc1.bias.requires_grad_(False)
            self.save(model, loss, [(torch.randn(8, 20), targets)], steps=10, overwrite=True,
                      optimizer=torch.optim.RMSprop(model.parameters(), 1e-3))
            self.assertIn("fc1.bias", self.document()["arguments"])
            self.check()

    def test_smoothed_labels(self):
        self.save(Mlp(), nn.CrossEntropyLoss(label_smoothing=0.2), batches((8, 20), 5, 3), steps=10)
        self.assertIn("cross-entropy,logits,smoothing=0.2", self.document()["arguments"])
        self.check()

    def test_smoothed_labels_inside_the_model(self):
        class Smoothed(Mlp):
            def forward(self, x, y):
                scores = super().forward(x)
                each = F.cross_entropy(scores, y, label_smoothing=0.2, reduction="none")
                return each.max() + F.cross_entropy(scores, y, self.weight, label_smoothing=0.5)

        model = Smoothed()
        model.weight = torch.tensor([0.25, 4.0, 1.0, 0.0, 2.5])
        self.save(model, None, batches((8, 20), 5, 3), steps=10)
        self.check()

    def test_a_label_for_every_pixel(self):
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1))
        data = [(torch.randn(4, 3, 6, 5), torch.randint(0, 5, (4, 6, 5))) for _ in range(3)]
        for _, labels in data:
            labels[:, :2] = 255
        self.save(model, nn.CrossEntropyLoss(ignore_index=255), data, steps=10)
        self.check()

    def test_an_output_that_is_already_a_softmax(self):
        class Twice(Mlp):
            def forward(self, x):
                return super().forward(x).softmax(1)
        self.save(Twice(), data=batches((8, 20), 5, 3), steps=10)
        self.check()

    def test_losses_are_those_of_a_plain_loop(self):
        model = Mlp()
        data = list(batches((8, 20), 5, 3))
        self.save(model, data=data, steps=7)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        wanted = []
        for step in range(7):
            loss = F.cross_entropy(model(data[step % 3][0]), data[step % 3][1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            wanted.append(float(loss.detach()))
        self.assertEqual(self.document()["losses"], wanted)

    def compare(self, model, data, make_optimizer, make_scheduler, steps=20,
                loss_fn=nn.CrossEntropyLoss(), **more):
        """Saves a twin; its losses must be those of a loop that somebody would write, and
        HalfScope must repeat them."""
        start = copy.deepcopy(model)
        optimizer = make_optimizer(model)
        scheduler = make_scheduler(optimizer)
        before = copy.deepcopy(optimizer.state_dict())
        self.save(model, loss_fn, data, optimizer=optimizer, scheduler=scheduler, steps=steps,
                  overwrite=True, **more)
        self.assertEqual(optimizer.state_dict(), before)
        if scheduler is not None:
            self.assertEqual(scheduler.last_epoch, 0)
        optimizer = make_optimizer(start)
        scheduler = make_scheduler(optimizer)
        wanted = []
        for step in range(steps):
            loss = loss_fn(start(data[step % len(data)][0]), data[step % len(data)][1])
            optimizer.zero_grad()
            loss.backward()
            if "clip_norm" in more:
                nn.utils.clip_grad_norm_(start.parameters(), more["clip_norm"])
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            wanted.append(float(loss.detach()))
        self.assertEqual(self.document()["losses"], wanted)
        self.check()

    def test_weights_of_classes(self):
        weight = torch.tensor([0.25, 4.0, 1.0, 0.0, 2.5])
        data = list(batches((8, 20), 5, 3))
        pixels = [(torch.randn(4, 3, 6, 5), torch.randint(0, 5, (4, 6, 5))) for _ in range(3)]
        for _, labels in pixels:
            labels[:, :2] = 255
        many = [(x, torch.rand(8, 5).round()) for x, _ in data]

        def logarithms():
            return nn.Sequential(nn.Linear(20, 5), nn.LogSoftmax(1))

        def image():
            return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1))

        for make, loss_fn, batches_of in (
                (Mlp, nn.CrossEntropyLoss(weight=weight), data),
                (image, nn.CrossEntropyLoss(weight=weight, ignore_index=255), pixels),
                (Mlp, nn.CrossEntropyLoss(weight=weight, label_smoothing=0.3), data),
                (Mlp, nn.CrossEntropyLoss(weight=weight, label_smoothing=0.3, reduction="sum"),
                 data),
                (image, nn.CrossEntropyLoss(weight=weight, ignore_index=255, label_smoothing=0.1),
                 pixels),
                (image, nn.CrossEntropyLoss(ignore_index=255, label_smoothing=0.1, reduction="sum"),
                 pixels),
                (Mlp, nn.MSELoss(reduction="sum"), many),
                (logarithms, nn.NLLLoss(weight=weight), data), (logarithms, nn.NLLLoss(), data),
                (Mlp, nn.BCEWithLogitsLoss(pos_weight=weight), many),
                (Mlp, nn.BCEWithLogitsLoss(weight=weight, pos_weight=2 * weight), many)):
            with self.subTest(loss=loss_fn):
                self.compare(make(), batches_of, lambda model: torch.optim.Adam(
                    model.parameters(), 1e-2), lambda o: None, loss_fn=loss_fn)

    def test_schedules(self):
        rates = torch.optim.lr_scheduler
        data = list(batches((8, 20), 5, 3))
        made = (lambda o: rates.StepLR(o, 4, 0.25), lambda o: rates.MultiStepLR(o, [3, 9], 0.1),
                lambda o: rates.CosineAnnealingLR(o, 20), lambda o: rates.ExponentialLR(o, 0.9),
                lambda o: rates.LambdaLR(o, lambda step: min(1.0, step / 5)),
                lambda o: rates.OneCycleLR(o, 0.5, total_steps=21, cycle_momentum=False),
                lambda o: rates.SequentialLR(o, [rates.LinearLR(o, 0.1, total_iters=5),
                                                 rates.CosineAnnealingLR(o, 15)], [5]))
        for make in made:
            with self.subTest(make=make):
                self.compare(Mlp(), data, lambda model: torch.optim.SGD(
                    model.parameters(), 0.5, momentum=0.9), make)

    def test_schedules_of_momenta_and_groups(self):
        rates = torch.optim.lr_scheduler
        data = list(batches((8, 20), 5, 3))

        def with_groups(cls, *options, **more):
            return lambda model: cls([
                {"params": [model.fc1.weight]}, {"params": [model.fc1.bias, model.fc2.bias]},
                {"params": [model.fc2.weight], **dict(options)}], 0.05, **more)

        sgd = with_groups(torch.optim.SGD, ("momentum", 0.5), momentum=0.9, nesterov=True)
        adam = with_groups(torch.optim.AdamW, ("lr", 0.01), betas=(0.8, 0.99))
        for make_optimizer, make, arrays in (
                (lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
                 lambda o: rates.OneCycleLR(o, 0.5, total_steps=21), {"lr", "momentum"}),
                (lambda model: torch.optim.Adam(model.parameters(), amsgrad=True),
                 lambda o: rates.OneCycleLR(o, 0.05, total_steps=21), {"lr", "beta1"}),
                (lambda model: torch.optim.RMSprop(model.parameters(), 0.01),
                 lambda o: rates.OneCycleLR(o, 0.01, total_steps=21), {"lr", "momentum"}),
                (sgd, lambda o: rates.CyclicLR(o, 0.01, 0.2, 5), {"lr", "momentum"}),
                (sgd, lambda o: rates.OneCycleLR(o, [0.5, 0.2, 0.1], total_steps=21,
                                                 max_momentum=[0.95, 0.9, 0.95]),
                 {"lr", "momentum", "*.bias:momentum"}),
                (adam, lambda o: rates.OneCycleLR(
                    o, 0.05, total_steps=21, max_momentum=[0.95, 0.85, 0.9],
                    base_momentum=[0.85, 0.85, 0.5]),
                 {"lr", "beta1", "fc2.weight:beta1"}),
                (adam, lambda o: rates.LambdaLR(o, [
                    lambda step: 0.9**step, lambda step: 1.0, lambda step: min(1.0, step / 5)]),
                 {"lr", "*.bias:lr", "fc2.weight:lr"}),
                # The first group has no rate, and the others do not follow from it.
                (adam, lambda o: rates.LambdaLR(o, [
                    lambda step: 0.0, lambda step: 1.0, lambda step: 0.0]), {"lr", "*.bias:lr"})):
            with self.subTest(make=make, arrays=arrays):
                self.compare(Mlp(), data, make_optimizer, make)
                self.assertIn("file:rates.npz", self.document()["arguments"])
                self.assertEqual(set(np.load(os.path.join(self.folder, "rates.npz"))), arrays)
        self.compare(Mlp(), data, adam, lambda o: rates.StepLR(o, 4, 0.5))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "rates.npz")))

    def test_parameter_groups_switches_and_clipping(self):
        data = list(batches((8, 20), 5, 3))
        # Gradients fall, so Adam with amsgrad divides by larger second moments than without.
        for cls in (torch.optim.Adam, torch.optim.AdamW):
            self.compare(Mlp(), data, lambda model, cls=cls: cls(
                model.parameters(), 0.02, betas=(0.9, 0.5), amsgrad=True), lambda o: None)
            self.assertIn("amsgrad=true", " ".join(self.document()["arguments"]))

        def adamw(model):
            biases = [value for name, value in model.named_parameters() if name.endswith("bias")]
            weights = [value for name, value in model.named_parameters() if name.endswith("weight")]
            return torch.optim.AdamW([{"params": weights, "weight_decay": 0.5},
                                      {"params": biases, "weight_decay": 0.0, "lr": 0.02}], 0.01)

        self.compare(Mlp(), data, adamw, lambda o: None)
        self.assertIn("*.bias:lr=0.02,weight_decay=0.0", self.document()["arguments"])
        self.compare(Mlp(), data, adamw, lambda o: torch.optim.lr_scheduler.LambdaLR(
            o, lambda step: (step + 1) / 20), clip_norm=0.05)

        def sgd(model):
            return torch.optim.SGD([{"params": [model.fc1.weight]},
                                    {"params": [model.fc1.bias, *model.fc2.parameters()],
                                     "lr": 0.02}], 0.1, momentum=0.9, nesterov=True)

        self.compare(Mlp(), data, sgd, lambda o: None)
        for group in ("*.bias:lr=0.02", "fc2.weight:lr=0.02"):
            self.assertIn(group, self.document()["arguments"])

        def betas(model):
            return torch.optim.Adam([{"params": model.fc1.parameters(), "betas": (0.5, 0.9)},
                                     {"params": [model.fc2.weight], "eps": 1e-3, "amsgrad": True},
                                     {"params": [model.fc2.bias], "betas": (0.0, 0.99)}], 0.02)

        self.compare(Mlp(), data, betas, lambda o: None)
        self.assertIn("fc2.bias:beta1=0.0,beta2=0.99", self.document()["arguments"])

        def momenta(model):
            return torch.optim.SGD(
                [{"params": [model.fc1.weight], "nesterov": True},
                 {"params": [model.fc1.bias, model.fc2.bias], "momentum": 0.5},
                 {"params": [model.fc2.weight], "momentum": 0.0, "nesterov": True}],
                0.1, momentum=0.9)

        self.compare(Mlp(), data, momenta, lambda o: None)
        for group in ("*.bias:momentum=0.5,nesterov=false",
                      "fc2.weight:momentum=0.0,nesterov=false"):
            self.assertIn(group, self.document()["arguments"])

    def test_dampening_centered_and_maximize(self):
        data = list(batches((8, 20), 5, 3))

        def dampened(model):
            return torch.optim.SGD([{"params": model.fc1.parameters()},
                                    {"params": model.fc2.parameters(), "dampening": 0.0}],
                                   0.1, momentum=0.9, dampening=0.9)

        def centered(model):
            return torch.optim.RMSprop([{"params": model.fc1.parameters(), "momentum": 0.5},
                                        {"params": model.fc2.parameters(), "centered": False}],
                                       0.01, centered=True)

        def adversary(model):
            return torch.optim.Adam([{"params": model.fc1.parameters(), "maximize": True},
                                     {"params": model.fc2.parameters()}], 0.001)

        for make, text in ((dampened, "*:dampening=0.0"), (centered, "centered=true"),
                           (adversary, "maximize=true")):
            with self.subTest(text=text):
                self.compare(Mlp(), data, make, lambda o: None)
                self.assertIn(text.replace("*", "fc2.weight"), " ".join(self.document()["arguments"]))

    def test_a_loss_that_is_maximized(self):
        data = list(batches((8, 20), 5, 3))

        class Reward(Mlp):
            def forward(self, x, y):
                return -F.cross_entropy(super().forward(x), y)

        for cls, more in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.AdamW, {}),
                          (torch.optim.RMSprop, {})):
            with self.subTest(optimizer=cls):
                model = Reward()
                self.save(model, None, data, cls(model.parameters(), 0.01, maximize=True, **more),
                          steps=30, overwrite=True)
                losses = self.document()["losses"]
                self.assertGreater(losses[-1], losses[0])
                self.check()
                self.assertNotIn("did not learn", self.diagnose("--no-twins"))


class Judges(Case):
    def test_planted_overflow_is_found_by_its_module_and_cured(self):
        self.save(Hot(), data=batches((8, 1, 12, 12), 5, 4))
        result = self.diagnose("--json", "--verify", "--no-twins")
        self.assertEqual(result["diagnosis"]["root"][0]["layer"], "conv2")
        self.assertTrue(result["proof"]["holds"])

    def test_altered_weights_are_refused(self):
        self.save(Mlp(), data=batches((8, 20), 5, 4), steps=5)
        path = os.path.join(self.folder, "net.onnx")
        file = onnx.load(path)
        for each in file.graph.initializer:
            if each.name == "fc2.weight":
                value = numpy_helper.to_array(each) * np.float32(1.01)
                each.CopyFrom(numpy_helper.from_array(value, each.name))
        onnx.save(file, path)
        text = self.diagnose(code=3)
        self.assertIn("at step 0 the fp32 loss is", text)
        self.assertIn("The first module that differs is 'fc2'", text)

    def test_another_optimizer_is_not_blamed_on_a_module(self):
        self.save(Cnn(), data=batches((8, 1, 12, 12), 5, 4), steps=5)
        self.change(lambda document: document.update(
            arguments=[each.replace("lr=0.001", "lr=0.01") for each in document["arguments"]]))
        text = self.diagnose(code=3)
        self.assertIn("at step 1 the fp32 loss is", text)
        self.assertRegex(text, r"In step 0, the outputs of [56] modules and \d+ gradients agree, so "
                         "the cause is in the optimizer")

    def test_outputs_are_those_of_the_modules(self):
        model, data = Mlp(), list(batches((8, 20), 5, 2))
        hidden = model.fc1(data[0][0])
        self.save(model, data=data, steps=2)
        outputs = {each["module"]: each for each in self.document()["outputs"]}
        self.assertEqual(list(outputs), ["fc1", "fc2"])
        self.assertAlmostEqual(outputs["fc1"]["norm"], float(hidden.double().norm()), places=4)
        self.assertEqual(outputs["fc1"]["n"], hidden.numel())


class LeavesAlone(Case):
    def test_model_optimizer_and_random_numbers_are_unchanged(self):
        model = Cnn()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        data = list(batches((8, 1, 12, 12), 5, 2))
        F.cross_entropy(model(data[0][0]), data[0][1]).backward()
        optimizer.step()
        before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        gradients = [p.grad.clone() for p in model.parameters()]
        random = torch.get_rng_state()
        self.save(model, data=data, optimizer=optimizer, steps=5, fresh=True)
        after = (model.state_dict(), optimizer.state_dict())
        for name, value in before[0].items():
            self.assertTrue(torch.equal(value, after[0][name]), name)
        for key, state in before[1]["state"].items():
            for name, value in state.items():
                self.assertTrue(torch.equal(value, after[1]["state"][key][name]), name)
        self.assertTrue(all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients)))
        self.assertTrue(torch.equal(random, torch.get_rng_state()))
        self.assertIs(type(model), Cnn)
        self.assertTrue(any("state of the optimizer" in e for e in self.document()["left_out"]))


class Refuses(Case):
    def test_what_it_cannot_repeat(self):
        data = list(batches((8, 20), 5, 2))
        model = Mlp()
        parameters = list(model.parameters())
        self.refuse("Adagrad is not supported", model, data=data,
                    optimizer=torch.optim.Adagrad(parameters))
        self.refuse("different decoupled_weight_decay", model, data=data,
                    optimizer=torch.optim.Adam([{"params": parameters[:1]}, {
                        "params": parameters[1:], "decoupled_weight_decay": True}]))
        self.refuse("clip_norm=0", model, data=data, clip_norm=0)
        self.refuse("loss L1Loss is not supported. Supported: nn.CrossEntropyLoss", model,
                    nn.L1Loss(), data)
        self.refuse("CrossEntropyLoss with reduction='none' is not a loss", model,
                    nn.CrossEntropyLoss(reduction="none"), data)
        self.refuse("probabilities", model, data=[(data[0][0], torch.rand(8, 5))])
        used = torch.optim.Adam(parameters)
        model(data[0][0]).sum().backward()
        used.step()
        self.refuse(r"state \(exp_avg, exp_avg_sq\), which a twin cannot take over", model,
                    data=data, optimizer=used)
        planned = torch.optim.SGD(parameters, 0.1)
        rates = torch.optim.lr_scheduler
        schedule = rates.CosineAnnealingLR(planned, 10)
        planned.step()
        self.refuse("schedule belongs to the optimizer", model, data=data, optimizer=planned)
        schedule.step()
        self.refuse("CosineAnnealingLR is at step 1", model, data=data, optimizer=planned,
                    scheduler=schedule)
        planned = torch.optim.SGD(parameters, 0.1)
        self.refuse("depends on results", model, data=data, optimizer=planned,
                    scheduler=rates.ReduceLROnPlateau(planned))

        class Decay(rates.LRScheduler):
            def get_lr(self):
                self.optimizer.param_groups[0]["weight_decay"] += 0.01
                return self.base_lrs

        planned = torch.optim.SGD(parameters, 0.1)
        self.refuse("also changes weight_decay", model, data=data, optimizer=planned,
                    scheduler=Decay(planned))
        planned = torch.optim.SGD(parameters, 0.1, momentum=0.9)
        self.refuse("momentum to a number that is not between 0 and 1", model, data=data,
                    optimizer=planned, scheduler=rates.CyclicLR(planned, 0.1, 0.2, 5,
                                                                base_momentum=0.0))
        self.refuse("no batches", model, data=[])
        self.refuse("equal shapes", model, data=[data[0], (data[0][0][:4], data[0][1][:4])])
        nn.init.constant_(model.fc2.weight, 1e38)
        self.refuse("fp32 loss is", model, data=data)

    def test_frozen_statistics(self):
        model = Cnn()
        model.bn.eval()
        self.refuse("'bn' does not train", model, data=batches((8, 1, 12, 12), 5, 2))
        self.assertFalse(os.path.exists(self.folder))

    def test_modules_that_cannot_be_exported_are_named(self):
        class Odd(nn.Module):
            def forward(self, x):
                return torch.linalg.lstsq(x.T @ x, x.T).solution.T

        class Net(Mlp):
            def __init__(self):
                super().__init__()
                self.odd = Odd()

            def forward(self, x):
                return super().forward(self.odd(x))
        self.refuse(r"Modules that cannot be exported: odd \(Odd\)", Net(),
                    data=batches((32, 20), 5, 2))


if __name__ == "__main__":
    unittest.main()
