"""Train a network and keep a running average of its weights."""

import copy

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(40)))
    average = copy.deepcopy(model).requires_grad_(False)
    kept, weights = list(average.parameters()), list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)

    for _ in range(60):
        inputs = torch.randn(64, 32)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_mul_(kept, 0.99)
            torch._foreach_add_(kept, weights, alpha=0.01)
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
