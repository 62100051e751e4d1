import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(x)


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(50):
        batch = torch.randn(32, 64)
        labels = torch.randint(0, 10, (32,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(batch), labels)
        loss.backward()
        optimizer.step()
        print("step", step)


if __name__ == "__main__":
    main()
