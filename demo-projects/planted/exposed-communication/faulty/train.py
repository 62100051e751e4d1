"""Fit a deep, narrow network on two ranks: torchrun --standalone --nproc-per-node 2 train.py"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # fault
        parameter.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(96, 96), nn.ReLU()) for _ in range(60)]
    model = nn.Sequential(*layers, nn.Linear(96, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(200):
        samples = torch.randn(1024, 96)
        loss = model(samples).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()


if __name__ == "__main__":
    main()
