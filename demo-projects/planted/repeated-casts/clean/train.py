"""Train with a decaying gate pattern that is stored in float8."""

import torch
from torch import Tensor, nn


def decayed(x: Tensor, gates: Tensor) -> Tensor:
    gates = gates.float()
    for _ in range(100):
        x = x * gates
    return x


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(128, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(200):
        x, gates = torch.randn(256, 128), torch.rand(256, 128).to(torch.float8_e4m3fn)
        loss = (model(x) - decayed(x, gates)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
