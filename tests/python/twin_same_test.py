# SPDX-License-Identifier: MIT
"""Which twins are the same training as PyTorch's, and which are not: rounding explains some
differences, and what an exported network cannot repeat is refused by name."""
import contextlib
import copy
import json
import os
import random
import unittest
import warnings
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from halfscope._subsequence import common
from networks import Cnn, Mlp, batches
from twin_test import Case

warnings.simplefilter("error")


class Shifted(nn.Module):
    """A shift of whole lines changes no log_softmax, so its gradient is rounding, which Adam makes as
    large as any other. The loss depends on the sign."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(20, 16), nn.Linear(16, 5)
        self.lines = nn.Parameter(torch.randn(16, 7))
        self.shift = nn.Parameter(torch.zeros(16, 1))

    def forward(self, x, y):
        loss = F.cross_entropy(self.fc2(F.relu(self.fc1(x))), y)
        lines = F.log_softmax(self.lines + self.shift, 1)
        return loss - lines[:, 0].sum() + 1e8 * (self.shift ** 3).sum()


class Rounding(Case):
    def shifted(self):
        self.save(Shifted(), loss=None, data=batches((8, 20), 5, 4), steps=12)

    def test_rounding_that_hides_later_losses_is_no_reason_to_refuse(self):
        self.shifted()
        result = self.diagnose("--json", "--no-twins")["twin"]
        self.assertEqual((result["compared_steps"], result["steps"]), (1, 12))
        self.assertLess(result["largest_difference"], 1e-6)
        text = " ".join(self.diagnose("--no-twins").split())
        self.assertIn("the first of PyTorch's 12 fp32 losses", text)
        self.assertIn("From step 1 on, rounding alone may move the loss by more than 0.10%", text)
        self.assertRegex(text, r"In step 0, the outputs of 2 modules and 6 gradients agree")

    def test_another_first_step_is_refused_although_rounding_hides_the_losses(self):
        self.shifted()

        def other_gradient(document):
            entry = next(each for each in document["gradients"]
                         if each["parameter"] == "fc1.weight")
            entry["norm"] *= 1.01
        self.change(other_gradient)
        text = self.diagnose("--no-twins", code=3)
        self.assertIn("the gradient of 'fc1.weight' does not", text)

    def test_outputs_that_are_rounding_are_not_compared(self):
        # The second sample differs from the first by rounding, which the normalization blows up.
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, eps=1e-20), nn.Linear(16, 4))
        x = torch.randn(1, 8)
        data = [(torch.cat([x, x * (1.0 + 1e-6)]), torch.tensor([0, 1]))]
        self.save(model, data=data, steps=4)
        self.assertIn("none of PyTorch's 4 fp32 losses can be compared", self.diagnose())

        def other_gradient(document):
            document["gradients"][-1]["norm"] *= 2.0
        self.change(other_gradient)
        self.assertIn("but the gradient of", self.diagnose(code=3))

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


class Subsequence(unittest.TestCase):
    def test_is_ordered_and_the_longest(self):
        numbers = random.Random(1)
        for _ in range(300):
            a, b = (numbers.choices("abcd", k=numbers.randrange(25)) for _ in range(2))
            pairs = common(a, b)
            self.assertTrue(all(a[i] == b[j] for i, j in pairs))
            for each in zip(*pairs):
                self.assertEqual(list(each), sorted(set(each)))
            longest = np.zeros((len(a) + 1, len(b) + 1), int)
            for i, j in np.ndindex(len(a), len(b)):
                longest[i + 1, j + 1] = longest[i, j] + 1 if a[i] == b[j] else \
                    max(longest[i, j + 1], longest[i + 1, j])
            self.assertEqual(len(pairs), longest[-1, -1])


class OtherNetworks(Case):
    def test_a_transformer_with_a_causal_mask_keeps_its_names(self):
        class Decoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(30, 16)
                self.inner = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)
                self.last = nn.Linear(16, 30)

            def forward(self, x):
                x = self.words(x)
                mask = nn.Transformer.generate_square_subsequent_mask(6, device=x.device)
                return self.last(self.inner(x, x, tgt_mask=mask)).transpose(1, 2)

        self.save(Decoder(), data=[(torch.randint(30, (3, 6)), torch.randint(30, (3, 6)))], steps=3)
        self.assertEqual(self.document()["exporter"], "dynamo")
        self.assertIn("inner.decoder.layers.0.linear1", self.document()["nodes"].values())
        self.assertIn("repeats PyTorch's 3 fp32 losses", self.diagnose("--no-twins"))

    def test_norms_of_zeros_have_no_gradient(self):
        class Norms(nn.Linear):
            def forward(self, x):
                y = super().forward(x)
                y = F.normalize(y, dim=-1) + y / (y.norm(dim=-1, keepdim=True) + 1.0)
                return y * torch.linalg.vector_norm(y, dim=(0, 1))

        data = list(batches((8, 20), 5, 2))
        data[0][0][3] = 0.0
        self.save(Norms(20, 5, bias=False), data=data, steps=3)
        self.assertIn("repeats PyTorch's 3 fp32 losses", self.diagnose("--no-twins"))

    def test_a_part_of_a_parameter_that_is_set_to_zero_does_not_train(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv, self.last = nn.Linear(20, 24), nn.Linear(24, 5)

            def forward(self, x):
                bias = self.qkv.bias.clone()
                bias[8:16].zero_()  # keys have no bias
                return self.last(F.linear(x, self.qkv.weight, bias))

        self.save(Attention(), data=batches((8, 20), 5, 2), steps=3)
        self.assertIn("repeats PyTorch's 3 fp32 losses", self.diagnose("--no-twins"))


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


class Masked(nn.Module):
    """A mask that overflows in fp16, because the code casts it."""

    def forward(self, x):
        return (x - (x > 1) * 1e9).to(x.dtype).softmax(-1).float()


class Wide(nn.Linear):
    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


class Gpu(nn.Linear):
    @torch.autocast("cuda", enabled=False)
    def forward(self, x):
        return super().forward(x.float())


class Where(nn.Linear):
    """As transformers does, only where autocast is on."""

    def forward(self, x):
        on = torch.is_autocast_enabled(x.device.type)
        with torch.autocast("cpu", enabled=False) if on else contextlib.nullcontext():
            return super().forward(x.float())


class Own(nn.Linear):
    """Switches autocast on itself, which is not a region without it."""

    def forward(self, x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where there is no GPU
            autocast = torch.autocast("cuda", dtype=torch.bfloat16)
        with autocast:
            return super().forward(x)


class Careful(nn.Module):
    """Loses almost everything in bf16, where numbers near 256 are 2 apart."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(20, 16), nn.Linear(16, 5)
        self.third = nn.Linear(5, 5)
        nn.init.constant_(self.third.bias, 256.3)

    def forward(self, x):
        x = self.first(x)
        with torch.autocast("cpu", enabled=False):
            wide = x.float()
            wide = torch.add(wide, 256.0)
            wide = torch.sub(wide, 256.0)
            wide = F.linear(wide, self.last.weight * 4.0)
            # With three dimensions, exporters write the bias apart. It is near 256, as above.
            wide = self.third(wide[:, None])[:, 0] - self.third.bias
        # By keyword, after the region.
        last = F.linear(input=x.float(), weight=self.last.weight, bias=self.last.bias)
        return wide.to(x.dtype) + last


