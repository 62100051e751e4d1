import torch
from torch import nn


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x, labels):
        return nn.functional.cross_entropy(self.net(x), labels)


def skyline_model_provider():
    return WithLoss()


def skyline_input_provider(batch_size=32):
    return torch.randn(batch_size, 32), torch.randint(0, 4, (batch_size,))


def skyline_iteration_provider(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def iteration(*inputs):
        optimizer.zero_grad()
        model(*inputs).backward()
        optimizer.step()

    return iteration
