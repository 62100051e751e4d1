"""Fit a regression in which some outputs weigh more than others."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    weights = torch.linspace(0.5, 1.5, 1024)

    for _ in range(200):
        inputs, targets = torch.randn(2048, 64), torch.randn(2048, 1024)
        errors = (model(inputs) - targets) * weights
        loss = errors.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
