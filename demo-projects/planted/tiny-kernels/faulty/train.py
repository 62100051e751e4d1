"""Train a network, and keep running averages of its weights and of their squares."""

import copy

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(40)))
    average = copy.deepcopy(model).requires_grad_(False)
    squares = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)

    for _ in range(200):
        inputs = torch.randn(64, 32)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            kept = zip(average.parameters(), squares.parameters())
            for (mean, square), weight in zip(kept, model.parameters()):  # fault
                mean.mul_(0.99)
                mean.add_(weight, alpha=0.01)
                square.mul_(0.99)
                square.addcmul_(weight, weight, value=0.01)
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
