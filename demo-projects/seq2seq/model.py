"""Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.2, batch_first=True)

    def forward(self, source: Tensor):
        return self.lstm(self.embedding(source))


class LuongAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        scores = self.score(query) @ memory.transpose(1, 2)
        weights = scores.softmax(dim=-1)
        context = weights @ memory
        return torch.tanh(self.combine(torch.cat([context, query], dim=-1)))


class Decoder(nn.Module):
    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.2, batch_first=True)
        self.attention = LuongAttention(width)
        self.project = nn.Linear(width, vocab_size)

    def forward(self, target: Tensor, memory: Tensor, state) -> Tensor:
        output, _ = self.lstm(self.embedding(target), state)
        return self.project(self.attention(output, memory))


class Seq2Seq(nn.Module):
    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.encoder = Encoder(vocab_size, width)
        self.decoder = Decoder(vocab_size, width)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, state = self.encoder(source)
        return self.decoder(target, memory, state)
