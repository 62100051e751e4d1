"""torch.compile with Inductor's own CUDA graphs (mode="reduce-overhead")."""
# test: {"row": "cuda-graphs", "own_pool": true}

import os

import torch
from torch import nn

STEPS = int(os.environ.get("STEPS", "60"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 512)
        self.down = nn.Linear(512, 128)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def main():
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(64, 128, device="cuda")
    for _ in range(STEPS):  # the training loop
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(x).sum()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
