"""BERT, GPT-2 (which GPT-3 resembles) and OPT as the `transformers` package of 2023 computed them
with `attn_implementation="eager"`, which NeuSight measured: unfused attention, FP32, and for each
activation function as many operators as in that package.

Sizes come from the model's `config.json`, with its names.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Config = dict[str, Any]


def split_heads(hidden: torch.Tensor, heads: int) -> torch.Tensor:
    """Maps (batch, sequence, width) to (batch, heads, sequence, width of a head)."""
    batch, sequence, width = hidden.shape
    return hidden.view(batch, sequence, heads, width // heads).permute(0, 2, 1, 3)


def merge_heads(hidden: torch.Tensor) -> torch.Tensor:
    """The inverse of `split_heads`."""
    batch, heads, sequence, width = hidden.shape
    return hidden.permute(0, 2, 1, 3).contiguous().view(batch, sequence, heads * width)


def gelu_new(value: torch.Tensor) -> torch.Tensor:
    """`NewGELUActivation`: eight unfused operators."""
    inner = math.sqrt(2.0 / math.pi) * (value + 0.044715 * torch.pow(value, 3.0))
    return 0.5 * value * (1.0 + torch.tanh(inner))


ACTIVATIONS = {"gelu": functional.gelu, "gelu_new": gelu_new, "relu": functional.relu}


class ProjectionByAddmm(nn.Module):
    """GPT-2's `Conv1D`: a linear layer with a transposed weight."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        flat = torch.addmm(self.bias, hidden.view(-1, hidden.size(-1)), self.weight)
        return flat.view(*hidden.shape[:-1], -1)


class Gpt2Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width = int(config["n_embd"])
        self.heads = int(config["n_head"])
        self.activation = ACTIVATIONS[config.get("activation_function", "gelu_new")]
        positions = int(config["n_positions"])
        # `expand` takes no memory: the mask is sliced, never written.
        causal = torch.ones((), dtype=torch.bool).expand(1, 1, positions, positions)
        self.register_buffer("causal", causal, persistent=False)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn = ProjectionByAddmm(width, 3 * width)
        self.c_proj = ProjectionByAddmm(width, width)
        self.c_fc = ProjectionByAddmm(width, 4 * width)
        self.c_out = ProjectionByAddmm(4 * width, width)
        self.attention_dropout = nn.Dropout(float(config.get("attn_pdrop", 0.1)))
        self.dropout = nn.Dropout(float(config.get("resid_pdrop", 0.1)))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self._attention(self.ln_1(hidden))
        inner = self.activation(self.c_fc(self.ln_2(hidden)))
        added: torch.Tensor = hidden + self.dropout(self.c_out(inner))
        return added

    def _attention(self, hidden: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            split_heads(part, self.heads)
            for part in self.c_attn(hidden).split(hidden.size(-1), dim=2)
        )
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / torch.full(
            [], value.size(-1) ** 0.5, dtype=scores.dtype, device=scores.device
        )
        length = scores.size(-1)
        lowest = torch.full([], torch.finfo(scores.dtype).min, device=scores.device)
        scores = torch.where(self.causal[:, :, :length, :length], scores, lowest)
        weights = self.attention_dropout(functional.softmax(scores, dim=-1))
        attended: torch.Tensor = self.c_proj(merge_heads(torch.matmul(weights, value)))
        dropped: torch.Tensor = self.dropout(attended)
        return dropped


