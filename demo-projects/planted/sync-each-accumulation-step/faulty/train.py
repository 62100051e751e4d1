"""Adds up four small batches for each step: torchrun --standalone --nproc-per-node 2 train.py"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for number in range(400):
        samples = torch.randn(16, 256)
        loss = (model(samples) - samples).square().mean() / 4
        loss.backward()  # fault
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
