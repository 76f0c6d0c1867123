# SPDX-License-Identifier: MIT
"""The networks of onnx_matrix.py by name; recurrent ones are written here."""
from typing import Dict

import torch
from torch import nn

import onnx_networks_plain
from onnx_network import Network, image, sequence, tokens

D = 8


class Recurrent(nn.Module):
    """A recurrent layer and a head on its last output."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.rnn, self.head = layer, nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.rnn.batch_first:
            return self.head(self.rnn(x.transpose(0, 1))[0][-1])
        return self.head(self.rnn(x)[0][:, -1])


class States(nn.Module):
    """Reads the last hidden and cell states, as encoders do."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.rnn, self.head = layer, nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, (h, c) = self.rnn(x)
        return self.head(torch.cat([*h, *c], -1))


class LanguageModel(nn.Module):
    """Embedding, LSTM, head; tied if asked for."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(30, 12), nn.LSTM(12, 12, 2, batch_first=True)
        self.head = nn.Linear(12, 30)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


class ConvLstm(nn.Module):
    """Columns of an image as a sequence, as in text recognition."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.rnn = nn.LSTM(16, D, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.head(self.rnn(y.flatten(1, 2).transpose(1, 2))[0])


class EncoderDecoder(nn.Module):
    """A GRU's last state begins another GRU; dot-product attention over the first one's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, D), nn.Embedding(20, D)
        self.encoder = nn.GRU(D, D, batch_first=True)
        self.decoder = nn.GRU(D, D, batch_first=True)
        self.head = nn.Linear(2 * D, 20)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(self.source(source))
        y, _ = self.decoder(self.target(target), state)
        chances = torch.softmax(y @ memory.transpose(1, 2), -1)
        return self.head(torch.cat([y, chances @ memory], -1))


class Begun(nn.Module):
    """A learned first state."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(6, D, batch_first=True), nn.Linear(D, 5)
        self.first = nn.Parameter(torch.randn(1, 1, D) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.first.expand(-1, x.shape[0], -1).contiguous()
        return self.head(self.rnn(x, state)[0].mean(1))


class Cells(nn.Module):
    """nn.LSTMCell in a loop of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(6, D), nn.Linear(D, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], D)
        state = (h, h)
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return self.head(state[0])


def rnn(make, inputs=sequence(7, 6), packed: bool = True, lr: float = 0.1) -> Network:
    return Network("rnn", make, inputs, "cross-entropy", lr, packed)


def layer(kind, width: int = D, batch_first: bool = True, **how):
    return lambda: Recurrent(kind(6, D, batch_first=batch_first, **how), width)


RECURRENT: Dict[str, Network] = {
    "lstm": rnn(layer(nn.LSTM)),
    "lstm_two_layers": rnn(layer(nn.LSTM, num_layers=2)),
    "lstm_bidirectional": rnn(layer(nn.LSTM, 2 * D, bidirectional=True)),
    "lstm_batch_second": rnn(layer(nn.LSTM, batch_first=False)),
    "lstm_projected_states": rnn(lambda: States(nn.LSTM(6, D, 2, batch_first=True), 4 * D)),
    "gru": rnn(layer(nn.GRU)),
    "gru_bidirectional_two_layers": rnn(layer(nn.GRU, 2 * D, num_layers=2, bidirectional=True,
                                              batch_first=False)),
    "gru_learned_state": rnn(Begun),
    "gru_encoder_decoder": rnn(EncoderDecoder, lambda n: {
        "source": torch.randint(0, 20, (n, 6)), "target": torch.randint(0, 20, (n, 5))}, lr=0.5),
    "rnn_tanh": rnn(layer(nn.RNN)),
    "rnn_relu_no_bias": rnn(layer(nn.RNN, nonlinearity="relu", bias=False)),
    "lstm_language_model": rnn(LanguageModel, tokens(8, 30), lr=2.0),
    "lstm_language_model_tied": rnn(lambda: LanguageModel(True), tokens(8, 30)),
    "lstm_cnn": rnn(ConvLstm, image(1, 8)),
    "lstm_cell_loop": rnn(Cells, packed=False),
}


def all_networks() -> Dict[str, Network]:
    """Every network; those of packages that are not installed are left out."""
    found = {**onnx_networks_plain.NETWORKS, **RECURRENT}
    for module in ("onnx_networks_vision", "onnx_networks_text"):
        try:
            found.update(__import__(module).NETWORKS)
        except ImportError as error:
            print(f"{module} is left out: {error}")
    return found
