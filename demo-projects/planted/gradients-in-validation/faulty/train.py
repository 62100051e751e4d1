"""Fit a function with full-batch training, and validate after every step."""

import torch
from torch import nn


def evaluate(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    predicted = model(x)  # fault
    error = nn.functional.mse_loss(predicted, y).item()
    model.train()
    return error


def main() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(512, 64), torch.randn(512, 1)
    held_out, expected = torch.randn(8192, 64), torch.randn(8192, 1)
    layers = [nn.Linear(64, 256), nn.GELU()]
    for _ in range(3):
        layers += [nn.Linear(256, 256), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    for step in range(200):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error = evaluate(model, held_out, expected)
    print(f"step {step}: loss {loss.item():.3f}, validation {error:.3f}")


if __name__ == "__main__":
    main()
