"""Nothing waits for the GPU, which takes about as long as the host."""

import time

import torch
from torch import nn

WIDTH = 1024


def host_work() -> None:
    began = time.perf_counter()
    while time.perf_counter() - began < 0.002:
        pass


model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(12)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=True)
inputs = torch.randn(WIDTH, WIDTH, device="cuda")
for _ in range(60):
    host_work()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
