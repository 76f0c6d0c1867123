# SPDX-License-Identifier: MIT
"""Which twins are the same training as PyTorch's, and which are not: rounding explains some
differences, and what an exported network cannot repeat is refused by name."""
import contextlib
import copy
import unittest
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from networks import Cnn, Mlp, batches
from twin_test import Case, Encoder

warnings.simplefilter("error")


class Rounding(Case):
    def saturated(self):
        """Saves a transformer with one-hot attention. Its gradients there are rounding errors, which
        Adam makes as large as all others."""
        model = Encoder()
        with torch.no_grad():
            model.encoder.layers[0].self_attn.in_proj_weight[:32] *= 1e4
        self.save(model, data=batches((8, 7, 6), 5, 4), steps=12)

    def test_rounding_that_hides_later_losses_is_no_reason_to_refuse(self):
        self.saturated()
        result = self.diagnose("--json", "--no-twins")["twin"]
        self.assertEqual((result["compared_steps"], result["steps"]), (1, 12))
        self.assertLess(result["largest_difference"], 1e-6)
        text = " ".join(self.diagnose("--no-twins").split())
        self.assertIn("the first of PyTorch's 12 fp32 losses", text)
        self.assertIn("From step 1 on, rounding alone may move the loss by more than 0.10%", text)
        self.assertRegex(text, r"In step 0, the outputs of \d modules and 1\d gradients agree")

    def test_another_first_step_is_refused_although_rounding_hides_the_losses(self):
        self.saturated()

        def other_gradient(document):
            entry = next(each for each in document["gradients"]
                         if each["parameter"] == "encoder.layers.0.linear1.weight")
            entry["norm"] *= 1.01
        self.change(other_gradient)
        text = self.diagnose("--no-twins", code=3)
        self.assertIn("the gradient of 'encoder.layers.0.linear1.weight' does not", text)

    def test_gradients_are_those_of_the_first_step(self):
        model, data = Mlp(), list(batches((8, 20), 5, 2))
        start = copy.deepcopy(model)
        self.save(model, data=data, steps=2)
        F.cross_entropy(start(data[0][0]), data[0][1]).backward()
        wanted = {name: float(value.grad.double().norm())
                  for name, value in start.named_parameters()}
        found = {each["parameter"]: each for each in self.document()["gradients"]}
        self.assertEqual({name: each["norm"] for name, each in found.items()}, wanted)
        for each in found.values():
            self.assertGreater(each["moved"], 0.0)
            self.assertLess(each["moved"], 1e-5 * each["norm"])

    def test_moved_losses_differ_by_rounding(self):
        self.save(Mlp(), data=batches((8, 20), 5, 2), steps=5)
        losses = np.array(self.document()["losses"])
        moved = np.array(self.document()["moved_losses"])
        self.assertEqual(moved.shape, (2, 5))
        self.assertTrue((np.abs(moved - losses).max(axis=1) > 0).all())
        self.assertLess(np.abs(moved - losses).max(), 1e-5)

    def test_a_loss_of_another_form_is_blamed_on_the_gradient(self):
        """The square of the loss, scaled to the same first value."""
        data = list(batches((8, 20), 5, 4))
        self.save(Mlp(), data=data, steps=5)

        def squared(document):
            for each in document["gradients"]:
                each["norm"] *= 2
            document["losses"][1] *= 0.99
        self.change(squared)
        text = self.diagnose(code=3)
        self.assertIn("The outputs of 2 modules agree in step 0, but the gradient of 'fc2.bias' "
                      "does not", " ".join(text.split()))

    def test_missing_momentum_and_a_trained_bias_are_refused(self):
        model = Mlp()
        self.save(model, data=batches((8, 20), 5, 4), steps=8,
                  optimizer=torch.optim.SGD(model.parameters(), 0.1, momentum=0.5))

        def without_momentum(document):
            document["arguments"] = [each.replace("momentum=0.5,", "")
                                     for each in document["arguments"]]
        self.change(without_momentum)
        self.assertIn("at step 2 the fp32 loss is", self.diagnose(code=3))
        model = Mlp()
        nn.init.zeros_(model.fc1.bias)
        model.fc1.bias.requires_grad_(False)
        self.save(model, data=batches((8, 20), 5, 4), steps=8, overwrite=True)
        self.change(lambda document: document.update(
            arguments=[each for each in document["arguments"]
                       if each not in ("--frozen", "fc1.bias")]))
        text = self.diagnose(code=3)
        self.assertIn("at step 1 the fp32 loss is", text)
        self.assertIn("the cause is in the optimizer", " ".join(text.split()))


