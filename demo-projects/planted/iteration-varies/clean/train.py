"""Train a network that is wide for its data, and keep what it learned."""

import io

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    checkpoint = io.BytesIO()

    for step in range(120):
        x, y = torch.randn(16, 64), torch.randint(10, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), checkpoint)
    print(f"step {step}: loss {loss.item():.3f}, {checkpoint.tell()} bytes")


if __name__ == "__main__":
    main()
