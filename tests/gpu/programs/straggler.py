"""Two ranks, where rank 1 computes for longer: torchrun --nproc-per-node 2 straggler.py"""
# test: {"ranks": 2, "row": "ranks", "finds": "imbalance"}

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ITERATIONS = 40


def main() -> None:
    # As set by launchers and schedulers that assign one device to each process.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8)), nn.Linear(2048, 10)).cuda()
    model = DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(4096 * (1 + rank), 2048, device="cuda")
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()
    print(f"rank {rank} peak {torch.cuda.max_memory_allocated()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