class LogSigmoid(Case):
    """PyTorch computes it without the sigmoid, which is 0 in fp32 below -104."""

    def check(self):
        result = self.diagnose("--json", "--no-twins")["twin"]
        self.assertEqual(result["compared_steps"], len(self.document()["losses"]))
        self.assertLess(result["largest_difference"], 1e-5)

    def test_of_a_binary_cross_entropy_with_large_logits(self):
        many = [(x * 100, torch.rand(8, 5).round()) for x, _ in batches((8, 20), 5, 3)]
        for loss in (nn.BCEWithLogitsLoss(),
                     nn.BCEWithLogitsLoss(pos_weight=torch.full((5,), 2.0))):
            with self.subTest(loss=loss):
                model = Mlp()
                nn.init.normal_(model.fc2.weight, std=10.0)
                self.assertLess(float(model(many[0][0]).detach().min()), -1000.0)
                self.save(model, loss, many, steps=10, overwrite=True,
                          optimizer=torch.optim.SGD(model.parameters(), 1e-6))
                self.check()

    def test_in_the_network(self):
        class Net(Mlp):
            def forward(self, x):
                return self.fc2(F.logsigmoid(self.fc1(x) * 1000))
        model = Net()
        self.save(model, data=batches((8, 20), 5, 3), steps=10,
                  optimizer=torch.optim.SGD(model.parameters(), 1e-6))
        self.check()


class OneNumberPerSample(Case):
    def test_plans_that_read_the_network_know_the_batch(self):
        model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 5))
        data = [(torch.randint(0, 12, (8,)), torch.randint(0, 5, (8,))) for _ in range(2)]
        self.save(model, data=data, steps=5)
        for plan in ("torch-autocast-cpu-fp16", "torch-autocast-fp16", "mixed_float16"):
            text = self.diagnose("--no-twins", plan=plan)
            self.assertIn("repeats PyTorch's 5 fp32 losses", " ".join(text.split()))
            self.assertIn("takes 8 samples at once", text)


