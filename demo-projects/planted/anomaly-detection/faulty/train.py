"""Train a deep, narrow network."""

import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)  # fault


def main() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 512)]
    for _ in range(6):
        layers += [nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 512)]
    model = nn.Sequential(*layers, nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    for step in range(200):
        x, y = torch.randn(256, 32), torch.randint(10, (256,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
