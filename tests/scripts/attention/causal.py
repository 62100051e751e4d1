"""Causal attention with a mask in a buffer, and dropout that is off."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.attn_dropout = nn.Dropout(0.0)
        self.register_buffer(
            "bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.size()
        q, k, v = (
            one.view(B, T, self.heads, -1).transpose(1, 2) for one in self.qkv(x).split(C, 2)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        return y.transpose(1, 2).reshape(B, T, C)


torch.manual_seed(0)
model = Attention(32, 4, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x, target = torch.randn(8, 12, 32), torch.randn(8, 12, 32)
for _ in range(20):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), target)
    loss.backward()
    optimizer.step()
    print(loss.item())
