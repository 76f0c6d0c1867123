# SPDX-License-Identifier: MIT
"""Forward hooks: activations, their gradients, and which module reads which."""
import weakref

import torch

from halfscope._hook import Hook
from halfscope._ops import FUNCTION, operator_of
from halfscope._sites import Layer, format_of

_FLOATS = frozenset(t for t in (torch.float32, torch.float16, torch.bfloat16, torch.float64,
                                getattr(torch, "float8_e4m3fn", None),
                                getattr(torch, "float8_e5m2", None)) if t is not None)
# Elements of a device's tensor that are copied to the host.
_MOST_COPIED = 1 << 22
# Tensors from functions that one module reads in a pass, each with its own name. The others, as in
# a loop, share the last one.
_MOST_OPERANDS = 4


def tensors_in(value):
    """Returns the floating-point tensors in nested tuples, lists, dicts and data classes."""
    if type(value) is torch.Tensor:  # most often
        return (value,) if _is_measured(value) else ()
    return [x for x in _leaves(value) if isinstance(x, torch.Tensor) and _is_measured(x)]


def _is_measured(x):
    return x.dtype in _FLOATS and x.layout == torch.strided and x.numel() > 0


def _leaves(value):
    """Yields all that nested tuples, lists, dicts and data classes hold."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif hasattr(value, "__dataclass_fields__"):
        for each in value.__dataclass_fields__:
            yield from _leaves(getattr(value, each))


class Forward:
    """Measures what modules write and, later, the gradients of that. Also measures what modules
    read, where functions between modules have computed it."""

    def __init__(self, watch, model, names):
        self.watch, self.model = watch, model
        self.modules = [(names[module], module) for module in names]
        self.handles = []
        self.pending = []    # (site, host copy, merge, event) of tensors on devices
        self._seen = {}      # id -> (weak reference, version, path): who wrote a tensor last
        self._nodes = {}     # autograd node -> path; only while the structure is recorded
        self._storages = {}  # data pointer -> (weak reference, version, path)
        self._operands = {}  # path -> tensors from functions that it has read
        self._inside = 0     # calls of the model that run
        self._counts = False
        self._placed = set()  # modules whose outputs had hooks before a recomputation
        self._structure = True

    def install(self):
        """Adds the hooks of a recorded step."""
        if self.handles:
            return
        enter, leave = Hook(self._enter), Hook(self._leave)
        self.handles.append(self.model.register_forward_pre_hook(enter, with_kwargs=True))
        for path, module in self.modules:
            hook = Hook(self._hook_of(path, module))
            self.handles.append(module.register_forward_hook(hook, with_kwargs=True))
            if module is not self.model:
                hook = Hook(self._input_hook_of(path, module))
                self.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        self.handles.append(self.model.register_forward_hook(leave, always_call=True))

    def remove(self):
        """Removes the hooks."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.end_pass()

    def end_pass(self):
        """Lets go of everything that a forward pass left here."""
        self._seen.clear()
        self._nodes.clear()
        self._storages.clear()
        self._operands.clear()
        self._placed.clear()
        self._inside = 0

    def end_structure(self):
        """Stops following tensors: the layers are known."""
        self._structure = False
        self.end_pass()

    def _enter(self, module, args, kwargs):
        if torch.compiler.is_compiling():
            return
        try:
            self._inside += 1
            self._counts = torch.is_grad_enabled()
            if not self._counts or not self.watch._recorded or _in_backward():
                return
            batch = next((x for x in _leaves((args, kwargs))
                          if isinstance(x, torch.Tensor) and x.dim() > 0), None)
            if batch is not None:
                self.watch._batch = int(batch.shape[0])
            for number, x in enumerate(tensors_in((args, kwargs))):
                form = format_of(x.dtype)
                name = "input" if number == 0 else f"input_{number + 1}"
                site = self.watch._sites.number("input", name, "input", "forward", "Input", form,
                                                x.shape)
                self._measure(site, x, True)
                self._note(x, "input")
        except Exception as fault:
            self.watch._fail(fault)

    def _leave(self, module, args, output):
        if not torch.compiler.is_compiling():
            self._inside = max(0, self._inside - 1)
            if self._inside == 0:
                self._counts = False
                self._nodes.clear()

    def _hook_of(self, path, module):
        op = operator_of(module)

        def hook(module, args, kwargs, output):
            if torch.compiler.is_compiling():
                return
            try:
                self._on_output(path, op, module, (args, kwargs), output)
            except Exception as fault:
                self.watch._fail(fault)
        return hook

    def _input_hook_of(self, path, module):
        is_leaf = next(module.children(), None) is None

        def hook(module, args, kwargs):
            if torch.compiler.is_compiling():
                return
            try:
                self._on_input(path, is_leaf, (args, kwargs))
            except Exception as fault:
                self.watch._fail(fault)
        return hook

    def _on_input(self, path, is_leaf, args):
        if not self.watch._recorded or _in_backward() or not self._is_training():
            return
        for number, x in enumerate(tensors_in(args)):
            # Masks and other constants are no results of the network; they may be infinite.
            computed = x.requires_grad or (number == 0 and is_leaf and self._inside)
            if computed and not self._is_known(x) and not self._is_view_of_known(x):
                self._measure_operand(path, x)

    def _measure_operand(self, path, x):
        """Measures what functions between modules have computed, as a layer without a module."""
        sites = self.watch._sites
        count = self._operands[path] = self._operands.get(path, 0) + 1
        layer = path + "/" + _name("input", min(count, _MOST_OPERANDS) - 1)
        site = sites.find(layer, "activation")
        if site is None:
            if not self._structure:
                return
            form = format_of(x.dtype)
            sites.layers[layer] = Layer(layer, FUNCTION, form, 0)
            sites.layers[layer].inputs.extend(s for s in self._sources(x) if s != layer)
            site = sites.number(layer, "activation", "activation", "forward", FUNCTION, form,
                                x.shape)
        self._measure(site, x, True)
        self._note(x, layer)

    def _is_training(self):
        return self._counts if self._inside else torch.is_grad_enabled()

    def _on_output(self, path, op, module, args, output):
        watch = self.watch
        if not watch._recorded:
            return
        if _in_backward():
            # A checkpoint runs the module again. Only a reentrant one has its gradients here.
            if path not in self._placed and watch._sites.find(path, "activation") is not None:
                for number, x in enumerate(tensors_in(output)):
                    self._hook_gradient(path, op, _name("activation", number), x)
            return
        if not self._is_training():
            return
        for number, x in enumerate(tensors_in(output)):
            if self._is_known(x):
                continue  # a container's output is its last module's
            if self._structure and path not in watch._sites.layers:
                self._add_layer(path, op, module, args, format_of(x.dtype))
            tensor = _name("activation", number)
            site = watch._sites.find(path, tensor)
            if site is None:
                site = watch._sites.number(path, tensor, "activation", "forward", op,
                                           format_of(x.dtype), x.shape)
            self._measure(site, x, True)
            self._note(x, path)
            if x.requires_grad:
                self._placed.add(path)
                self._hook_gradient(path, op, tensor, x)

    def _hook_gradient(self, path, op, tensor, x):
        if not x.requires_grad:
            return
        watch, dtype, shape, step = self.watch, x.dtype, x.shape, self.watch.step
        name = f"{tensor}_grad"

        def hook(gradient):
            if not watch._recorded or watch.step != step:
                return
            try:
                site = watch._sites.find(path, name)
                if site is None:
                    site = watch._sites.number(path, name, "activation_grad", "backward", op,
                                               format_of(dtype), shape)
                self._measure(site, gradient, True)
            except Exception as fault:
                watch._fail(fault)
        x.register_hook(hook)

    def _measure(self, site, x, merge):
        if site is None:
            return
        if x.is_cpu:
            self.watch._recording.measure(site, x, merge)
            return
        flat = x.detach().reshape(-1)
        flat = flat[::max(1, -(-flat.numel() // _MOST_COPIED))]
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=flat.is_cuda)
        host.copy_(flat, non_blocking=True)
        self.pending.append((site, host, merge))

    def collect(self):
        """Measures the copies of tensors on devices, after the device has made them."""
        if not self.pending:
            return
        for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            torch.cuda.current_stream(index).synchronize()
        for site, host, merge in self.pending:
            self.watch._recording.measure(site, host, merge)
        self.pending.clear()

    # Structure

    def _note(self, x, path):
        self._seen[id(x)] = (weakref.ref(x), x._version, path)
        if self._structure:
            if x.grad_fn is not None:
                self._nodes[x.grad_fn] = path
        self._storages[x.untyped_storage().data_ptr()] = self._seen[id(x)]

    def _is_known(self, x):
        known = self._seen.get(id(x))
        return known is not None and known[0]() is x and known[1] == x._version

    def _is_view_of_known(self, x):
        known = self._storages.get(x.untyped_storage().data_ptr())
        return known is not None and known[0]() is not None and known[1] == x._version

    def _add_layer(self, path, op, module, args, form):
        parameters = sum(p.numel() for p in module.parameters(recurse=False))
        layer = Layer(path, op, form, parameters)
        read = list(tensors_in(args))
        for x in read:
            for source in self._sources(x):
                if source not in layer.inputs and source != path:
                    layer.inputs.append(source)
        if not read:
            layer.inputs.append("input")  # indices
        self.watch._sites.layers[path] = layer

    def _sources(self, x):
        if self._is_known(x):
            return [self._seen[id(x)][2]]
        if x.grad_fn is not None:
            # Functions between modules have no hooks; autograd knows what they read.
            found, open_nodes, visited = [], [x.grad_fn], set()
            while open_nodes and len(visited) < 256:
                node = open_nodes.pop(0)
                if node is None or node in visited:
                    continue
                visited.add(node)
                if node in self._nodes:
                    if self._nodes[node] not in found:
                        found.append(self._nodes[node])
                    continue
                open_nodes.extend(each for each, _ in node.next_functions)
            if found:
                return found
        source = self._storages.get(x.untyped_storage().data_ptr())
        return [source[2]] if source is not None else []


def _in_backward():
    return torch._C._current_graph_task_id() != -1


def _name(base, number):
    return base if number == 0 else f"{base}_{number + 1}"
