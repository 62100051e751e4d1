"""Train a compiled model that looks at its own activations."""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 256)
        self.out = nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.hidden(x))
        self.largest = x.detach().max()
        return self.out(x)


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    model = torch.compile(net, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for _ in range(200):
        inputs = torch.randn(256, 64)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, largest {net.largest:.3f}")


if __name__ == "__main__":
    main()
