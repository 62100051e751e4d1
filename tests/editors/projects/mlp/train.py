"""A small classifier: what the tests in real editors open, allow and save."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(64, 64)
        self.wide = nn.Linear(64, 4096)
        self.out = nn.Linear(4096, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.narrow(x))
        x = torch.relu(self.wide(x))
        return self.out(x)


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    for _ in range(100):
        images = torch.randn(512, 64)
        labels = torch.randint(10, (512,))
        optimizer.zero_grad()
        loss = criterion(net(images), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
