"""Train a compiled model that monitors its own activations."""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.e, self.f = (nn.Linear(64, 64) for _ in range(6))

    def watched(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        self.largest = x.max().item()  # fault
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = self.watched(self.a(x))
        x = self.watched(self.b(x))
        x = self.watched(self.c(x))
        x = self.watched(self.d(x))
        x = self.watched(self.e(x))
        return self.f(x)


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    model = torch.compile(net, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for _ in range(200):
        inputs = torch.randn(64, 64)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, largest {net.largest:.3f}")


if __name__ == "__main__":
    main()
