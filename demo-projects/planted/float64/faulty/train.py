"""Fit a regression with whitened errors."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    inputs, targets = torch.randn(1024, 64), torch.randn(1024, 512, dtype=torch.float64)
    whitening = torch.linalg.inv(torch.linalg.cholesky(torch.cov(targets.T)))

    for _ in range(200):
        errors = (model(inputs) - targets) @ whitening  # fault
        loss = errors.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
