# SPDX-License-Identifier: MIT
"""Trainings that fail for known reasons: what their recordings name as the cause, and advise."""
import os
import tempfile
import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs
from networks import batches, train_classifier

warnings.simplefilter("error")
torch.set_num_threads(2)


class Causes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "run.hscope")
        torch.manual_seed(0)

    def cause_of(self, forward, *, loss=F.cross_entropy, dtype=torch.float16, scale=1.0,
                 optimizer=None, data=lambda step, x: x, scaled=True):
        """Trains three layers under autocast and returns the report. `forward` computes what the
        third one reads from what the second one gives."""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 5)

            def forward(self, x):
                return self.c(forward(self.b(F.relu(self.a(x)))))

        model = Net()
        with torch.no_grad():
            model.c.weight.mul_(scale)
        optimizer = (optimizer or torch.optim.Adam)(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        losses = []
        with hs.watch(model, optimizer, out=self.file, overwrite=True):
            for step, (x, y) in enumerate(batches((16, 20), 5, 60)):
                with torch.autocast("cpu", dtype, enabled=dtype is not None):
                    value = loss(model(data(step, x)), y)
                optimizer.zero_grad()
                scaler.scale(value).backward()
                scaler.step(optimizer)
                scaler.update()
                losses.append(float(value.detach()))
        self.losses = losses
        return hs.open(self.file).report

    def check_cause(self, report, headline, advice, mechanism="invalid_result"):
        self.assertIn(report["verdict"]["state"], ("broken", "attention"))
        self.assertRegex(report["verdict"]["text"], headline)
        if report["lanes"][0]["name"] != "float32":  # where float32 fails, no plan is to blame
            self.assertEqual(report["diagnosis"]["mechanism"], mechanism)
        texts = [each["text"] for each in report["actions"]]
        self.assertTrue(texts and advice in texts[0], texts)

    def test_code_between_modules_is_named(self):
        def softmax(h):
            mask = torch.zeros(h.shape)
            mask[0] = -1e9  # -infinity in fp16, in all of a row
            return (h + mask.to(h.dtype)).softmax(-1).to(h.dtype)

        def normalized(h):
            h = torch.exp(30 * h)
            return h / h.sum(-1, keepdim=True)

        for forward in (softmax, normalized, lambda h: torch.log(torch.sigmoid(100 * h))):
            torch.manual_seed(0)
            report = self.cause_of(forward)
            self.check_cause(report, "the code between b and c gives",
                             "Compute the code between b and c in fp32")
            self.assertIsNone(report["recommendation"])

    def test_a_loss_that_overflows_alone(self):
        def by_hand(logits, y):
            return (torch.log(torch.exp(logits).sum(1)) - logits.gather(1, y[:, None])[:, 0]).mean()

        report = self.cause_of(F.relu, loss=by_hand, scale=100.0)
        self.assertEqual(self.losses[0], float("inf"))
        self.assertEqual(hs.open(self.file).steps()["loss"][0], float("inf"))
        self.check_cause(report, "the loss function gives infinity at step 0",
                         "Compute the loss in fp32")

    def test_norms_that_overflow_stop_all_gradients(self):
        report = self.cause_of(lambda h: h * 800 / (h * 800).pow(2).sum(-1, keepdim=True).sqrt())
        self.check_cause(report, "the code between b and c gives nothing but 0, so a and b learn",
                         "Compute the code between b and c in fp32", "forward_flush")

    def test_data_that_are_not_numbers(self):
        def spoil(step, x):
            return x.index_fill(0, torch.tensor([3]), float("nan")) if step == 30 else x

        for dtype in (None, torch.bfloat16):
            torch.manual_seed(0)
            report = self.cause_of(F.relu, dtype=dtype, data=spoil, scaled=False)
            self.check_cause(report, "the data contain NaN at step 30",
                             "Clean the data: the batch of step 30", "bad_data")

    def test_attention_over_nothing_is_no_overflow(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.out = nn.Linear(5, 16), nn.Linear(16, 5)
                self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

            def forward(self, x):
                h = self.embed(x.view(-1, 4, 5))
                mask = torch.zeros(h.shape[:2], dtype=torch.bool)
                mask[0] = True
                return self.out(self.attention(h, h, h, key_padding_mask=mask)[0].mean(1))

        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (16, 20), 60, dtype=torch.float16,
                             scaler=torch.amp.GradScaler("cpu"))
        report = hs.open(self.file).report
        self.check_cause(report, "attention produces NaN", "Run attention in fp32 to see")

    def test_a_module_that_runs_again_is_not_blamed(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 5)
                self.relu = nn.ReLU()
                nn.init.normal_(self.b.weight, std=3e4)

            def forward(self, x):
                return self.c(self.relu(self.b(self.relu(self.a(x)))))

        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        with hs.watch(model, optimizer, out=self.file):
            train_classifier(model, optimizer, (16, 20), 60, dtype=torch.float16,
                             scaler=torch.amp.GradScaler("cpu"))
        run = hs.open(self.file)
        self.assertRegex(run.verdict, r"because b(\.weight)? overflows fp16")
        self.assertEqual([place["layer"] for place in run.report["diagnosis"]["root"]], ["b"])

    def test_state_that_overflows_is_the_cause(self):
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).half()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-4)
        with hs.watch(model, optimizer, out=self.file):
            for x, y in batches((16, 20), 5, 60):
                optimizer.zero_grad()
                (F.cross_entropy(model(x.half()).float(), y) * 3e4).backward()
                optimizer.step()
        report = hs.open(self.file).report
        self.check_cause(report, "the optimizer state of .* overflows fp16: .* are infinite",
                         "Keep fp32 master weights", "state_overflow")

    def train(self, model, loss=F.cross_entropy, optimizer=None):
        """Trains a classifier of samples (16, 20) in fp16 and returns the report."""
        optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu")
        with hs.watch(model, optimizer, out=self.file, overwrite=True):
            for x, y in batches((16, 20), 5, 40):
                with torch.autocast("cpu", torch.float16):
                    value = loss(model(x), y)
                optimizer.zero_grad()
                scaler.scale(value).backward()
                scaler.step(optimizer)
                scaler.update()
        return hs.open(self.file).report

    def test_a_causal_mask_is_no_fault(self):
        class Attention(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.scale, self.qkv, self.softmax = scale, nn.Linear(5, 15), nn.Softmax(-1)

            def forward(self, x):
                q, k, v = self.qkv(x).chunk(3, -1)
                later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
                scores = (q * self.scale) @ k.transpose(1, 2)
                return x + self.softmax(scores.masked_fill(later, float("-inf"))) @ v

        class Net(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.first, self.second = Attention(0.4), Attention(scale)
                self.out = nn.Linear(20, 5)

            def forward(self, x):
                x = self.second(self.first(x.view(-1, 4, 5)))
                return self.out(x.flatten(1))

        report = self.train(Net(0.4))
        self.assertEqual(report["verdict"]["state"], "inconclusive", report["verdict"])
        report = self.train(Net(1e6))
        self.check_cause(report, "the code between second.qkv and second.softmax gives .*infinity",
                         "Compute the code between second.qkv and second.softmax in fp32")

    def test_a_root_of_zero_has_no_slope(self):
        def distances(z, y):
            apart = ((z[:, None].float() - z[None].float()) ** 2).sum(-1).sqrt()
            return (apart * (y[:, None] == y[None])).mean()

        report = self.train(nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5)),
                            distances)
        self.check_cause(report, "the loss function gives 2 a gradient that is NaN at step 0",
                         "torch.sqrt(x + eps)")

    def test_a_norm_whose_squares_overflow_gives_zeros(self):
        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(64))

            def forward(self, x):
                x = x * 2000
                return x * torch.rsqrt((x * x).mean(-1, keepdim=True)) * self.weight.to(x.dtype)

        report = self.train(nn.Sequential(nn.Linear(20, 64), Norm(), nn.Linear(64, 5)))
        self.check_cause(report, "1 gives nothing but 0, so 0 and 1 learn nothing",
                         "Keep 1 in fp32", "forward_flush")

    def test_a_variance_below_zero_is_of_the_module_that_computes_it(self):
        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(64))

            def forward(self, x):
                x = x + 60  # the same for all: the variance is lost in fp16
                var = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
                return (x - x.mean(-1, keepdim=True)) / var.sqrt() * self.weight

        report = self.train(nn.Sequential(nn.Linear(20, 64), Norm(), nn.Linear(64, 5)))
        self.check_cause(report, "1 gives .* from finite numbers", "Run 1 in fp32 to see")

    def test_adagrad_in_pure_fp16_divides_by_zero(self):
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).half()
        optimizer = torch.optim.Adagrad(model.parameters(), 0.01)
        with hs.watch(model, optimizer, out=self.file):
            for x, y in batches((16, 20), 5, 12):
                optimizer.zero_grad()
                (F.cross_entropy(model(x.half()).float(), y) * 1e-3).backward()
                optimizer.step()
        self.check_cause(hs.open(self.file).report, "the optimizer state of .* underflows fp16",
                         "Keep fp32 master weights", "flushed_state")

    def test_gradients_that_overflow_without_a_scaler(self):
        report = self.cause_of(F.relu, loss=lambda o, y: F.cross_entropy(o, y) * 2 ** 22,
                               scaled=False)
        self.check_cause(report, "overflows fp16 at step 0", "Make the gradients smaller",
                         "gradient_overflow")


if __name__ == "__main__":
    unittest.main()
