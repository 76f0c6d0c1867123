# SPDX-License-Identifier: MIT
"""hs.watch in trainings of two processes, and `halfscope convert`, which joins their run files."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import halfscope as hs

PROGRAM = os.environ.get("HALFSCOPE_PROGRAM") or shutil.which("halfscope")
STEPS, BAD_STEP = 4, 2


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))


def batch(rank, step):
    generator = torch.Generator().manual_seed(10 * step + rank)
    x = torch.randn(5, 6, generator=generator)
    return x, torch.randint(0, 3, (5,), generator=generator)


def sharded(net):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    for layer in (net[0], net[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def work(rank, kind, folder):
    """Trains in one of two processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=2)
    net = network()
    model = sharded(net) if kind == "sharded" else nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=kind == "skips")
    with hs.watch(model, optimizer, out=os.path.join(folder, "run.hscope")):
        for step in range(STEPS):
            x, y = batch(rank, step)
            if kind in ("bad", "skips") and rank == 1 and step == BAD_STEP:
                x[0, 0] = torch.inf
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=kind == "skips"):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if kind == "apart" and rank == 1 and step == 1:
                with torch.no_grad():
                    net[3].weight[0, 0] += 0.5
    dist.barrier()
    dist.destroy_process_group()


class Ranks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        if not dist.is_available() or not dist.is_gloo_available():
            self.skipTest("PyTorch has no gloo")

    def train(self, kind):
        # Processes of their own: this one has threads.
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), kind,
                                   self.folder], stderr=subprocess.PIPE, text=True)
                 for rank in range(2)]
        for each in ranks:
            errors = each.communicate(timeout=240)[1]
            self.assertEqual(each.returncode, 0, errors)
        return [hs.open(self.file(f"run.rank{rank}.hscope")) for rank in range(2)]

    def file(self, name):
        return os.path.join(self.folder, name)

    def convert(self, *words, code=0):
        if PROGRAM is None:
            self.skipTest("no halfscope in PATH or HALFSCOPE_PROGRAM")
        done = subprocess.run([PROGRAM, "convert", *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def joined(self, first="run.rank0.hscope"):
        text = self.convert(self.file(first), "--out", self.file("all.hscope"), "--force")
        return text, hs.open(self.file("all.hscope"))

    def test_ranks_record_their_own_gradients(self):
        ranks = self.train("plain")
        for rank, run in enumerate(ranks):
            self.assertEqual(run.status, "complete")
            # The first step again, without the other process.
            net = network()
            x, y = batch(rank, 0)
            F.cross_entropy(net(x), y).backward()
            gradient = net[3].weight.grad.double()
            got = run.stats("3.weight_grad")
            np.testing.assert_allclose(got["sum_sq"][0], float((gradient ** 2).sum()), rtol=1e-5)
        for site in ("0.weight", "3.bias", "3.weight_adam_v"):
            np.testing.assert_array_equal(*(run.stats(site)["sum_sq"] for run in ranks))
        text, run = self.joined()
        self.assertIn("2 ranks, 4 steps", text)
        self.assertIn("weights: the same in all ranks", text)
        self.assertNotIn("worst", text)
        self.assertEqual((run.status, run.lanes), ("complete", ["rank0", "rank1"]))
        for lane, rank in zip(run.lanes, ranks):
            for key in ("loss", "grad_norm", "skipped"):
                np.testing.assert_array_equal(run.steps(lane)[key], rank.steps()[key])
            for site in ("3.activation", "0.weight_grad", "2.running_var"):
                for key, values in rank.stats(site).items():
                    np.testing.assert_array_equal(run.stats(site, lane)[key], values)

        os.remove(self.file("run.rank1.hscope"))
        os.remove(self.file("all.hscope"))
        text = self.convert(self.file("run.rank0.hscope"), "--out", self.file("all.hscope"), code=2)
        self.assertIn("run.rank1.hscope' is missing", text)
        self.assertFalse(os.path.exists(self.file("all.hscope")))

    def test_names_the_rank_that_fails(self):
        self.train("bad")
        text, run = self.joined("run.rank1.hscope")
        self.assertIn("first NaN, infinity or overflow: rank 1, input.input, step 2", text)
        self.assertIn("0: rank 1 is worst", text)
        self.assertEqual(run.stats("input.input", "rank1")["pos_inf"].sum(), 1)
        self.assertEqual(run.stats("input.input", "rank0")["pos_inf"].sum(), 0)

    def test_a_skipped_step_keeps_its_tensors_and_its_reason(self):
        ranks = self.train("skips")
        _, run = self.joined()
        for lane, rank in zip(run.lanes, ranks):
            self.assertEqual(list(run.steps(lane)["skipped"]), [step == BAD_STEP for step in range(STEPS)])
            for site in ("3.activation", "0.weight_grad"):  # a skipped step has no update
                self.assertEqual(list(run.stats(site, lane)["step"]), list(range(STEPS)))
                for key, values in rank.stats(site).items():
                    np.testing.assert_array_equal(run.stats(site, lane)[key], values)
        text = subprocess.run([PROGRAM, "diagnose", self.file("all.hscope"), "--lane", "rank0"],
                              capture_output=True, text=True).stdout
        self.assertIn("input.input of rank1 is NaN or infinite at step 2, and the ranks share their "
                      "gradients", text)
        self.assertNotIn("not recorded", text)

    def test_says_when_weights_drift_apart(self):
        self.train("apart")
        text, _ = self.joined()
        self.assertIn("weights: differ from step 2 on, first in 3.weight", text)

    def test_shards_are_recorded_by_each_rank(self):
        ranks = self.train("sharded")
        parts = [{s["name"]: s["shape"] for s in run.sites()} for run in ranks]
        self.assertEqual([part["3.weight"] for part in parts], [[2, 8], [1, 8]])
        self.assertEqual(parts[0]["3.activation"], [5, 3])
        whole = network()[3].weight.detach().double()
        both = sum(run.stats("3.weight")["sum_sq"][0] for run in ranks)
        np.testing.assert_allclose(both, float((whole ** 2).sum()), rtol=1e-6)
        # Gradients are means over the ranks there.
        nets = [network(), network()]
        for rank, net in enumerate(nets):
            x, y = batch(rank, 0)
            F.cross_entropy(net(x), y).backward()
        mean = (nets[0][3].weight.grad + nets[1][3].weight.grad).double() / 2
        both = sum(run.stats("3.weight_grad")["sum_sq"][0] for run in ranks)
        np.testing.assert_allclose(both, float((mean ** 2).sum()), rtol=1e-5)
        self.assertTrue(all("3.weight_adam_m" in part for part in parts))
        text, _ = self.joined()
        self.assertIn("each rank recorded its own part", text)


if __name__ == "__main__":
    if "--rank" in sys.argv:
        work(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        unittest.main()
