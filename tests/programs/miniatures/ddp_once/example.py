"""One step of distributed data parallel, to show how it is set up."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class ToyModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = torch.nn.Linear(1024, 1024)
        self.net2 = torch.nn.Linear(1024, 5)

    def forward(self, x):
        x = torch.relu(self.net1(x))  # top
        return self.net2(x)


def demo_basic():
    model = DDP(ToyModel())
    loss_fn = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = model(torch.randn(256, 1024))
    labels = torch.randn(256, 5)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    print(f"training completed in rank {dist.get_rank()}!")


if __name__ == "__main__":
    for name, alone in [
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "0"),
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
    ]:
        os.environ.setdefault(name, alone)
    dist.init_process_group(backend="gloo")
    demo_basic()
    dist.destroy_process_group()