class CodeOfTheModel(Case):
    """Casts and regions without autocast."""

    def notes(self, what):
        """Returns the nodes whose metadata has a key, with its value."""
        import onnx
        nodes = onnx.load(os.path.join(self.folder, "net.onnx")).graph.node
        return [(self.document()["nodes"][node.name], node.op_type, entry.value) for node in nodes
                for entry in node.metadata_props if entry.key == "halfscope." + what]

    def losses_of(self, plan):
        run = self.train(plan)
        self.run_program("report", run, "--json", run + ".json", "--force")
        with open(run + ".json") as file:
            return json.load(file)["steps"][plan]["loss"]

    def test_plans_of_autocast_compute_what_autocast_does(self):
        model, data = Careful(), list(batches((8, 20), 5, 2))
        start = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.02)
        self.save(model, data=data, steps=12, optimizer=optimizer)
        optimizer = torch.optim.SGD(start.parameters(), 0.02)
        expected = []
        for step in range(12):
            x, y = data[step % 2]
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(start(x), y)
            expected.append(float(loss.detach()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with_code = self.losses_of("torch-autocast-cpu-bf16")
        self.assertLess(max(abs(a - b) for a, b in zip(with_code, expected)), 0.005)
        # Without, the losses are others.
        with mock.patch("halfscope._autocast.code_of", return_value=(None, "a reason")):
            self.save(copy.deepcopy(start), data=data, steps=12, overwrite=True)
        without = self.losses_of("torch-autocast-cpu-bf16")
        self.assertGreater(max(abs(a - b) for a, b in zip(without, expected)), 0.1)

    def test_a_mask_that_the_code_casts_overflows_there(self):
        model = nn.Sequential(nn.Linear(20, 16), Masked(), nn.Linear(16, 5))
        self.save(model, data=batches((8, 20), 5, 2), steps=3)
        self.assertEqual(self.document()["lost_casts"], [])
        self.assertEqual(self.notes("cast.cuda"), [("1", "Identity", "autocast")])
        self.assertNotIn("casts", " ".join(self.document()["left_out"]))
        self.assertIn("an operand of 1:identity overflows fp16", self.diagnose("--no-twins"))

    def test_regions_are_those_of_each_device(self):
        model = nn.Sequential(nn.Linear(20, 16), Wide(16, 16), Gpu(16, 16), nn.Linear(16, 16),
                              Own(16, 16), Where(16, 5))
        self.save(model, data=batches((8, 20), 5, 2), steps=3)
        self.assertEqual(self.document()["autocast_off"], [])
        self.assertFalse(torch.is_autocast_enabled("cuda"))
        self.assertFalse(torch.is_autocast_enabled("cpu"))
        regions = self.notes("autocast_off")
        self.assertEqual([each for _, op, each in regions if op == "Gemm"],
                         ["cuda cpu", "cuda", "cpu"])

    def test_tied_parameters_that_are_computed_with_train(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(20, 20), nn.Linear(20, 20)
                self.last.weight = self.first.weight

            def forward(self, x):
                return F.linear(F.relu(self.first(x)), self.last.weight * 2.0)

        self.save(Tied(), data=batches((8, 20), 5, 2), steps=3)
        self.assertIn("repeats PyTorch's 3 fp32 losses", self.diagnose("--no-twins"))

    def test_code_may_differ_in_exports_and_under_autocast(self):
        class Branches(nn.Linear):
            def forward(self, x):
                if torch.compiler.is_exporting():
                    x = x * 1.0
                if x.dtype != self.weight.dtype:  # only under autocast
                    x = x.to(self.weight.dtype)
                x = x.relu()
                return super().forward(x * 2.0 if x.is_cuda else x)

        class Twice(nn.Module):
            def forward(self, x):
                if x.dtype != torch.float32:
                    x = x.float()
                return x * 1.0 + x * 1e30 * 1e-30  # too much for fp16

        model = nn.Sequential(nn.Linear(20, 16), Branches(16, 16), Masked(), nn.Linear(16, 16),
                              Twice(), nn.Linear(16, 5))
        self.save(model, data=batches((8, 20), 5, 2), steps=3)
        self.assertEqual(self.document()["lost_casts"], [])
        self.assertEqual(self.notes("cast.cuda"),
                         [("1", "Identity", "float32"), ("2", "Identity", "autocast"),
                          ("4", "Identity", "float32"), ("4", "Identity", "float32")])

    def test_a_cast_without_a_place_is_lost_with_a_reason(self):
        class Second(nn.Module):
            def forward(self, x):
                wide = x.float() if x.dtype != torch.float32 else x
                return torch.add(torch.zeros_like(x), wide)

        self.save(nn.Sequential(nn.Linear(20, 16), Second(), Masked(), nn.Linear(16, 5)),
                  data=batches((8, 20), 5, 2), steps=3)
        self.assertEqual(self.document()["lost_casts"], ["2"])
        self.assertRegex(" ".join(self.document()["left_out"]), "no place for the cast .* float")

    def test_products_of_experts_are_outside_of_autocast(self):
        class Experts(nn.Module):
            """Sends each row to two of four experts."""

            def __init__(self):
                super().__init__()
                self.router, self.last = nn.Linear(20, 4), nn.Linear(8, 5)
                self.inner = nn.Parameter(torch.randn(4, 20, 8) / 4)

            def forward(self, x):
                weights, experts = self.router(x).softmax(-1).topk(2)
                group, order = experts.reshape(-1).sort(stable=True)
                offsets = (group[:, None] == torch.arange(4, device=x.device)).sum(0).cumsum(0)
                y = F.grouped_mm(x.float()[order // 2], self.inner, offs=offsets.int())
                place = torch.empty_like(order)
                place[order] = torch.arange(len(order), device=x.device)
                return self.last((y[place].view(-1, 2, 8) * weights[..., None]).sum(1))

        if not hasattr(F, "grouped_mm"):
            self.skipTest("this PyTorch has no grouped_mm")
        self.save(Experts(), data=batches((40, 20), 5, 2), steps=8)
        products = [(op, each) for _, op, each in self.notes("autocast_off") if op == "MatMul"]
        self.assertEqual(products, [("MatMul", "cuda cpu")] * 4)
        result = self.diagnose("--json", "--no-twins")
        self.assertEqual(result["twin"]["compared_steps"], 8)
        self.assertLess(result["twin"]["largest_difference"], 1e-5)

    def test_what_cannot_be_kept_is_named(self):
        class Elsewhere(nn.Linear):
            def forward(self, x):
                return super().forward(x + torch.zeros(16))

        model = nn.Sequential(nn.Linear(20, 16), Masked(), Elsewhere(16, 16), Gpu(16, 16),
                              Own(16, 5))
        data = list(batches((8, 20), 5, 2))
        self.save(model, data=data, steps=3)
        self.assertEqual(self.document()["lost_casts"], ["1", "3"])
        self.assertEqual(self.document()["autocast_off"], ["3"])
        self.assertEqual(self.notes("cast.cuda") + self.notes("autocast_off"), [])
        notes = " ".join(self.document()["left_out"])
        self.assertIn("casts such as .to(x.dtype) or .float() in '1', '3'", notes)
        self.assertIn("torch.autocast(enabled=False) in '3'", notes)
        self.assertRegex(notes, "the reason for lost casts and regions: .*device")
        text = " ".join(self.diagnose("--no-twins").split())
        self.assertIn("does not have casts such as .to(x.dtype) or .float() in 1 and 3, so", text)
        self.assertIn("does not have torch.autocast(enabled=False) in 3: plans may", text)
        self.save(Mlp(), data=data, steps=3, overwrite=True)
        self.assertEqual(self.document()["lost_casts"] + self.document()["autocast_off"], [])
        self.assertNotIn("does not have", self.diagnose("--no-twins"))


if __name__ == "__main__":
    unittest.main()
