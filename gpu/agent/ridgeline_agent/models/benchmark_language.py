"""BERT (Devlin et al., 2019) for question answering, GNMT (Wu et al., 2016) and Transformer-XL (Dai
et al., 2019), as in NVIDIA's examples. Each returns its loss. Recurrent layers are written step by
step, because a library's cannot be listed without a device.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .decoder_models import BertLayer


class BertForAnswers(nn.Module):
    """Predicts the start and the end of the answer."""

    VOCABULARY, POSITIONS = 30_522, 512

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        config = {
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_attention_heads": heads,
            "attention_probs_dropout_prob": 0.1,
            "hidden_dropout_prob": 0.1,
        }
        self.words = nn.Embedding(self.VOCABULARY, width)
        self.positions, self.types = nn.Embedding(self.POSITIONS, width), nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(layers))
        self.ends = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        position = torch.arange(tokens.size(1), device=tokens.device).unsqueeze(0)
        hidden = (
            self.words(tokens) + self.positions(position) + self.types(torch.zeros_like(tokens))
        )
        hidden = self.dropout(self.norm(hidden))
        mask = torch.zeros(
            len(tokens), 1, 1, tokens.size(1), dtype=hidden.dtype, device=hidden.device
        )
        for layer in self.layers:
            hidden = layer(hidden, mask)
        scores = self.ends(hidden).float().transpose(1, 2).reshape(2 * len(tokens), -1)
        return functional.cross_entropy(scores, torch.ones_like(scores[:, 0], dtype=torch.long))


class Recurrent(nn.Module):
    """An LSTM: the input's matrix multiplications at once, those of the state step by step, and a
    cell's pointwise operations in one kernel, as in cuDNN.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.of_input = nn.Linear(inputs, 4 * width)
        self.of_state = nn.Linear(width, 4 * width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Maps (batch, steps, inputs) to (batch, steps, width)."""
        given = self.of_input(hidden)
        state = given.new_zeros(len(given), self.width)
        memory = torch.zeros_like(state)
        states = []
        for gates in given.unbind(1):
            state, memory, _ = torch.ops.aten._thnn_fused_lstm_cell(
                gates, self.of_state(state), memory
            )
            states.append(state)
        return torch.stack(states, dim=1)


class Gnmt(nn.Module):
    """Four recurrent layers on each side, the first bidirectional, with additive attention."""

    VOCABULARY, WIDTH = 32_320, 1024

    def __init__(self) -> None:
        super().__init__()
        width = self.WIDTH
        self.words = nn.Embedding(self.VOCABULARY, width)
        self.there, self.back = Recurrent(width, width), Recurrent(width, width)
        self.encoder = nn.ModuleList(Recurrent(w * width, width) for w in (2, 1, 1))
        self.first = Recurrent(width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.score = nn.Parameter(torch.empty(width))
        self.decoder = nn.ModuleList(Recurrent(2 * width, width) for _ in range(3))
        self.head = nn.Linear(width, self.VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        words = functional.dropout(self.words(tokens), 0.2)
        source = torch.cat([self.there(words), self.back(words)], dim=2)
        for index, layer in enumerate(self.encoder):
            above = layer(functional.dropout(source, 0.2))
            source = above + source if index else above
        hidden = self.first(functional.dropout(self.words(tokens), 0.2))
        match = torch.tanh(self.query(hidden).unsqueeze(2) + self.key(source).unsqueeze(1))
        weights = torch.softmax(match @ self.score, dim=-1)
        context = weights @ source
        for index, layer in enumerate(self.decoder):
            above = layer(functional.dropout(torch.cat([hidden, context], dim=2), 0.2))
            hidden = above + hidden if index else above
        scores = self.head(hidden).view(-1, self.VOCABULARY)
        logs = functional.log_softmax(scores, dim=-1, dtype=torch.float32)
        right = logs.gather(1, tokens.view(-1, 1)).mean()
        return -0.9 * right - 0.1 * logs.mean()


class RelativeLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.places = nn.Linear(width, width, bias=False)
        self.of_content, self.of_place = (
            nn.Parameter(torch.empty(heads, 1, width // heads)) for _ in range(2)
        )
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm, self.inner_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(
        self, hidden: torch.Tensor, memory: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        batch, length, width = hidden.shape
        both = torch.cat([memory, hidden], dim=1)
        query, key, value = (
            part.reshape(batch, -1, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(both).chunk(3, dim=2)
        )
        query = query[:, :, -length:]
        place = self.places(places).view(-1, self.heads, width // self.heads).permute(1, 2, 0)
        by_content = (query + self.of_content) @ key.transpose(2, 3)
        by_place = (query + self.of_place) @ place
        # Shifts each row by one more than the previous row.
        padded = functional.pad(by_place, (1, 0)).view(batch, self.heads, -1, length)
        shifted = padded[:, :, 1:].reshape(by_place.shape)
        scores = (by_content + shifted) * (width // self.heads) ** -0.5
        ahead = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(
            1 + both.size(1) - length
        )
        weights = torch.softmax(scores.masked_fill_(ahead, -65_000.0), dim=-1)
        attended = (functional.dropout(weights, 0.0) @ value).transpose(1, 2).reshape(hidden.shape)
        hidden = self.norm(hidden + functional.dropout(self.out(attended), self.dropout))
        inner = functional.dropout(functional.relu(self.up(hidden)), self.dropout)
        added = hidden + functional.dropout(self.down(inner), self.dropout)
        return self.inner_norm(added)  # type: ignore[no-any-return]


class TransformerXl(nn.Module):
    """The WikiText-103 model. The benchmark does not use the adaptive softmax (`--adaptive`), so
    every token is scored against the whole vocabulary with the embedding's weights.
    """

    VOCABULARY = 267_735

    def __init__(
        self, layers: int, width: int, heads: int, inner: int, memory: int, dropout: float
    ) -> None:
        super().__init__()
        self.memory, self.width, self.dropout = memory, width, dropout
        self.words = nn.Embedding(self.VOCABULARY, width)
        self.bias = nn.Parameter(torch.empty(self.VOCABULARY))
        self.layers = nn.ModuleList(
            RelativeLayer(width, heads, inner, dropout) for _ in range(layers)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = functional.dropout(self.words(tokens) * self.width**0.5, self.dropout)
        memory = hidden.new_zeros(len(tokens), self.memory, self.width)
        places = hidden.new_zeros(self.memory + tokens.size(1), self.width)
        for layer in self.layers:
            hidden = layer(hidden, memory, places)
        flat = functional.dropout(hidden, self.dropout).reshape(-1, self.width)
        logs = functional.log_softmax(functional.linear(flat, self.words.weight, self.bias), dim=1)
        return -logs.gather(1, tokens.view(-1, 1)).float().mean()
