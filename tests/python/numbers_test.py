# SPDX-License-Identifier: MIT
"""hs.round and hs.stats against NumPy, PyTorch and arithmetic in Python."""
import math
import unittest

import numpy as np
import torch

import halfscope as hs
from halfscope import _numbers
from reference import stats_of

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "e4m3fn": torch.float8_e4m3fn,
          "e5m2": torch.float8_e5m2}


def wide_values(n=20000, seed=3):
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(n) * np.exp2(generator.uniform(-40, 20, n))
    values[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, 3.4e38, 65504.0]
    return values.astype(np.float32)


class Round(unittest.TestCase):
    def test_equals_torch(self):
        x = torch.from_numpy(wide_values())
        for name in ("fp16", "bf16", "e5m2"):
            expected = x.to(DTYPES[name]).float()
            if name == "e5m2":  # torch saturates nothing here either
                expected = x.to(torch.float8_e5m2).float()
            got = hs.round(x, name)
            same = (got == expected) | (got.isnan() & expected.isnan())
            self.assertTrue(bool(same.all()), f"{name}: {x[~same][:5]}")

    def test_saturates_where_asked(self):
        self.assertEqual(hs.round(1e9, "e4m3fn:sat"), 448.0)
        self.assertTrue(math.isnan(hs.round(1e9, "e4m3fn")))

    def test_keeps_kind_and_type(self):
        self.assertEqual(hs.round(np.float16([1.1]), "e4m3fn").dtype, np.float16)
        tensor = hs.round(torch.tensor([[1.1, 2.3]], dtype=torch.bfloat16), "e4m3fn")
        self.assertEqual((tensor.dtype, tensor.shape), (torch.bfloat16, (1, 2)))
        self.assertIsInstance(hs.round(1.1, "fp16"), float)
        transposed = torch.randn(4, 6).t()
        self.assertTrue(torch.equal(hs.round(transposed, "fp16"), transposed.half().float()))

    def test_integers_give_float64(self):
        for x in (np.int32([2049]), torch.tensor([2049]), torch.tensor([True])):
            rounded = hs.round(x, "fp16")
            self.assertIn(rounded.dtype, (np.float64, torch.float64))
            expected = np.float16(np.asarray(x)).astype(np.float64)
            np.testing.assert_array_equal(np.asarray(rounded), expected)
        self.assertEqual(hs.round(torch.tensor(3), "fp16").item(), 3.0)

    def test_doubles_round_once(self):
        # Through fp32 this would be a tie, and end at 1.
        x = 1.0 + 2.0**-11 + 2.0**-40
        self.assertEqual(hs.round(x, "fp16"), 1.0 + 2.0**-10)

    def test_directions(self):
        self.assertEqual(hs.round(1.0001, "fp16", mode="up"), 1.0 + 2.0**-10)
        self.assertEqual(hs.round(1.0001, "fp16", mode="down"), 1.0)

    def test_mistakes_are_answered(self):
        with self.assertRaisesRegex(ValueError, "nearest-even, .*toward-zero.*not 'sideways'"):
            hs.round(1.0, "fp16", mode="sideways")
        for call in (hs.round, hs.stats):
            with self.assertRaisesRegex(ValueError, "did you mean 'fp16'"):
                call(1.0, "fp61")
            with self.assertRaisesRegex(ValueError, "did you mean 'e4m3fn'"):
                call(1.0, "e4m3nf")
            with self.assertRaisesRegex(ValueError, "named formats are fp32, .*bf16"):
                call(1.0, "posit8")
            with self.assertRaisesRegex(ValueError, "named formats are .*int8, int4"):
                call(1.0, "posit8")
            with self.assertRaisesRegex(TypeError, "x must be numbers, not "):
                call("a", "fp16")
        for format in _numbers._FORMATS:  # none that does not exist
            self.assertEqual(hs.stats(1.0, format).format, format)


class Statistics(unittest.TestCase):
    def check(self, stats, values, format):
        expected = stats_of(values, format)
        for key, value in expected.items():
            got = getattr(stats, key)
            if key in ("sum", "sum_sq"):
                scale = max(abs(value), expected["sum_sq"] ** 0.5 if key == "sum" else 0.0)
                self.assertAlmostEqual(got, value, delta=1e-12 * scale + 1e-300, msg=key)
            elif key == "exponents":
                np.testing.assert_array_equal(got, value)
            else:
                self.assertEqual(got, value, key)

    def test_equals_numpy(self):
        values = wide_values()
        for format in ("fp32", "fp16", "bf16", "e4m3fn", "e5m2"):
            self.check(hs.stats(values, format), values, format)

    def test_of_every_type(self):
        values = wide_values(5000)
        for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            tensor = torch.from_numpy(values).to(dtype)
            stats = hs.stats(tensor)
            self.check(stats, tensor.float().numpy(), stats.format)
        stats = hs.stats(torch.from_numpy(values).double(), "fp16")
        self.check(stats, values, "fp16")

    def test_of_views(self):
        tensor = torch.randn(31, 17, 5)
        for view in (tensor.transpose(0, 2), tensor[::2, 3:, 1], tensor[:, ::3], tensor[0].t()[1:],
                     tensor[:1, :1].expand(7, 3, 5), tensor.flatten()[5]):
            for dtype in (torch.float32, torch.float16, torch.float64):
                typed = view.to(dtype)
                self.check(hs.stats(view if dtype == torch.float32 else typed, "fp16"),
                           (view if dtype == torch.float32 else typed).float().numpy(), "fp16")

    def test_of_nothing(self):
        self.assertEqual(hs.stats(np.zeros((0, 3), np.float32)).n, 0)

    def test_refuses_other_types(self):
        with self.assertRaises(TypeError):
            hs.stats(np.array(["a"]))


if __name__ == "__main__":
    unittest.main()
