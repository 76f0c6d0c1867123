# SPDX-License-Identifier: MIT
"""Functions of one array: rounding to a format, and statistics."""
import dataclasses
import difflib
import sys

import numpy as np

from halfscope import _core


def _is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _host(x):
    """Returns an array that the extension can borrow, or None if x is not of a known kind."""
    if _is_torch(x):
        x = x.detach().cpu()
        return x if x.is_floating_point() or x.is_complex() else x.double()
    x = np.asarray(x)
    if x.dtype.kind in "iub":
        return x.astype(np.float64)
    if x.dtype.name in _VIEWS:  # types of ml_dtypes, which DLPack of NumPy does not carry
        return x.astype(np.float32)
    if x.dtype.kind != "f":
        raise TypeError(f"x must be numbers, not {x.dtype}")
    return x


_VIEWS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2",
          "float8_e5m2fnuz")


_FORMATS = ("fp32", "tf32", "bf16", "fp16", "e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz", "e4m3b11fnuz",
            "e3m2", "e2m3", "e2m1", "int8", "int4")
_MODES = ("nearest-even", "nearest-away", "toward-zero", "up", "down", "odd")


def _check_format(format):
    """Raises ValueError that names the nearest format, or else all of them."""
    try:
        _core.format_limits(format)
    except ValueError as error:
        base = format.split(":")[0].lower()
        near = difflib.get_close_matches(base, _FORMATS, 1, 0.7)
        # Swapped digits are the most usual mistake, and few letters are left to compare.
        near = near or [each for each in _FORMATS if sorted(each) == sorted(base)]
        hint = (f"did you mean '{near[0]}'?" if near and near[0] != base else
                f"named formats are {', '.join(_FORMATS)}")
        raise ValueError(f"{error}; {hint}") from None


def round(x, format, mode="nearest-even"):
    """Returns x rounded to a format, as an array of the same kind and type.

    x: a number, a NumPy array or anything it takes, or a torch tensor. Integers give float64.
    format: a name as in plans: "fp16", "bf16", "e4m3fn", "e5m2", any "eXmY", with options such
        as ":sat" (docs/formats.md).
    mode: "nearest-even", "nearest-away", "toward-zero", "up", "down" or "odd".

    A float64 is rounded once. The type of x must contain the format's values, or the result is
    rounded again to that type.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    _check_format(format)
    rounded = _core.round(_host(x), format, mode)
    if _is_torch(x):
        import torch
        dtype = x.dtype if x.is_floating_point() else torch.float64
        return torch.from_numpy(rounded).to(device=x.device, dtype=dtype)
    if np.isscalar(x) or isinstance(x, (int, float)):
        return float(rounded)
    given = np.asarray(x)
    return rounded.astype(np.float64 if given.dtype.kind in "iub" else given.dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class Stats:
    """Statistics of an array under a format. Counters as in docs/semantics.md."""
    format: str       #: the format that overflow, underflow and subnormal refer to
    n: int            #: elements
    zero: int         #: elements that are 0
    pos_inf: int
    neg_inf: int
    nan: int
    overflow: int     #: finite elements that the format cannot represent: they become infinite,
                      #: NaN, or its largest number
    underflow: int    #: nonzero elements that become 0
    subnormal: int    #: elements that become subnormal
    max_abs: float    #: largest finite magnitude; 0 if there is none
    min_abs: float    #: smallest finite magnitude except 0; infinity if there is none
    sum: float        #: of finite elements
    sum_sq: float     #: of squares of finite elements
    exponents: np.ndarray  #: bin i counts elements with 2^(i-149) <= |x| < 2^(i-148)

    @property
    def mean(self):
        """Mean of the finite elements; NaN if there are none."""
        finite = self.n - self.pos_inf - self.neg_inf - self.nan
        return self.sum / finite if finite else float("nan")

    @property
    def rms(self):
        """Root of the mean square of the finite elements; NaN if there are none."""
        finite = self.n - self.pos_inf - self.neg_inf - self.nan
        return (self.sum_sq / finite) ** 0.5 if finite else float("nan")


def stats(x, format=None):
    """Returns the Stats of an array under a format; by default, the format of its own type."""
    host = _host(x)
    if format is None and not _is_torch(x):
        name = np.asarray(x).dtype.name.removeprefix("float8_")
        format = {"bfloat16": "bf16"}.get(name, name if name.startswith("e") else None)
    if format is not None:
        _check_format(format)
    fields = _core.stats(host, format)
    del fields["lost"]
    if format is None:
        format = {"float16": "fp16", "bfloat16": "bf16"}.get(str(host.dtype).split(".")[-1], "fp32")
        name = str(host.dtype).split(".")[-1]
        if name.startswith("float8_"):
            format = name.removeprefix("float8_")
    else:
        format = _core.format_limits(format)[0]
    fields["exponents"] = np.asarray(fields["exponents"], dtype=np.int64)
    return Stats(format=format, **fields)
