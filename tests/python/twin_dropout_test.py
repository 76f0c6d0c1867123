# SPDX-License-Identifier: MIT
"""Twins of networks with dropout: switched off, kept, or refused."""
import copy
import os
import random
import unittest

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs
from networks import Mlp, batches
from twin_test import Case, Encoder


class DropsBranches(nn.Module):
    """Stochastic depth as in Hugging Face's models: the module returns its input in evaluation."""

    def forward(self, x):
        if not self.training:
            return x
        return x / 0.5 * torch.floor(0.5 + torch.rand(x.shape[0], *[1] * (x.ndim - 1)))


class Attends(nn.Module):
    """Drops elements of attention, of a function and of a branch."""

    def __init__(self):
        super().__init__()
        self.query, self.out, self.branch = nn.Linear(6, 6), nn.Linear(6, 5), DropsBranches()

    def forward(self, x):
        p = 0.25 if self.training else 0.0
        x = x + self.branch(F.scaled_dot_product_attention(self.query(x), x, x, dropout_p=p))
        return self.out(F.dropout(x, p=p, training=self.training).mean(1))


class SwitchesOff(Case):
    def test_of_modules(self):
        self.save(Encoder(), data=batches((8, 7, 6), 5, 4), steps=30)
        self.assertTrue(any("dropout" in each and "encoder.layers.0.dropout1" in each
                            for each in self.document()["left_out"]))
        self.assertIn("encoder.layers.0.linear1", self.document()["nodes"].values())
        self.repeated()

    def test_of_functions_attention_and_branches(self):
        model, data = Attends(), list(batches((8, 7, 6), 5, 3))
        plain = copy.deepcopy(model).eval()
        self.save(model, data=data, steps=8)
        optimizer = torch.optim.Adam(plain.parameters(), 1e-3)
        wanted = []
        for step in range(8):
            x, y = data[step % 3]
            loss = F.cross_entropy(plain(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            wanted.append(float(loss.detach()))
        np.testing.assert_allclose(self.document()["losses"], wanted, rtol=1e-6)
        self.assertTrue(any("switched off in branch, the model's forward" in each or
                            "switched off in the model's forward, branch" in each
                            for each in self.document()["left_out"]))
        self.assertEqual(self.document()["dropout"], 0)
        self.assertTrue(model.training and model.branch.training)
        self.repeated()

    def test_of_whole_channels(self):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(400, 5))
        self.save(model, data=batches((8, 1, 12, 12), 5, 2), steps=3)
        self.repeated()

    def test_of_other_random_numbers_is_refused(self):
        class Noisy(Mlp):
            def forward(self, x):
                return super().forward(x + torch.randn_like(x))

        class Shifts(nn.Module):
            def forward(self, x):
                return x + torch.rand_like(x) if self.training else x * 3.0

        class Picks(nn.Module):
            def forward(self, x):
                return x[:, torch.randperm(x.shape[1])[:5]] if self.training else x

        class Remembers(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("mean", torch.zeros(20))

            def forward(self, x):
                if self.training:
                    self.mean += x[torch.randint(8, (4,))].mean(0)
                return x

        class Chance(nn.Module):
            def forward(self, x):
                return x if random.random() < 2.0 else -x

        data, before = list(batches((8, 20), 5, 2)), random.getstate()
        self.refuse("the model draws random numbers .*randn_like.*Pass a model", Noisy(),
                    data=data)
        for odd, text in ((Shifts(), "does more than return its input"), (Picks(), "randperm"),
                          (Remembers(), "randint"), (Chance(), "Python's random"),
                          (nn.RReLU(), "does more than return")):
            last = nn.Linear(5 if isinstance(odd, Picks) else 20, 5)
            self.refuse(f"draws random numbers.*{text}", nn.Sequential(odd, last), data=data)
        self.assertEqual(random.getstate(), before)


class Dropped(nn.Module):
    """Drops elements in a module and in a function."""

    def __init__(self):
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(20, 64), nn.Dropout(0.5), nn.Linear(64, 5)

    def forward(self, x):
        return self.fc2(F.dropout(self.drop(F.relu(self.fc1(x))), 0.25, self.training))


class KeepsDropout(Case):
    def check(self, places):
        """The network must drop elements, and the comparison must not."""
        self.assertEqual(self.document()["dropout"], places)
        self.assertFalse(any("dropout" in each for each in self.document()["left_out"]))
        record = os.path.join(os.path.dirname(self.folder), "run.hscope")
        result = self.repeated("--record", record)
        self.assertEqual(result["twin"]["dropouts"], places)
        judged = hs.open(record).steps()["loss"]
        self.assertGreater(abs(judged[0] - self.document()["losses"][0]), 1e-3)

    def test_of_modules_and_functions(self):
        model, data = Dropped(), list(batches((8, 20), 5, 3))
        start = copy.deepcopy(model)
        self.save(model, data=data, steps=12, dropout=True)
        optimizer = torch.optim.Adam(start.parameters(), 1e-3)
        wanted = []
        for step in range(12):
            x, y = data[step % 3]
            loss = F.cross_entropy(start.fc2(F.relu(start.fc1(x))), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            wanted.append(float(loss.detach()))
        self.assertEqual(self.document()["losses"], wanted)
        self.assertEqual(model.drop.p, 0.5)
        self.check(2)
        text = self.diagnose("--no-twins")
        self.assertRegex(text, "12 fp32 losses without dropout")
        self.assertIn("Plans are judged with dropout", text)

    def test_inside_attention(self):
        self.save(Encoder(), data=batches((8, 7, 6), 5, 4), steps=20, dropout=True)
        self.check(4)

    def test_between_the_layers_of_an_lstm(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(6, 8, 2, dropout=0.5, batch_first=True)
                self.fc = nn.Linear(8, 5)

            def forward(self, x):
                return self.fc(self.lstm(x)[0][:, -1])
        self.save(Net(), data=batches((8, 7, 6), 5, 4), steps=10, dropout=True)
        self.check(1)

    def test_without_any(self):
        self.save(Mlp(), data=batches((8, 20), 5, 2), steps=3, dropout=True)
        self.assertEqual(self.document()["dropout"], 0)
        self.assertNotIn("dropout", self.diagnose("--no-twins"))

    def test_of_whole_channels_is_refused(self):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(400, 5))
        with self.assertRaisesRegex(hs.Error, "Pass dropout=False"):
            self.save(model, data=batches((8, 1, 12, 12), 5, 2), dropout=True)


if __name__ == "__main__":
    unittest.main()
