"""A model compiled by torch.compile, which runs Triton kernels."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 1024)
        self.norm = nn.LayerNorm(1024)
        self.down = nn.Linear(1024, 10)

    def forward(self, x):
        hidden = nn.functional.gelu(self.up(x)) * 0.5
        return self.down(self.norm(hidden))


def main():
    model = Net().cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(60):
        x = torch.randn(256, 256, device="cuda")
        y = torch.randint(10, (256,), device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
