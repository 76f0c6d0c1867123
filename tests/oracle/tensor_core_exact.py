#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Dot products of tensor cores in exact rational arithmetic, from the formula alone:

    D = rho(q * (sum of trunc(a_k * b_k / q) + trunc(c / q))),  q = 2^(Emax - F)

Operands are fractions, never floating-point numbers. The cases come from a generator of 64-bit
integers that tests/tensor_core/oracle_test.cpp has too, so only the results are stored: for each
set below `CASES` words of 4 bytes, little endian, the bit pattern of the result as float32.

    tensor_core_exact.py --out vectors/tensor_core_exact.bin.gz
    tensor_core_exact.py --check vectors/tensor_core_exact.bin.gz [--cases N]
"""
import argparse
import gzip
import math
import struct
import sys
from fractions import Fraction

CASES = 2000
MASK = (1 << 64) - 1

# name: (exponent bits, mantissa bits, bias, kind of the top codes)
FORMATS = {
    "fp32": (8, 23, 127, "ieee"), "tf32": (8, 10, 127, "ieee"), "bf16": (8, 7, 127, "ieee"),
    "fp16": (5, 10, 15, "ieee"), "e5m2": (5, 2, 15, "ieee"), "e4m3fn": (4, 3, 7, "nan"),
    "e3m2": (3, 2, 3, "finite"), "e2m3": (2, 3, 1, "finite"), "e2m1": (2, 1, 1, "finite"),
}
NAN, INF = "nan", "inf"
NAN32, NAN16 = 0x7FFFFFFF, 0x7FFFE000

# (arch, a format, b format, accumulator, scale, G, F, rho, exponent of zero terms, path)
SETS = [
    ("v100", "fp16", "fp16", "fp32", "none", 4, 23, "rz24", -131, "native"),
    ("v100", "fp16", "fp16", "fp16", "none", 4, 23, "rne16", -20, "native"),
    ("t4", "fp16", "fp16", "fp32", "none", 8, 24, "rz24", -132, "native"),
    ("t4", "fp16", "fp16", "fp16", "none", 8, 24, "rne16", -21, "native"),
    ("a100", "bf16", "bf16", "fp32", "none", 8, 24, "rz24", -132, "native"),
    ("a100", "tf32", "tf32", "fp32", "none", 4, 24, "rz24", -132, "native"),
    ("ada", "e4m3fn", "e4m3fn", "fp32", "none", 16, 13, "rz14", -132, "native"),
    ("ada", "e5m2", "e4m3fn", "fp32", "none", 16, 13, "rz14", -132, "native"),
    ("ada", "e5m2", "e5m2", "fp16", "none", 16, 13, "rne16", -21, "native"),
    ("h100", "fp16", "fp16", "fp32", "none", 16, 25, "rz24", -133, "native"),
    ("h100", "fp16", "fp16", "fp16", "none", 16, 25, "rne16", -22, "native"),
    ("h100", "bf16", "bf16", "fp32", "none", 16, 25, "rz24", -133, "native"),
    ("h100", "tf32", "tf32", "fp32", "none", 8, 25, "rz24", -133, "native"),
    ("h100", "e4m3fn", "e4m3fn", "fp32", "none", 16, 25, "rz24", -133, "split"),
    ("h100", "e5m2", "e5m2", "fp32", "none", 16, 25, "rz24", -133, "split"),
    ("b200", "e4m3fn", "e5m2", "fp16", "none", 16, 25, "rne16", -22, "split"),
    ("b200", "e5m2", "e5m2", "fp16", "none", 16, 25, "rne16", -22, "split"),
    ("h100-wgmma", "fp16", "fp16", "fp16", "none", 16, 25, "rne16", -133, "native"),
    ("h100-wgmma", "e4m3fn", "e4m3fn", "fp32", "none", 32, 13, "rz14", -133, "native"),
    ("h100-wgmma", "e5m2", "e5m2", "fp16", "none", 32, 13, "rne16", -133, "native"),
    ("b200-tcgen05", "e4m3fn", "e2m3", "fp32", "none", 32, 25, "rz24", -133, "native"),
    ("b200-tcgen05", "e5m2", "e2m1", "fp16", "none", 32, 25, "rne16", -133, "native"),
    ("rtx-blackwell", "e3m2", "e3m2", "fp32", "none", 32, 25, "rz24", -133, "native"),
    ("rtx-blackwell", "e5m2", "e5m2", "fp32", "mxf8f6f4", 32, 25, "rz24", -133, "native"),
    ("b200-tcgen05", "e2m1", "e2m1", "fp32", "mxf8f6f4", 32, 25, "rz24", -133, "native"),
    ("b200-tcgen05", "e2m1", "e2m1", "fp32", "mxf4", 64, 35, "rz24", -139, "groups"),
    ("rtx-blackwell", "e2m1", "e2m1", "fp32", "nvf4", 64, 35, "rz24", -139, "groups"),
]


class Number:
    """A decoded operand: `special` or sign * significand * 2^exponent with the raw exponent."""

    def __init__(self, name, code):
        exponent_bits, mantissa_bits, bias, top = FORMATS[name]
        mantissa = code & ((1 << mantissa_bits) - 1)
        field = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
        self.negative = bool(code >> (mantissa_bits + exponent_bits) & 1)
        self.special = None
        last = (1 << exponent_bits) - 1
        if top == "ieee" and field == last:
            self.special = NAN if mantissa else INF
        if top == "nan" and field == last and mantissa == (1 << mantissa_bits) - 1:
            self.special = NAN
        hidden = 1 if field else 0
        self.exponent = max(field, 1) - bias
        self.significand = hidden + Fraction(mantissa, 1 << mantissa_bits)

    def value(self):
        size = self.significand * Fraction(2) ** self.exponent
        return -size if self.negative else size


def trunc(x):
    return math.floor(x) if x >= 0 else -math.floor(-x)


def float32_bits(value, negative):
    """An exact float32 as bits; `negative` is the sign of a zero."""
    sign = 0x80000000 if (value < 0 or (value == 0 and negative)) else 0
    size = abs(value)
    if size == 0:
        return sign
    exponent = max(floor_log2(size), -126)
    units = size / Fraction(2) ** (exponent - 23)
    assert units.denominator == 1 and units < 1 << 24
    field = exponent + 127 if units >= 1 << 23 else 0
    return sign | field << 23 | int(units) & 0x7FFFFF


def floor_log2(x):
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if x >= Fraction(2) ** guess else guess - 1


def rounded(value, rho, negative):
    """rho(value) as float32 bits."""
    sign = 0x80000000 if (value < 0 or (value == 0 and negative)) else 0
    if value == 0:
        return sign
    if rho == "rne16":
        step = Fraction(2) ** (max(floor_log2(abs(value)), -14) - 10)
        units = abs(value) / step
        low = math.floor(units)
        rest = units - low
        if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2):
            low += 1
        result = low * step
        if result > 65504:
            return sign | 0x7F800000
        return float32_bits(-result if sign else result, bool(sign))
    if abs(value) >= Fraction(2) ** 128:
        return sign | 0x7F800000
    digits = {"rz24": 23, "rz14": 13}[rho]
    step = Fraction(2) ** (max(floor_log2(abs(value)), -126) - digits)
    return float32_bits(trunc(value / step) * step, bool(sign))


def special_result(terms, nan):
    """Bits if a NaN or an infinity is among the (special, negative) terms."""
    if any(kind == NAN for kind, _ in terms):
        return nan
    signs = {negative for kind, negative in terms if kind == INF}
    if len(signs) == 2:
        return nan
    return None if not signs else (0xFF800000 if signs.pop() else 0x7F800000)


def product_special(x, y):
    negative = x.negative != y.negative
    if NAN in (x.special, y.special):
        return NAN, negative
    if INF in (x.special, y.special):
        zero = any(z.special is None and z.significand == 0 for z in (x, y))
        return (NAN if zero else INF), negative
    return None, negative


def fused(a, b, c, unit, scale=0):
    """One block; `c` is a Number of the accumulator. Returns float32 bits."""
    fraction_bits, rho, zero = unit
    terms = [product_special(x, y) for x, y in zip(a, b)] + [(c.special, c.negative)]
    special = special_result(terms, NAN16 if rho == "rne16" else NAN32)
    if special is not None:
        return special
    values = [(x.value() * y.value() * Fraction(2) ** scale, x.exponent + y.exponent + scale)
              for x, y in zip(a, b)] + [(c.value(), c.exponent)]
    return aligned_sum(values, all(negative for _, negative in terms), fraction_bits, rho, zero)


def aligned_sum(values, all_negative, fraction_bits, rho, zero, keep=()):
    """`values` are (value, exponent); a zero counts with exponent `zero`, those in `keep` not."""
    top = max(zero if value == 0 and i not in keep else exponent
              for i, (value, exponent) in enumerate(values))
    step = Fraction(2) ** (top - fraction_bits)
    total = sum(trunc(value / step) for value, _ in values)
    return rounded(total * step, rho, all_negative)


def grouped(a, b, a_scales, b_scales, c, unit):
    fraction_bits, rho, zero = unit
    terms = [product_special(x, y) for x, y in zip(a, b)] + [(c.special, c.negative)]
    if any(s.special for s in a_scales + b_scales):
        terms.append((NAN, False))
    special = special_result(terms, NAN32)
    if special is not None:
        return special
    values, keep = [], []
    for group in range(0, len(a), 16):
        pairs = list(zip(a[group:group + 16], b[group:group + 16]))
        u, v = a_scales[group // 16], b_scales[group // 16]
        total = sum(x.value() * y.value() for x, y in pairs)
        zeros = all(x.significand * y.significand == 0 for x, y in pairs)
        if total == 0 and not zeros and u.significand * v.significand != 0:
            keep.append(len(values))  # products that cancel are no zero
        values.append((total * abs(u.value()) * abs(v.value()), u.exponent + v.exponent))
    values.append((c.value(), c.exponent))
    return aligned_sum(values, all(negative for _, negative in terms), fraction_bits, rho, zero,
                       keep)


class Ue8m0(Number):
    def __init__(self, code):
        self.negative, self.exponent, self.significand = False, code - 127, Fraction(1)
        self.special = NAN if code == 255 else None


def add_rn(x_bits, y_bits, fp16):
    """x + y of float32 bits, nearest even to fp32 or fp16, as float32 bits."""
    x, y = Number("fp32", x_bits), Number("fp32", y_bits)
    special = special_result([(x.special, x.negative), (y.special, y.negative)],
                             NAN16 if fp16 else NAN32)
    if special is not None:
        return special
    value = x.value() + y.value()
    if fp16:
        return rounded(value, "rne16", x.negative and y.negative)
    if value == 0:
        return 0x80000000 if x.negative and y.negative else 0
    sign = 0x80000000 if value < 0 else 0
    step = Fraction(2) ** (max(floor_log2(abs(value)), -126) - 23)
    units = abs(value) / step
    low = math.floor(units)
    rest = units - low
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2):
        low += 1
    if low * step >= Fraction(2) ** 128:
        return sign | 0x7F800000
    return float32_bits(-low * step if sign else low * step, bool(sign))


def accumulator(bits, fp16):
    """float32 bits of an accumulator as a Number with its raw exponent."""
    number = Number("fp32", bits)
    if fp16 and number.special is None and number.significand != 0:
        raw = max(floor_log2(abs(number.value())), -14)
        number.significand = abs(number.value()) / Fraction(2) ** raw
        number.exponent = raw
    return number


def as_fp16(number):
    """An fp8 number with the raw exponent it has in fp16."""
    if number.special is None and number.significand != 0:
        raw = max(floor_log2(abs(number.value())), -14)
        number.significand = abs(number.value()) / Fraction(2) ** raw
        number.exponent = raw
    return number


class Generator:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


def code_of(r, name, kind):
    """A code of the format, shaped by the kind of the case."""
    exponent_bits, mantissa_bits, bias, _ = FORMATS[name]
    last = (1 << exponent_bits) - 1
    bits = r.next()
    mantissa = bits & ((1 << mantissa_bits) - 1)
    sign = bits >> 40 & 1
    chosen = bits >> 41
    if kind in (1, 5):    # near one: sums that cancel
        field = min(max(bias - 2 + chosen % 4, 0), last - 1)
    elif kind == 2:       # the smallest normal and the subnormal numbers
        field = chosen % 2
    elif kind == 3:       # the largest ones
        field = max(last - 1 - chosen % 2, 0)
    elif kind == 4:       # mostly zeros
        field = 0 if chosen % 4 else min(bias, last - 1)
        mantissa = 0 if chosen % 4 else mantissa
    elif kind == 7:       # any finite number
        field = chosen % last
    else:                 # any code
        field = chosen % (last + 1)
    return sign << (exponent_bits + mantissa_bits) | field << mantissa_bits | mantissa


def make_case(set_index, case):
    _, a_name, b_name, acc, scale, g, _, _, _, path = SETS[set_index]
    r = Generator(set_index * 1000003 + case)
    kind = r.next() % 8
    step = 2 * g if path == "split" else g
    blocks = 1 + r.next() % 2
    n = blocks * step
    if r.next() % 4 == 0:
        n -= r.next() % step
    draw = 1 if kind == 6 else kind
    a = [code_of(r, a_name, draw) for _ in range(n)]
    b = [code_of(r, b_name, draw) for _ in range(n)]
    if kind == 5:  # pairs that cancel, all but one
        flip = 1 << (FORMATS[b_name][0] + FORMATS[b_name][1])
        for k in range(1, n - 1, 2):
            a[k], b[k] = a[k - 1], b[k - 1] ^ flip
    if kind == 6:  # zeros beside two tiny products
        i, j = r.next() % n, r.next() % n
        for k in range(n):
            small = code_of(r, a_name, 2), code_of(r, b_name, 2)
            a[k] = small[0] if k in (i, j) else 0
            b[k] = small[1] if k in (i, j) else 0
    c = code_of(r, acc, 7 if kind == 0 and r.next() % 2 else kind)
    if kind in (2, 6) and r.next() % 2:
        c = 0
    scales = []
    block = {"none": 0, "mxf8f6f4": 32, "mxf4": 32, "nvf4": 16}[scale]
    if block:
        count = (n + block - 1) // block
        for _ in range(2 * count):
            bits = r.next()
            if scale == "nvf4":
                scales.append(bits % 128 if bits >> 60 else 0x38)
            else:
                scales.append(bits % 256 if kind == 0 else 117 + bits % 20)
    return a, b, c, scales, block, n


def expected(set_index, case):
    _, a_name, b_name, acc, scale, g, f, rho, zero, path = SETS[set_index]
    a, b, c, scales, block, n = make_case(set_index, case)
    fp16 = acc == "fp16"
    total = Number(acc, c)
    if total.special == NAN:
        bits = NAN16 if fp16 else NAN32
    elif total.special == INF:
        bits = 0xFF800000 if total.negative else 0x7F800000
    else:
        bits = float32_bits(total.value(), total.negative)
    a = [Number(a_name, code) for code in a]
    b = [Number(b_name, code) for code in b]
    step = 2 * g if path == "split" else g
    while len(a) % step:  # short blocks are filled with zeros
        a.append(Number(a_name, 0))
        b.append(Number(b_name, 0))
    unit = f, rho, zero
    make = Ue8m0 if scale in ("mxf8f6f4", "mxf4") else lambda code: Number("e4m3fn", code)
    count = len(scales) // 2
    a_scales = [make(code) for code in scales[:count]]
    b_scales = [make(code) for code in scales[count:]]
    one = make({"mxf8f6f4": 127, "mxf4": 127}.get(scale, 0x38))

    def scale_at(table, k):
        return table[k // block] if k // block < len(table) else one

    for start in range(0, len(a), step):
        x, y = a[start:start + step], b[start:start + step]
        c = accumulator(bits, fp16)
        if path == "split":
            partial = 0
            for half in (0, 2):
                u = [as_fp16(z) for k, z in enumerate(x) if k & 2 == half]
                v = [as_fp16(z) for k, z in enumerate(y) if k & 2 == half]
                partial = fused(u, v, accumulator(partial, fp16), unit)
            bits = add_rn(partial, bits, fp16)
        elif path == "groups":
            u = [scale_at(a_scales, start + 16 * i) for i in range(g // 16)]
            v = [scale_at(b_scales, start + 16 * i) for i in range(g // 16)]
            bits = grouped(x, y, u, v, c, unit)
        elif scale == "mxf8f6f4":
            u, v = scale_at(a_scales, start), scale_at(b_scales, start)
            nan = u.special or v.special
            bits = NAN32 if nan else fused(x, y, c, unit, u.exponent + v.exponent)
        else:
            bits = fused(x, y, c, unit)
    return bits


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="write the results of all cases")
    parser.add_argument("--check", help="compare with a file written before")
    parser.add_argument("--cases", type=int, default=CASES, help="check the first N of each set")
    options = parser.parse_args()
    if options.out:
        words = [expected(s, i) for s in range(len(SETS)) for i in range(CASES)]
        data = struct.pack(f"<{len(words)}I", *words)
        with open(options.out, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
            out.write(data)
    if options.check:
        with gzip.open(options.check) as stored:
            words = struct.unpack(f"<{CASES * len(SETS)}I", stored.read())
        wrong = sum(words[s * CASES + i] != expected(s, i)
                    for s in range(len(SETS)) for i in range(min(options.cases, CASES)))
        print(f"{wrong} of {len(SETS) * min(options.cases, CASES)} results differ")
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
