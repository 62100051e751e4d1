"""LBFGS calls its closure many times a step."""

import torch
from torch import nn

x = torch.linspace(-3, 3, 512).unsqueeze(1)
y = x.sin()
model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)  # forward
    loss.backward()  # backward
    return loss


for _ in range(50):  # loop
    optimizer.step(closure)  # step
