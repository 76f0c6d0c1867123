#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/onnx/files/recurrent_training.zip: small recurrent networks as both exporters of
PyTorch write them, and ten steps of SGD by PyTorch in float64 from the same weights.

    python3 tests/oracle/onnx_recurrent_training.py tests/onnx/files/recurrent_training.zip

Members: NAME.onnx, NAME.trained.onnx (the same export after the training), NAME.x.npy and
NAME.labels.npy (two batches of 4 samples, in turn), NAME.losses.npy and NAME.norms.npy (of every
step: the loss and the 2-norm of all gradients). Needs torch, onnx, onnxscript and numpy.
"""
import io
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

BATCH, STEPS, RATE = 4, 10, 0.5
rng = np.random.default_rng(5)


class Text(nn.Module):
    """Tokens, a recurrent network, and scores of its last output."""

    def __init__(self, kind, **options):
        super().__init__()
        self.tokens = nn.Embedding(12, 4)
        self.rnn = getattr(nn, kind)(4, 3, batch_first=True, **options)
        self.scores = nn.Linear(6 if options.get("bidirectional") else 3, 5)

    def forward(self, x):
        y, _ = self.rnn(self.tokens(x))
        return self.scores(y[:, -1])


class Series(nn.Module):
    """Numbers, steps first, and scores of the last state of all layers and directions."""

    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = getattr(nn, kind)(4, 3, **options)
        layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        self.scores = nn.Linear(3 * layers, 5)

    def forward(self, x):
        _, state = self.rnn(x.transpose(0, 1))
        h = state[0] if isinstance(state, tuple) else state
        return self.scores(h.transpose(0, 1).flatten(1))


class Started(nn.Module):
    """An LSTM that learns the state it starts from, and one that continues from its last state."""

    def __init__(self):
        super().__init__()
        self.first = nn.LSTM(4, 3, batch_first=True)
        self.second = nn.LSTM(4, 3, batch_first=True)
        self.h, self.c = (nn.Parameter(torch.randn(1, 1, 3)) for _ in range(2))
        self.scores = nn.Linear(3, 5)

    def forward(self, x):
        n = x.shape[0]
        _, state = self.first(x, (self.h.expand(1, n, 3).contiguous(),
                                  self.c.expand(1, n, 3).contiguous()))
        y, _ = self.second(x, state)
        return self.scores(y.mean(1))


class Selecting(nn.Module):
    """Writes into slices and reads single places: ScatterND and GatherND."""

    def __init__(self):
        super().__init__()
        self.first, self.scores = nn.Linear(4, 4), nn.Linear(8, 5)
        self.register_buffer("rows", torch.tensor([0, 2, 5]))
        self.register_buffer("columns", torch.tensor([1, 3, 0]))

    def forward(self, x):
        y = torch.tanh(self.first(x))
        z = x.clone()
        z[:, 1:3] = y[:, :2] * 2
        z[:, -1] = y[:, 3]
        picked = z[:, self.rows, self.columns]
        return self.scores(torch.cat([z[:, 2], picked, y[:, 1, :1]], 1))


class Sums(nn.Module):
    """Adds what it makes of tokens up by kinds of tokens, which are computed."""

    def __init__(self):
        super().__init__()
        self.tokens, self.scores = nn.Embedding(12, 4), nn.Linear(12, 5)

    def forward(self, x):
        y = self.tokens(x)
        sums = torch.zeros(x.shape[0], 3, 4, dtype=y.dtype)
        kinds = (x % 3)[:, :, None].expand(x.shape[0], x.shape[1], 4)
        return self.scores(torch.tanh(sums.scatter_add(1, kinds, y)).flatten(1))


class Bag(nn.Module):
    """The mean of a row's embeddings, which is exported as a loop over the rows."""

    def __init__(self, mode="mean"):
        super().__init__()
        self.bag, self.scores = nn.EmbeddingBag(12, 4, mode=mode), nn.Linear(4, 5)

    def forward(self, x):
        return self.scores(self.bag(x))


