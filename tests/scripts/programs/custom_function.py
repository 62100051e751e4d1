"""A custom autograd Function, activation checkpointing, hooks, and a generator of batches."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)  # forward

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * (s + x * s * (1 - s))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(Swish.apply(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(128) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def batches():
    while True:
        yield torch.randn(64, 128)


def train():
    net = Net()
    net.blocks[0].register_full_backward_hook(lambda module, grads_in, grads_out: None)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in batches():  # loop
        optimizer.zero_grad()
        net(batch).square().mean().backward()  # backward
        optimizer.step()  # step


train()
