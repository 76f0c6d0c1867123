# SPDX-License-Identifier: MIT
"""Plans of autocast round where PyTorch does. PyTorch trains the same step under autocast on this CPU
and is the oracle: all gradients agree, which differ by up to a percent between bf16 and fp32."""
import copy
import os
import unittest
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import halfscope as hs
from twin_test import Case

warnings.simplefilter("error")

_RATE = 1000.0  # of SGD: updates are far above the rounding of the weights that they change


class Between(nn.Module):
    """A function of [batch, positions, features] between linear layers."""

    def __init__(self, function, layers=None):
        super().__init__()
        self.function = function
        self.embed = nn.Embedding(11, 8)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 11)
        self.layers = layers or nn.ModuleDict()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(2.0)  # larger, so that biases matter

    def forward(self, x):
        return self.last(self.function(self.layers, self.first(self.embed(x))).sum(1))


class Rounds(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.batch = torch.randint(0, 11, (16, 6)), torch.randint(0, 11, (16,))

    def updates(self, model, plan):
        """Returns the 2-norms of one step's updates by parameter, in units of the learning rate."""
        self.save(model, data=[self.batch], steps=1, overwrite=True,
                  optimizer=torch.optim.SGD(model.parameters(), _RATE))
        run = hs.open(self.train(plan, "--loss-scale", "none"))
        norms = {}
        for name, _ in model.named_parameters():
            stats = run.stats(name + "_update", lane=plan)
            norms[name] = float(stats["sum_sq"][0]) ** 0.5 / _RATE
        return norms

    def gradients(self, model, dtype):
        x, y = self.batch
        model.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        return {name: float(p.grad.double().norm()) for name, p in model.named_parameters()}

    def assert_same(self, model, limit=5e-4, apart=3, oracle=None):
        """All gradients are within `limit` of PyTorch's for `oracle` (by default the model itself),
        and some are `apart` limits from fp32's. Most are equal; another order of a sum in PyTorch's
        kernels may move a result to its neighbor."""
        ours = self.updates(copy.deepcopy(model), "torch-autocast-cpu-bf16")
        oracle = oracle or model
        theirs, wide = (self.gradients(oracle, d) for d in (torch.bfloat16, torch.float32))
        off = {name: abs(ours[name] / theirs[name] - 1) for name in theirs}
        self.assertLess(max(off.values()), limit, off)
        self.assertGreater(max(abs(wide[n] / theirs[n] - 1) for n in theirs), apart * limit)


class LinearLayers(Rounds):
    """Exporters write a product and a sum for inputs of three dimensions. PyTorch adds the bias
    before it rounds, unless the input is a transposed view."""

    @staticmethod
    def layers():
        return nn.ModuleDict({"up": nn.Linear(8, 16), "down": nn.Linear(16, 8),
                              "mix": nn.Linear(6, 12), "back": nn.Linear(12, 6)})

    def between(self, function, *names):
        layers = self.layers()
        for name in set(layers) - set(names):
            del layers[name]
        self.assert_same(Between(function, layers))

    def test_add_the_bias_before_they_round(self):
        self.between(lambda m, x: m["down"](F.relu(m["up"](x))), "up", "down")

    def test_of_four_dimensions_too(self):
        self.between(lambda m, x: m["down"](m["up"](x.view(-1, 2, 3, 8))).view(-1, 6, 8),
                     "up", "down")

    def test_round_before_the_bias_if_the_input_is_transposed(self):
        self.between(lambda m, x: m["back"](m["mix"](F.relu(x.transpose(1, 2)))).transpose(1, 2),
                     "mix", "back")

    def test_a_copy_of_a_transposed_input_is_in_order(self):
        self.between(lambda m, x: m["back"](F.relu(m["mix"](x.transpose(1, 2).contiguous())))
                     .transpose(1, 2), "mix", "back")

    def test_round_before_the_bias_if_the_input_is_a_part_or_expanded(self):
        self.between(lambda m, x: m["up"](x[:, 1:])[..., :8], "up")
        self.between(lambda m, x: m["up"](x[:, :1].expand(-1, 6, -1))[..., :8], "up")
        self.between(lambda m, x: m["down"](m["up"](x)[1:]).repeat(2, 1, 1)[:16], "up", "down")

    def test_transposing_twice_is_in_order(self):
        self.between(lambda m, x: m["down"](m["up"](x.transpose(1, 2).relu().transpose(1, 2))),
                     "up", "down")

    def test_element_wise_functions_keep_the_order_of_their_first_operand(self):
        self.between(lambda m, x: m["back"](m["mix"](x.transpose(1, 2) + x.reshape(-1, 8, 6)))
                     .transpose(1, 2), "mix", "back")


class Functions(Rounds):
    def test_gradients_of_quotients(self):
        self.assert_same(Between(lambda _, x: torch.sigmoid(x) / (x.abs() + 0.5)))

    def test_code_of_the_network_rounds_at_every_step(self):
        def normalized(_, x):
            centered = x - x.mean(-1, keepdim=True)
            return centered / torch.sqrt((centered ** 2).mean(-1, keepdim=True) + 1e-5)
        self.assert_same(Between(normalized))

    def test_a_function_and_its_formula_round_apart(self):
        self.assert_same(Between(lambda _, x: x * torch.sigmoid(x)))
        self.assert_same(Between(lambda _, x: F.silu(x)))

    def test_functions_of_several_nodes_round_once(self):
        self.assert_same(Between(lambda _, x: torch.addcmul(x, x, torch.sigmoid(x), value=0.5)))


class Kernel(torch.autograd.Function):
    """The attention of a kernel: FlashAttention-2 (arXiv:2307.08691), algorithms 1 and 2, with blocks
    of whole rows and the division by the sum of exponentials before the second product."""

    @staticmethod
    @torch.autocast("cpu", enabled=False)
    def forward(context, q, k, v, scale, mask):
        scores = q.float() @ k.float().transpose(-1, -2) * scale
        p = torch.softmax(scores if mask is None else scores + mask, -1)
        context.save_for_backward(q, k, v, p)
        context.scale = scale
        return (p.to(q.dtype).float() @ v.float()).to(q.dtype)

    @staticmethod
    @torch.autocast("cpu", enabled=False)
    def backward(context, dy):
        q, k, v, p = context.saved_tensors
        low, dy = q.dtype, dy.float()
        dp = dy @ v.float().transpose(-1, -2)
        ds = (context.scale * p * (dp - (dp * p).sum(-1, keepdim=True))).to(low).float()
        dv = p.to(low).float().transpose(-1, -2) @ dy
        return (ds @ k.float()).to(low), (ds.transpose(-1, -2) @ q.float()).to(low), dv.to(low), None, None


class Attention(Rounds):
    MASK = torch.full((6, 6), float("-inf")).triu(1)

    @staticmethod
    def heads(x):
        return x.view(-1, 6, 2, 4).transpose(1, 2)

    def model(self, attention, factor=1.0):
        def attend(layers, x):
            q, k, v = (self.heads(y) for y in layers["qkv"](x).chunk(3, -1))
            return attention(q * factor, k, v).transpose(1, 2).reshape(-1, 6, 8)
        torch.manual_seed(1)
        return Between(attend, nn.ModuleDict({"qkv": nn.Linear(8, 24)}))

    def test_the_kernel_keeps_scores_and_their_gradients_in_fp32(self):
        for scale, mask, more in ((0.5, None, {}), (0.5, self.MASK, {"is_causal": True}),
                                  (2.0, self.MASK, {"scale": 2.0, "attn_mask": self.MASK == 0})):
            model = self.model(lambda *qkv: F.scaled_dot_product_attention(*qkv, **more))
            oracle = self.model(lambda *qkv: Kernel.apply(*qkv, scale, mask))
            self.assert_same(model, oracle=oracle)

    def test_learned_queries_keys_and_values(self):
        def model(attention, learned):
            def attend(layers, x):
                q, k, v = (self.heads(y) for y in layers["qkv"](x).chunk(3, -1))
                fixed = layers["fixed"].weight.view(1, 2, 3, 4).expand(16, 2, 3, 4)
                if learned == "q":
                    y = attention(fixed, k, v)
                elif learned == "k":
                    y = attention(q, fixed, v[:, :, :3])
                else:
                    y = attention(q, k[:, :, :3], fixed)
                return y.transpose(1, 2).reshape(16, -1, 8)
            torch.manual_seed(1)
            return Between(attend, nn.ModuleDict({"qkv": nn.Linear(8, 24),
                                                  "fixed": nn.Linear(4, 6, bias=False)}))
        def kernel(q, k, v):
            low = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
            return Kernel.apply(q.to(low), k.to(low), v.to(low), 0.5, None)
        for learned in "qkv":
            oracle = model(kernel, learned)
            with self.subTest(learned):
                self.assert_same(model(F.scaled_dot_product_attention, learned), 1e-3, 1,
                                 oracle=oracle)

    def test_pytorchs_kernel_is_near(self):
        # It rounds exponentials before it divides by their sum. Rounded scores move gradients by
        # up to 1.7%.
        model = self.model(lambda *qkv: F.scaled_dot_product_attention(*qkv, scale=1.3))
        self.assert_same(model, 6e-3, 1)

    def test_its_scores_do_not_overflow(self):
        model = self.model(F.scaled_dot_product_attention, 4000.0)
        with torch.no_grad():
            x = model.layers["qkv"](model.first(model.embed(self.batch[0])))
            q, k, _ = (self.heads(y) for y in x.chunk(3, -1))
        self.assertLess(float(4000.0 * q.abs().max()), 65504)
        self.assertGreater(float((4000.0 * q @ k.transpose(-1, -2)).abs().max()), 65504)
        theirs = self.gradients(model, torch.float16)
        ours = self.updates(copy.deepcopy(model), "torch-autocast-cpu-fp16")
        for name, norm in theirs.items():
            self.assertAlmostEqual(ours[name] / norm, 1, delta=0.05, msg=name)


if __name__ == "__main__":
    unittest.main()
