"""Accumulate gradients over four batches: torchrun --standalone --nproc-per-node 2 train.py"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCUMULATED = 4


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    layers = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(6)]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(400):
        samples, labels = torch.randn(64, 512), torch.randint(0, 10, (64,))
        loss = nn.functional.cross_entropy(model(samples), labels) / ACCUMULATED
        loss.backward()  # fault
        if (step + 1) % ACCUMULATED == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
