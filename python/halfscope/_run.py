# SPDX-License-Identifier: MIT
"""Reads run files: rows, statistics by site, findings and the verdict."""
import json

import numpy as np

from halfscope import _core


class Run:
    """A snapshot of a run file, also of one that is still being written.

    Lanes are named as in the file. Methods that take a lane use the first one by default.
    """

    def __init__(self, file):
        self._file = _core.RunFile(str(file))
        self._report = None

    @property
    def status(self):
        """"running", "complete", "interrupted", "early_stop" or "died"."""
        return self._file.status

    @property
    def lanes(self):
        """Names of the lanes."""
        return list(self._file.lanes)

    def _lane(self, lane):
        if lane is None:
            return 0
        if isinstance(lane, str):
            if lane not in self._file.lanes:
                raise KeyError(f"the run has no lane '{lane}'; lanes: {', '.join(self._file.lanes)}")
            return self._file.lanes.index(lane)
        return lane

    def steps(self, lane=None):
        """Returns a dict of arrays, one entry for each step: "step", "loss", "loss_scale",
        "learning_rate", "grad_norm", "accuracy", "ms", "skipped". NaN means not measured."""
        rows = self._file.steps(self._lane(lane))
        rows["skipped"] = rows["skipped"].astype(bool)
        return rows

    def evals(self, lane=None):
        """Returns a dict of arrays, one entry for each evaluation on test data: "step" (steps done
        before it), "loss", "accuracy" (mAP50 of a detector), "auc", "mean_iou". NaN means not
        measured."""
        return self._file.evals(self._lane(lane))

    def sites(self, lane=None):
        """Returns a list of dicts: "name", "path", "tensor", "role", "phase", "op", "format" and
        "shape" of each recorded tensor, in execution order."""
        return self._file.sites(self._lane(lane))

    def layers(self, lane=None):
        """Returns a list of dicts: "path", "op", "inputs", "read", "write" and "parameters"."""
        return self._file.layers(self._lane(lane))

    def stats(self, site, lane=None):
        """Returns a dict of arrays with one entry for each recorded window of a site.

        site: its name, such as "fc1.weight_grad".
        "step" and "step_count" say which steps a window covers. The counters are those of Stats
        and "lost"; "exponents" has a row for each window.
        """
        lane = self._lane(lane)
        for order, each in enumerate(self._file.sites(lane)):
            if each["name"] == site:
                return self._file.stats(lane, order)
        raise KeyError(f"lane '{self._file.lanes[lane]}' has no site '{site}'")

    def rms(self, site, lane=None):
        """Returns the root mean square of a site's finite elements in each recorded window."""
        stats = self.stats(site, lane)
        finite = stats["n"] - stats["pos_inf"] - stats["neg_inf"] - stats["nan"]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(stats["sum_sq"] / finite)

    @property
    def report(self):
        """The whole report as a dict (docs/reference/report-json.md)."""
        if self._report is None:
            self._report = json.loads(self._file.report())
        return self._report

    @property
    def findings(self):
        """What the rules found, worst first in each lane: a list of dicts."""
        return self.report["findings"]

    @property
    def verdict(self):
        """The verdict in words."""
        return self.report["verdict"]["text"]

    @property
    def state(self):
        """"healthy", "cured", "attention", "broken" or "inconclusive"."""
        return self.report["verdict"]["state"]


def open(file):
    """Returns the Run in a run file. Raises Error if the file is missing or not a run file."""
    return Run(file)
