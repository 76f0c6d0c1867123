# SPDX-License-Identifier: MIT
"""The sites and layers of a captured network: what was seen, in which order, in which formats."""
import json
import operator

from halfscope import _core

FORMATS = {"float32": "fp32", "float64": "fp32", "float16": "fp16", "bfloat16": "bf16",
           "float8_e4m3fn": "e4m3fn", "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2": "e5m2",
           "float8_e5m2fnuz": "e5m2fnuz"}
NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


_by_dtype = {}  # texts of dtypes are slow to make


def format_of(dtype):
    """Returns HalfScope's name of a dtype of any framework; None if it is not measured."""
    try:
        return _by_dtype[dtype]
    except KeyError:
        found = _by_dtype[dtype] = FORMATS.get(str(dtype).rsplit(".", 1)[-1])
        return found


def whole_number(name, value, least):
    """Returns an argument as an int. Raises TypeError or ValueError that names it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}")
    return number


def new_recording(file, overwrite, threads=0):
    """Creates a run file. Raises Error whose hint names Python's argument instead of the flag."""
    try:
        return _core.Recording(file, overwrite, min(threads, 1 << 20))
    except _core.Error as error:
        text = str(error).replace("use --force to replace it", "pass overwrite=True to replace it")
        raise _core.Error(text) from None


def exact_text(number):
    """Returns a number such that it reads back exactly, and without a point if it is whole."""
    number = float(number)
    return str(int(number)) if number.is_integer() and number < 2**63 else repr(number)


class Layer:
    """A module, or a layer of another framework, that ran."""

    def __init__(self, path, op, form, parameters):
        self.path, self.op, self.format, self.parameters = path, op, form, parameters
        self.inputs = []


class Sites:
    """Numbers the sites of a recording and puts them in execution order."""

    def __init__(self, recording):
        self.recording = recording
        self.layers = {}
        self.unseen = set()   # what came after the file had begun
        self._numbers = {}
        self._rank = []       # of each site: a key that sorts by execution

    def number(self, path, tensor, role, phase, op, form, shape):
        """Returns the number of a site, which is added if it is new; None if it is too late."""
        found = self._numbers.get((path, tensor))
        if found is not None:
            return found
        if self.recording.begun:
            self.unseen.add(f"{path}.{tensor}")
            return None
        number = self.recording.add_site(path, tensor, role, phase, op, form, list(shape))
        phases = {"forward": 0, "backward": 1, "update": 2}
        self._rank.append([phases[phase], role != "input", len(self._rank), role, path])
        self._numbers[path, tensor] = number
        return number

    def find(self, path, tensor):
        """Returns the number of a site; None if it does not exist."""
        return self._numbers.get((path, tensor))

    def names(self, role):
        """Returns the numbers of all sites with a role."""
        return [i for i, rank in enumerate(self._rank) if rank[3] == role]

    def order(self):
        """Returns the numbers in execution order: a weight is read just before its layer writes."""
        first = {}
        for number, rank in enumerate(self._rank):
            if rank[3] == "activation":
                first.setdefault(rank[4], number)

        def key(number):
            phase, late, own, role, path = self._rank[number]
            if role == "state" and phase == 0:
                return (phase, late, first.get(path, len(self._rank)) + 0.5, own)
            if role == "weight":
                return (phase, late, first.get(path, len(self._rank)) - 0.5, own)
            return (phase, late, own, own)
        return sorted(range(len(self._rank)), key=key)

    def layer_rows(self):
        """Returns the layers as the recording takes them."""
        return [(each.path, each.op, each.inputs, each.format, each.format, each.parameters)
                for each in self.layers.values()]

    def plan(self, storage, state, statistics=False, compiled=None):
        """Returns name and JSON of the plan that the layers' formats amount to.

        storage: formats of the weights; state: formats of the optimizer's state; statistics:
        whether forward passes move running statistics; compiled: the 16-bit format of compiled
        modules, which are not among the layers.
        """
        formats = [each.format for each in self.layers.values()] + [compiled] * bool(compiled)
        weights = most_frequent(storage) or "fp32"
        narrow = [each for each in formats if each != "fp32"]
        compute = most_frequent(narrow) or "fp32"
        default = compute if narrow else "fp32"
        name = NAMES.get(compute, compute)
        if compute != "fp32" and weights == "fp32":
            name = f"mixed_{name}"
        elif compute == "fp32" and weights != "fp32":
            name = NAMES.get(weights, weights)
        variables = {"storage": weights}
        if state and most_frequent(state) != weights:
            variables["state"] = most_frequent(state)
        if statistics:
            variables["buffers"] = "always"
        rules = [{"path": "\\" + _escaped(each.path), "format": each.format}
                 for each in self.layers.values() if each.format != default]
        plan = {"schema": "halfscope.plan/1", "name": name,
                "default": {"read": default, "write": default, "accumulate": "fp32",
                            "mode": "fused"},
                "variables": variables, "rules": rules}
        return name, json.dumps(plan)


def most_frequent(values):
    """Returns the value that comes most often; None if there are no values."""
    values = list(values)
    return max(sorted(set(values)), key=values.count) if values else None


def _escaped(path):
    return "".join("\\" + c if c in "*?\\" else c for c in path)
