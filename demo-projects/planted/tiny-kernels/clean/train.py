"""Train a network, and keep running averages of its weights and of their squares."""

import copy

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(40)))
    average = copy.deepcopy(model).requires_grad_(False)
    squares = copy.deepcopy(model).requires_grad_(False)
    weights = list(model.parameters())
    means, squared = list(average.parameters()), list(squares.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)

    for _ in range(200):
        inputs = torch.randn(64, 32)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_mul_(means, 0.99)
            torch._foreach_add_(means, weights, alpha=0.01)
            torch._foreach_mul_(squared, 0.99)
            torch._foreach_addcmul_(squared, weights, weights, value=0.01)
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
