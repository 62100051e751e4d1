"""Attention with an optional padding mask and a temperature, and a second one with a bias."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.dropout = nn.Dropout(0.0)

    def forward(self, q, k, v, mask=None):
        attn = torch.matmul(q / self.temperature, k.transpose(2, 3))
        if mask is not None:
            attn = attn.masked_fill(mask == 0, -1e9)
        attn = self.dropout(torch.softmax(attn, dim=-1))
        output = torch.matmul(attn, v)
        return output


class Biased(nn.Module):
    def __init__(self, heads: int, length: int, width: int) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.relative = nn.Parameter(torch.zeros(heads, length, length))

    def forward(self, q, k, v):
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
        scores = scores + self.relative
        weights = scores.softmax(dim=-1)
        return torch.einsum("bhij,bhjd->bhid", weights, v)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.attention = Attention(8**0.5)
        self.biased = Biased(4, 12, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.view(8, 12, 4, 8).transpose(1, 2) for one in self.qkv(x).chunk(3, dim=-1))
        seen = self.attention(q, k, v, mask=mask)
        unmasked = self.attention(q, k, v)
        return seen + unmasked + self.biased(q, k, v)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x, target = torch.randn(8, 12, 32), torch.randn(8, 4, 12, 8)
mask = (torch.arange(12) < torch.randint(4, 12, (8, 1)))[:, None, None, :]
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x, mask), target)
    loss.backward()
    optimizer.step()
    print(loss.item())
