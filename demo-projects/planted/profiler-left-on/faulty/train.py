"""Train a small network, as it was looked at last week."""

import cProfile

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64)]
    for _ in range(8):
        layers += [nn.Linear(64, 64), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    profiler = cProfile.Profile()
    profiler.enable()  # fault
    for step in range(200):
        x, y = torch.randn(64, 32), torch.randint(10, (64,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
