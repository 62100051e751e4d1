"""Train a wide network: the host has started the next kernel long before one is over."""

import torch
from torch import Tensor, nn


class Wide(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.gains = nn.ParameterList(torch.ones(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for gain in self.gains:
            x = torch.tanh(x * gain) + x
        return x


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Wide(8192, 40).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(8192, 8192, device=device)
    for _ in range(200):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
