"""Train a compiled model that smooths its outputs over the iterations so far."""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(12))
        )

    def forward(self, x: Tensor, before: list[Tensor]) -> Tensor:  # fault
        return torch.stack([*before, self.layers(x)]).mean(dim=0)


def main() -> None:
    torch.manual_seed(0)
    model = torch.compile(Net(), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    before: list[Tensor] = []
    inputs = torch.randn(256, 64)
    for _ in range(40):
        outputs = model(inputs, before)
        loss = (outputs - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        before.append(outputs.detach())
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
