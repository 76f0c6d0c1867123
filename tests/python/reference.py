# SPDX-License-Identifier: MIT
"""The statistics of an array in plain NumPy, written from docs/semantics.md alone."""
import numpy as np

# exponent bits, mantissa bits, bias, largest finite number
FORMATS = {"fp32": (23, -126, 3.4028234663852886e38), "fp16": (10, -14, 65504.0),
           "bf16": (7, -126, 3.3895313892515355e38), "e4m3fn": (3, -6, 448.0),
           "e5m2": (2, -14, 57344.0)}


def rounded(values, format):
    """Returns the values rounded to nearest even; infinite beyond the largest number."""
    mantissa, least, largest = FORMATS[format]
    x = np.asarray(values, dtype=np.float64)
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(x)[1] - 1, least)
        unit = np.exp2((exponent - mantissa).astype(np.float64))
        result = np.rint(x / unit) * unit
        return np.where(np.isfinite(x) & (np.abs(result) > largest), np.sign(x) * np.inf, result)


def stats_of(values, format):
    """Returns the counters that HalfScope defines, as a dict."""
    x = np.asarray(values, dtype=np.float64).ravel()
    finite = np.isfinite(x)
    result = rounded(x, format)
    size = np.abs(x[finite])
    nonzero = size[size > 0]
    _, least, _ = FORMATS[format]
    exponents = np.zeros(277, np.int64)
    np.add.at(exponents, np.frexp(nonzero)[1] - 1 + 149, 1)
    return {
        "n": x.size,
        "zero": int((x == 0).sum()),
        "pos_inf": int((x == np.inf).sum()),
        "neg_inf": int((x == -np.inf).sum()),
        "nan": int(np.isnan(x).sum()),
        "overflow": int((finite & ~np.isfinite(result)).sum()),
        "underflow": int((finite & (x != 0) & (result == 0)).sum()),
        "subnormal": int((finite & (result != 0) & (np.abs(result) < 2.0**least)).sum()),
        "max_abs": float(size.max()) if size.size else 0.0,
        "min_abs": float(nonzero.min()) if nonzero.size else float("inf"),
        "sum": float(x[finite].sum()),
        "sum_sq": float((x[finite] ** 2).sum()),
        "exponents": exponents,
    }
