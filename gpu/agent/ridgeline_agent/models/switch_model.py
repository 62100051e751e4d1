"""Switch Transformers (T5 with a mixture of experts) as the `transformers` package of 2023 computed
it, with the experts as in NeuSight: each on a batch padded to its capacity.

Sizes come from the model's `config.json`, with its names.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .decoder_models import Config, merge_heads, split_heads


class RootMeanSquareNorm(nn.Module):
    """`T5LayerNorm`: no mean, no bias, five operators."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.epsilon = epsilon

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.epsilon))


class Attention(nn.Module):
    def __init__(self, config: Config, decoder: bool, relative: bool) -> None:
        super().__init__()
        width = int(config["d_model"])
        self.heads, self.decoder = int(config["num_heads"]), decoder
        self.buckets = int(config["relative_attention_num_buckets"])
        inner = self.heads * int(config["d_kv"])
        self.q, self.k, self.v = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, width, bias=False)
        self.relative = nn.Embedding(self.buckets, self.heads) if relative else None
        self.dropout = nn.Dropout(float(config["dropout_rate"]))

    def forward(
        self,
        hidden: torch.Tensor,
        others: torch.Tensor,
        mask: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        query = split_heads(self.q(hidden), self.heads)
        key = split_heads(self.k(others), self.heads)
        value = split_heads(self.v(others), self.heads)
        scores = torch.matmul(query, key.transpose(3, 2))
        if bias is None:
            bias = self._bias(scores) + mask
        scores += bias
        weights = self.dropout(functional.softmax(scores, dim=-1))
        return self.o(merge_heads(torch.matmul(weights, value))), bias

    def _bias(self, scores: torch.Tensor) -> torch.Tensor:
        """Returns the relative position bias of the first layer; the others reuse it."""
        rows, columns = scores.size(-2), scores.size(-1)
        if self.relative is None:
            return torch.zeros(1, self.heads, rows, columns, device=scores.device)
        # Computing the bucket of a distance takes a dozen small integer operators. Here a logarithm
        # stands for them.
        distance = (
            torch.arange(columns, device=scores.device)[None, :]
            - torch.arange(rows, device=scores.device)[:, None]
        )
        bucket = torch.log(distance.abs().float() + 1).to(torch.long).clamp(max=self.buckets - 1)
        return self.relative(bucket).permute(2, 0, 1).unsqueeze(0)  # type: ignore[no-any-return]


class Dense(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner = int(config["d_model"]), int(config["d_ff"])
        self.wi, self.wo = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(float(config["dropout_rate"]))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.wo(self.dropout(functional.relu(self.wi(hidden))))
        return result


class Sparse(nn.Module):
    """A router and its experts. Routing depends on values, which do not exist here: each expert
    computes as many tokens as its capacity, as in the measurements.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        experts = int(config["num_experts"])
        self.capacity = int(config["expert_capacity"])
        self.classifier = nn.Linear(int(config["d_model"]), experts, bias=False)
        self.experts = nn.ModuleList(Dense(config) for _ in range(experts))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape
        probabilities = functional.softmax(self.classifier(hidden), dim=-1)
        chosen = torch.argmax(probabilities, dim=-1)
        routes = functional.one_hot(chosen, num_classes=len(self.experts))
        routes = routes * (torch.cumsum(routes, dim=-2) <= self.capacity)
        highest = torch.max(probabilities, dim=-1).values.unsqueeze(-1)
        next_states = hidden.clone()
        rows = min(batch * self.capacity, batch * length)
        padded = torch.zeros(batch * self.capacity, width, dtype=hidden.dtype, device=hidden.device)
        flat = next_states.view(batch * length, width)
        where = torch.arange(rows, device=hidden.device)
        for number, expert in enumerate(self.experts):
            torch.count_nonzero(routes[:, :, number].bool())
            padded = expert(padded.index_copy(0, where, hidden.view(-1, width)[where]))
            flat = flat.index_copy(0, where, padded[:rows])
        return highest * flat.view(batch, length, width)


class Layer(nn.Module):
    def __init__(self, config: Config, decoder: bool, first: bool, sparse: bool) -> None:
        super().__init__()
        width, epsilon = int(config["d_model"]), float(config["layer_norm_epsilon"])
        self.attention = Attention(config, decoder, relative=first)
        self.cross = Attention(config, decoder, relative=False) if decoder else None
        self.feed_forward = Sparse(config) if sparse else Dense(config)
        self.attention_norm = RootMeanSquareNorm(width, epsilon)
        self.cross_norm = RootMeanSquareNorm(width, epsilon) if decoder else None
        self.norm = RootMeanSquareNorm(width, epsilon)
        self.dropout = nn.Dropout(float(config["dropout_rate"]))

    def forward(
        self, hidden: torch.Tensor, encoded: torch.Tensor | None, state: dict[str, Any]
    ) -> torch.Tensor:
        normed = self.attention_norm(hidden)
        attended, state["bias"] = self.attention(normed, normed, state["mask"], state.get("bias"))
        hidden = hidden + self.dropout(attended)
        if self.cross is not None and self.cross_norm is not None and encoded is not None:
            attended, state["cross_bias"] = self.cross(
                self.cross_norm(hidden), encoded, state["cross_mask"], state.get("cross_bias")
            )
            hidden = hidden + self.dropout(attended)
        return hidden + self.dropout(self.feed_forward(self.norm(hidden)))  # type: ignore[no-any-return]


class Stack(nn.Module):
    def __init__(self, config: Config, decoder: bool) -> None:
        super().__init__()
        layers = int(config["num_decoder_layers"] if decoder else config["num_layers"])
        step = int(config["decoder_sparse_step"] if decoder else config["encoder_sparse_step"])
        self.layers = nn.ModuleList(
            Layer(config, decoder, number == 0, step > 0 and (number % step == 1 or step == 1))
            for number in range(layers)
        )
        width = int(config["d_model"])
        self.norm = RootMeanSquareNorm(width, float(config["layer_norm_epsilon"]))
        self.dropout = nn.Dropout(float(config["dropout_rate"]))
        self.decoder = decoder

    def forward(self, hidden: torch.Tensor, encoded: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, _ = hidden.shape
        ones = torch.ones(batch, 1, 1, length, device=hidden.device)
        mask = (1.0 - ones) * torch.finfo(hidden.dtype).min
        state: dict[str, Any] = {"mask": mask, "cross_mask": mask}
        if self.decoder:
            state["mask"] = mask.expand(batch, 1, length, length).contiguous()
        hidden = self.dropout(hidden)
        for layer in self.layers:
            hidden = layer(hidden, encoded, state)
        result: torch.Tensor = self.dropout(self.norm(hidden))
        return result


class Switch(nn.Module):
    """`SwitchTransformersForConditionalGeneration`. Encoder and decoder get the same tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.width = int(config["d_model"])
        self.words = nn.Embedding(int(config["vocab_size"]), self.width)
        self.encoder, self.decoder = Stack(config, False), Stack(config, True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        encoded = self.encoder(self.words(tokens))
        hidden = self.decoder(self.words(tokens), encoded) * self.width**-0.5
        return functional.linear(hidden, self.words.weight)
