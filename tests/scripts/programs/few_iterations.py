"""Three iterations in all, then the program ends."""

import torch
from torch import nn

model = nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):  # loop
    loss = model(torch.randn(64, 256)).square().mean()  # forward
    loss.backward()  # backward
    optimizer.step()  # step
    optimizer.zero_grad()
