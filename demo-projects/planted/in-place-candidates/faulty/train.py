"""Train a small discriminator."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.LeakyReLU(0.2),  # fault
        nn.Conv2d(32, 1, 4, stride=4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for _ in range(200):
        pictures = torch.randn(8, 3, 96, 96)
        loss = model(pictures).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
