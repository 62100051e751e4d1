"""Train a recurrent gate whose pattern is kept in bfloat16."""

import torch
from torch import Tensor, nn


class Mixer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: Tensor, gates: Tensor) -> Tensor:
        x = torch.tanh(self.mix(x))
        for _ in range(24):
            x = x * gates.float()  # fault
        return x


def main() -> None:
    torch.manual_seed(0)
    model = Mixer(128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(200):
        x, gates = torch.randn(256, 128), torch.rand(256, 128).bfloat16()
        loss = (model(x, gates) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
