"""Classify noise on two ranks: torchrun --standalone --nproc-per-node 2 train.py"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def spectrum(model):
    """The singular values of each weight matrix, which show how close it is to losing rank."""
    return [torch.linalg.svdvals(weight) for weight in model.parameters() if weight.dim() == 2]


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(200):
        samples = torch.randn(1024, 256)
        labels = torch.randint(0, 10, (1024,))
        loss = nn.functional.cross_entropy(model(samples), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 50 == 0:
            values = spectrum(model)
            print(step, min(float(of[-1]) for of in values))


if __name__ == "__main__":
    main()