class Packed(nn.Module):
    """An LSTM on sequences of several lengths."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 3, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(6, 5)

    def forward(self, x):
        lengths = torch.tensor([6, 5, 3, 2])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, (h, _) = self.rnn(packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=6)
        return self.scores(torch.cat([h[0], h[1]], 1) + y.sum(1))


def drop_stack_traces(graph):
    """They have the paths of this machine."""
    for node in graph.node:
        kept = [p for p in node.metadata_props if "stack_trace" not in p.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                drop_stack_traces(attribute.g)


def export(module, x, how, path):
    module = module.float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how.startswith("dynamo"):
            shapes = ({0: torch.export.Dim("batch")},) if how.endswith("open") else None
            torch.onnx.export(module.eval(), (x,), path, dynamo=True, verbose=False,
                              dynamic_shapes=shapes)
        else:
            options = {}
            if how == "script_training":
                options = {"training": torch.onnx.TrainingMode.TRAINING,
                           "do_constant_folding": False}
            else:
                module = module.eval()
            axes = {"x": {0: "batch"}} if how.endswith("open") else None
            torch.onnx.export(module, (x,), path, dynamo=False, input_names=["x"],
                              opset_version=17, dynamic_axes=axes, **options)
    made = onnx.load(path)
    drop_stack_traces(made.graph)
    return made.SerializeToString()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array))
    return buffer.getvalue()


CASES = {
    "lstm_dynamo": (lambda: Text("LSTM", num_layers=2, bidirectional=True), "dynamo", "tokens"),
    "lstm_dynamo_open": (lambda: Text("LSTM", num_layers=2), "dynamo_open", "tokens"),
    "lstm_script": (lambda: Text("LSTM", bidirectional=True), "script", "tokens"),
    "lstm_script_open": (lambda: Text("LSTM", num_layers=2), "script_open", "tokens"),
    "lstm_script_training": (lambda: Text("LSTM", bidirectional=True), "script_training", "tokens"),
    "lstm_without_bias": (lambda: Series("LSTM", bias=False), "dynamo_open", "numbers"),
    "lstm_last_states": (lambda: Series("LSTM", num_layers=2, bidirectional=True), "script_open",
                         "numbers"),
    "lstm_learned_start": (Started, "dynamo_open", "numbers"),
    "lstm_learned_start_script": (Started, "script_open", "numbers"),
    "gru_dynamo": (lambda: Text("GRU", bidirectional=True), "dynamo", "tokens"),
    "gru_dynamo_open": (lambda: Series("GRU", num_layers=2), "dynamo_open", "numbers"),
    "gru_script_open": (lambda: Text("GRU", num_layers=2), "script_open", "tokens"),
    "gru_script_training": (lambda: Series("GRU"), "script_training", "numbers"),
    "gru_without_bias": (lambda: Series("GRU", bias=False, bidirectional=True), "script",
                         "numbers"),
    "rnn_dynamo_open": (lambda: Text("RNN", bidirectional=True), "dynamo_open", "tokens"),
    "rnn_relu_script": (lambda: Series("RNN", nonlinearity="relu", num_layers=2), "script",
                        "numbers"),
    "bag_script": (Bag, "script", "tokens"),
    "bag_script_open": (lambda: Bag("max"), "script_open", "tokens"),
    "bag_dynamo_open": (lambda: Bag("sum"), "dynamo_open", "tokens"),
    "lstm_packed": (Packed, "script", "numbers"),
    "sums_dynamo_open": (Sums, "dynamo_open", "tokens"),
    "sums_script": (Sums, "script", "tokens"),
    "selecting_dynamo": (Selecting, "dynamo", "numbers"),
    "selecting_script": (Selecting, "script", "numbers"),
}


def main():
    members = {}
    folder = Path(tempfile.mkdtemp())
    for name, (make, how, data) in CASES.items():
        torch.manual_seed(len(members))
        module = make()
        x = (rng.integers(0, 12, (2 * BATCH, 6)) if data == "tokens"
             else rng.standard_normal((2 * BATCH, 6, 4)).astype(np.float32))
        labels = rng.integers(0, 5, 2 * BATCH)
        path = str(folder / (name + ".onnx"))
        members[name + ".onnx"] = export(module, torch.tensor(x[:BATCH]), how, path)
        module = module.double()
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        losses, norms = [], []
        for step in range(STEPS):
            part = slice(step % 2 * BATCH, (step % 2 + 1) * BATCH)
            batch = torch.tensor(x[part])
            loss = F.cross_entropy(module(batch if data == "tokens" else batch.double()),
                                   torch.tensor(labels[part]))
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())
            norms.append(sum((p.grad ** 2).sum() for p in module.parameters()).sqrt().item())
            optimizer.step()
        members[name + ".trained.onnx"] = export(module, torch.tensor(x[:BATCH]), how, path)
        members[name + ".x.npy"], members[name + ".labels.npy"] = npy(x), npy(labels)
        members[name + ".losses.npy"], members[name + ".norms.npy"] = npy(losses), npy(norms)
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content,
                             zipfile.ZIP_DEFLATED)
    print(len(CASES), "cases")


if __name__ == "__main__":
    main()
