"""A model under torch.compile, with the backend that needs no compiler."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 1024)
        self.second = nn.Linear(1024, 256)

    def forward(self, x):
        hidden = torch.relu(self.first(x))  # forward
        return self.second(hidden)


model = torch.compile(Net(), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(100):  # loop
    loss = model(torch.randn(256, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()  # backward
    optimizer.step()  # step
