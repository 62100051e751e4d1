"""BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class BertConfig:
    vocab_size: int = 1024
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    intermediate: int = 512
    max_length: int = 64
    dropout: float = 0.1


class Embeddings(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(config.vocab_size, config.hidden, padding_idx=0)
        self.position = nn.Embedding(config.max_length, config.hidden)
        self.segment = nn.Embedding(2, config.hidden)
        self.norm = nn.LayerNorm(config.hidden)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.word(tokens) + self.position(positions) + self.segment(segments)
        return self.dropout(self.norm(embedded))


class Bert(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        layer = nn.TransformerEncoderLayer(
            config.hidden,
            config.heads,
            config.intermediate,
            dropout=config.dropout,
            activation="gelu",
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.transform = nn.Sequential(
            nn.Linear(config.hidden, config.hidden), nn.GELU(), nn.LayerNorm(config.hidden)
        )
        self.decoder = nn.Linear(config.hidden, config.vocab_size)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        x = self.embeddings(tokens, segments)
        x = self.encoder(x, src_key_padding_mask=tokens == 0)
        return self.decoder(self.transform(x))
