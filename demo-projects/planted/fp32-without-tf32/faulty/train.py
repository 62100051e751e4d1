"""Train an MLP to reproduce its input."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, width = (8192, 2048) if device == "cuda" else (64, 64)
    layers = []
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.GELU()]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(200):
        inputs = torch.randn(rows, width, device=device)
        loss = (model(inputs) - inputs).square().mean()  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
