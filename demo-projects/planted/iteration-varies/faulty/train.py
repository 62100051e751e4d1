"""Train a classifier on points, and monitor how close a weight matrix is to losing rank."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    watched = nn.Linear(256, 256)
    model = nn.Sequential(
        nn.Linear(64, 256),
        nn.ReLU(inplace=True),
        watched,
        nn.ReLU(inplace=True),
        nn.Linear(256, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    for step in range(240):
        x, y = torch.randn(512, 64), torch.randint(10, (512,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            smallest = torch.linalg.svdvals(watched.weight.detach())[-1]  # fault
    print(f"step {step}: loss {loss.item():.3f}, smallest singular value {smallest.item():.4f}")


if __name__ == "__main__":
    main()
