# SPDX-License-Identifier: MIT
"""Modules that run compiled. No hook sees them, so their formats are found another way."""
import warnings

import torch

from halfscope._ops import PRODUCTS
from halfscope._sites import Layer, format_of, most_frequent

# Nodes of autograd's graph in which formats are looked for.
_MOST_NODES = 1024


class Compiled:
    """The compiled modules of a model."""

    def __init__(self, model, modules):
        """Warns if there are any. modules: of the model itself, without its wrappers."""
        self.format = None  #: the 16-bit format in which they compute; None if not known
        self.any = _is_compiled(model) or any(map(_is_compiled, modules))
        if self.any:
            warnings.warn("halfscope: parts of the model are compiled. Their activations are not "
                          "recorded; weights, gradients and updates are.", stacklevel=5)

    def look(self, roots, sites):
        """Finds the format before a backward pass. roots: the tensors on which it starts."""
        if self.format is None:
            roots = [roots] if isinstance(roots, torch.Tensor) else roots
            self.format = _narrow_format(roots, compiled_only=bool(sites.layers))

    def add_layers(self, sites, parameters):
        """Adds the products that compiled code computes in its format, without their inputs. Layers
        that ran otherwise may read them, so they come first."""
        sizes = {}
        for parameter, path, _, op in parameters:
            if self.format is not None and op in PRODUCTS and path not in sites.layers:
                sizes.setdefault((path, op), []).append(parameter.numel())
        added = {path: Layer(path, op, self.format, sum(numels))
                 for (path, op), numels in sizes.items()}
        sites.layers = {**added, **sites.layers}


def _is_compiled(module):
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _narrow_format(roots, compiled_only):
    """Returns the 16-bit format in which most of a loss was computed, according to autograd's
    graph; None if there is none. Compiled code has no hooks, but its node of the graph knows what
    it gives and keeps.

    compiled_only: looks at nothing but compiled code.
    """
    found, open_nodes, visited = [], [root.grad_fn for root in roots], set()
    while open_nodes and len(visited) < _MOST_NODES:
        node = open_nodes.pop(0)
        if node is None or node in visited:
            continue
        visited.add(node)
        compiled = type(node).__name__.startswith("CompiledFunction")
        if compiled or not compiled_only:
            found.extend(each.dtype for each in getattr(node, "_input_metadata", ()))
        if compiled:
            found.extend(each.dtype for each in node.saved_tensors if each is not None)
        open_nodes.extend(each for each, _ in node.next_functions)
    formats = [form for form in map(format_of, found) if form not in (None, "fp32")]
    return most_frequent(formats)
