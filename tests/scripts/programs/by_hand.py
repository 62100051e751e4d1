"""Gradient descent by hand: no optimizer, no module, no loader, and a loop without an end."""

import torch

w1 = torch.randn(64, 256, requires_grad=True)
w2 = torch.randn(256, 1, requires_grad=True)
while True:  # loop
    x = torch.randn(512, 64)
    prediction = torch.relu(x @ w1) @ w2  # forward
    loss = (prediction - x.sum(1, keepdim=True)).square().mean()
    loss.backward()  # backward
    with torch.no_grad():
        for w in (w1, w2):
            w -= 1e-6 * w.grad
            w.grad = None