class Refuses(Case):
    def test_state_that_the_forward_pass_changes(self):
        class Counter(Mlp):
            def __init__(self):
                super().__init__()
                self.register_buffer("passes", torch.zeros(()))

            def forward(self, x):
                self.passes += 1
                return super().forward(x) / self.passes

        class Silent(Mlp):
            passes = 0

            def forward(self, x):
                self.passes += 1
                return super().forward(x) / self.passes

        data = list(batches((8, 20), 5, 2))
        self.refuse("the forward pass changes 'passes', so a second pass", Counter(), data=data)
        self.refuse("the forward pass changes something that is not a buffer", Silent(), data=data)
        model = Mlp()
        nn.utils.parametrizations.spectral_norm(model.fc1)
        self.refuse(r"changes 'fc1.parametrizations.weight.0._u'", model, data=data)

    def test_gradients_that_the_forward_pass_cuts_off(self):
        class Detached(Mlp):
            def forward(self, x):
                h = self.fc1(x)
                return self.fc2(h.detach() * 0.5 + h * torch.sigmoid(h.detach()))

        class Center(nn.Module):
            def forward(self, x):
                with torch.no_grad():
                    mean = x.mean(0)
                return x - mean

        class Watched(Mlp):
            def forward(self, x):
                h = self.fc1(x)
                self.last = h.detach().abs().max()
                with torch.no_grad():
                    self.mean = h.mean()
                return self.fc2(h)

        data = list(batches((8, 20), 5, 2))
        self.refuse(r".detach\(\) in the model's forward changes the gradient of 'fc1", Detached(),
                    data=data)
        model = nn.Sequential(nn.Linear(20, 16), Center(), nn.Linear(16, 5))
        self.refuse(r"torch.no_grad\(\) in module '1' changes the gradient of '0", model, data=data)
        self.save(Watched(), data=data, steps=3)  # nothing reads what was cut off

    def test_evaluation_mode_is_noted_where_it_matters(self):
        data = list(batches((8, 1, 12, 12), 5, 2))
        with self.assertWarnsRegex(UserWarning, "the model is in evaluation mode"):
            self.save(Cnn().eval(), data=data, steps=2)
        self.assertTrue(any("evaluation mode" in each for each in self.document()["left_out"]))
        self.save(Mlp().eval(), data=batches((8, 20), 5, 2), steps=2, overwrite=True)
        self.assertFalse(any("evaluation mode" in each for each in self.document()["left_out"]))

    def test_batches_that_the_model_or_the_loss_cannot_take(self):
        data = list(batches((8, 20), 5, 2))
        data[1] = (data[1][0], data[1][1] + 5)
        self.refuse(r"the loss of a batch of shapes .* cannot be computed: Target \d is out of "
                    "bounds", Mlp(), data=data)
        self.refuse("the loss of a batch .* cannot be computed: .*mat1 and mat2", Mlp(),
                    data=batches((8, 21), 5, 2))

    def test_casts_that_change_nothing_in_fp32_are_named(self):
        class Masked(nn.Module):
            def forward(self, x):
                return (x - (x > 1) * 1e9).to(x.dtype).softmax(-1).float()

        class Net(nn.Sequential):
            def forward(self, x):
                return super().forward(x).type_as(x)

        model = Net(nn.Linear(20, 16), Masked(), nn.Linear(16, 5))
        self.save(model, data=batches((8, 20), 5, 2), steps=3)
        self.assertEqual(self.document()["lost_casts"], ["1", ""])
        self.assertTrue(any("casts that change nothing in fp32" in each and "'1'" in each
                            for each in self.document()["left_out"]))
        text = " ".join(self.diagnose("--no-twins").split())
        self.assertIn("Casts such as .to(x.dtype) or .float() in 1 and the model's forward change "
                      "nothing in fp32", text)
        self.save(Mlp(), data=batches((8, 20), 5, 2), steps=3, overwrite=True)
        self.assertEqual(self.document()["lost_casts"], [])
        self.assertNotIn("Casts", self.diagnose("--no-twins"))

    def test_regions_without_autocast_are_named(self):
        class Wide(nn.Linear):
            def forward(self, x):
                with torch.autocast(x.device.type, enabled=False):
                    return super().forward(x.float())

        class Gpu(nn.Linear):
            @torch.autocast("cuda", enabled=False)
            def forward(self, x):
                return super().forward(x)

        class Where(nn.Linear):  # like transformers, only where autocast is on
            def forward(self, x):
                on = torch.is_autocast_enabled(x.device.type)
                with torch.autocast("cpu", enabled=False) if on else contextlib.nullcontext():
                    return super().forward(x.float())

        model = nn.Sequential(nn.Linear(20, 16), Wide(16, 16), Gpu(16, 16), nn.Linear(16, 16),
                              Where(16, 5))
        self.save(model, data=batches((8, 20), 5, 2), steps=3)
        self.assertEqual(self.document()["autocast_off"], ["1", "2", "4"])
        self.assertFalse(torch.is_autocast_enabled("cuda"))
        self.assertTrue(any("torch.autocast(enabled=False) in '1', '2', '4'" in each
                            for each in self.document()["left_out"]))
        text = " ".join(self.diagnose("--no-twins").split())
        self.assertIn("does not have torch.autocast(enabled=False) in 1, 2 and 4: plans may", text)
        self.save(Mlp(), data=batches((8, 20), 5, 2), steps=3, overwrite=True)
        self.assertEqual(self.document()["autocast_off"], [])


if __name__ == "__main__":
    unittest.main()
