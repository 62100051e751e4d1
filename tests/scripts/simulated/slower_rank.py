"""Train on two GPUs of which one is slower: torchrun --nproc-per-node 2 slower_rank.py"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_float32_matmul_precision("high")


def main() -> None:
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    layers = [layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.GELU())]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for _ in range(100):
        # So much that a busy host is always ahead of its GPU.
        x = torch.randn(131072, 2048, device="cuda")
        loss = (model(x) - x).square().mean()  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
