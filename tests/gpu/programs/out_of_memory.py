"""A list that grows with every batch, until the GPU's memory is full."""
# test: {"fails": "Out of memory: tried to allocate 17", "row": "out-of-memory"}

import torch
from torch import nn


def main():
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for _ in range(10_000):
        x = torch.randn(1024, 1024, device="cuda")
        seen.append(torch.randn(1 << 32, device="cuda"))  # fault
        optimizer.zero_grad(set_to_none=True)
        model(x).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