class Gpt2(nn.Module):
    """`GPT2LMHeadModel`: the head shares the embedding's weight."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = int(config["n_embd"])
        self.wte = nn.Embedding(int(config["vocab_size"]), width)
        self.wpe = nn.Embedding(int(config["n_positions"]), width)
        self.dropout = nn.Dropout(float(config.get("embd_pdrop", 0.1)))
        self.blocks = nn.ModuleList(Gpt2Block(config) for _ in range(int(config["n_layer"])))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.size(-1), device=tokens.device).unsqueeze(0)
        hidden = self.dropout(self.wte(tokens) + self.wpe(positions))
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.ln_f(hidden), self.wte.weight)


class BertLayer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner = int(config["hidden_size"]), int(config["intermediate_size"])
        self.heads = int(config["num_attention_heads"])
        self.activation = ACTIVATIONS[config.get("hidden_act", "gelu")]
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.attention_output = nn.Linear(width, width)
        self.intermediate, self.output = nn.Linear(width, inner), nn.Linear(inner, width)
        self.attention_norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention_dropout = nn.Dropout(float(config["attention_probs_dropout_prob"]))
        self.dropout = nn.Dropout(float(config["hidden_dropout_prob"]))

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            split_heads(projection(hidden), self.heads)
            for projection in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.size(-1))
        weights = self.attention_dropout(functional.softmax(scores + mask, dim=-1))
        attended = self.attention_output(merge_heads(torch.matmul(weights, value)))
        hidden = self.attention_norm(self.dropout(attended) + hidden)
        inner = self.activation(self.intermediate(hidden))
        normed: torch.Tensor = self.output_norm(self.dropout(self.output(inner)) + hidden)
        return normed


class Bert(nn.Module):
    """`BertForSequenceClassification` for inference, `BertForPreTraining` for training, as in
    NeuSight.
    """

    def __init__(self, config: Config, train: bool) -> None:
        super().__init__()
        width, vocabulary = int(config["hidden_size"]), int(config["vocab_size"])
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(int(config["max_position_embeddings"]), width)
        self.types = nn.Embedding(int(config["type_vocab_size"]), width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(float(config["hidden_dropout_prob"]))
        self.layers = nn.ModuleList(
            BertLayer(config) for _ in range(int(config["num_hidden_layers"]))
        )
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 2)
        self.transform = nn.Linear(width, width) if train else None
        self.transform_norm = nn.LayerNorm(width) if train else None
        self.bias = nn.Parameter(torch.empty(vocabulary)) if train else None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(tokens.shape, device=tokens.device)
        mask = (1.0 - ones[:, None, None, :]) * torch.finfo(torch.float32).min
        positions = torch.arange(tokens.size(1), device=tokens.device).unsqueeze(0)
        hidden = self.words(tokens) + self.types(torch.zeros_like(tokens))
        hidden = self.dropout(self.norm(hidden + self.positions(positions)))
        for layer in self.layers:
            hidden = layer(hidden, mask)
        pooled = torch.tanh(self.pooler(hidden[:, 0]))
        if self.transform is None or self.transform_norm is None:
            classes: torch.Tensor = self.classifier(self.dropout(pooled))
            return classes
        self.classifier(pooled)
        hidden = self.transform_norm(functional.gelu(self.transform(hidden)))
        return functional.linear(hidden, self.words.weight, self.bias)


class OptLayer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner = int(config["hidden_size"]), int(config["ffn_dim"])
        self.heads = int(config["num_attention_heads"])
        self.activation = ACTIVATIONS[config.get("activation_function", "relu")]
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.attention_norm, self.final_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.norm_first = bool(config.get("do_layer_norm_before", True))
        self.attention_dropout = nn.Dropout(float(config.get("attention_dropout", 0.0)))
        self.dropout = nn.Dropout(float(config.get("dropout", 0.1)))

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        normed = self.attention_norm(hidden) if self.norm_first else hidden
        hidden = hidden + self.dropout(self._attention(normed, mask))
        if not self.norm_first:
            hidden = self.attention_norm(hidden)
        shape = hidden.shape
        flat = hidden.reshape(-1, hidden.size(-1))
        normed = self.final_norm(flat) if self.norm_first else flat
        flat = flat + self.dropout(self.fc2(self.activation(self.fc1(normed))))
        result = flat.view(shape)
        return result if self.norm_first else self.final_norm(result)  # type: ignore[no-any-return]

    def _attention(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape
        scaled = self.q_proj(hidden) * (width // self.heads) ** -0.5
        query, key, value = (
            split_heads(part, self.heads).contiguous().view(batch * self.heads, length, -1)
            for part in (scaled, self.k_proj(hidden), self.v_proj(hidden))
        )
        scores = torch.bmm(query, key.transpose(1, 2))
        scores = scores.view(batch, self.heads, length, length) + mask
        lowest = torch.full((), torch.finfo(scores.dtype).min, device=scores.device)
        scores = torch.max(scores, lowest).view(batch * self.heads, length, length)
        weights = self.attention_dropout(functional.softmax(scores, dim=-1))
        attended = torch.bmm(weights, value).view(batch, self.heads, length, -1)
        projected: torch.Tensor = self.out_proj(merge_heads(attended))
        return projected


class Opt(nn.Module):
    """`OPTForCausalLM`. Positions start at 2."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = int(config["hidden_size"])
        narrow = int(config.get("word_embed_proj_dim", width))
        self.words = nn.Embedding(int(config["vocab_size"]), narrow)
        self.positions = nn.Embedding(int(config["max_position_embeddings"]) + 2, width)
        differs = narrow != width
        self.project_in = nn.Linear(narrow, width, bias=False) if differs else None
        self.project_out = nn.Linear(width, narrow, bias=False) if differs else None
        self.layers = nn.ModuleList(
            OptLayer(config) for _ in range(int(config["num_hidden_layers"]))
        )
        self.final_norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length = tokens.shape
        ones = torch.ones(tokens.shape, dtype=torch.long, device=tokens.device)
        position = torch.cumsum(ones, dim=1) * ones + 1
        mask = torch.full((length, length), torch.finfo(torch.float32).min, device=tokens.device)
        mask = torch.triu(mask, diagonal=1).expand(batch, 1, length, length)
        hidden = self.words(tokens)
        if self.project_in is not None:
            hidden = self.project_in(hidden)
        hidden = hidden + self.positions(position)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        hidden = self.final_norm(hidden)
        if self.project_out is not None:
            hidden = self.project_out(hidden)
        return functional.linear(hidden, self.words.weight)
