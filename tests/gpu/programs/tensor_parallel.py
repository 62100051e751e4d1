"""Tensor-parallel training over a device mesh: torchrun --nproc-per-node 2 tensor_parallel.py"""
# test: {"ranks": 2, "row": "ranks"}

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

ITERATIONS = 30


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main() -> None:
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tp",))
    device = torch.device("cuda", local)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(1024) for _ in range(4)), nn.Linear(1024, 10)).to(device)
    for block in model[:-1]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    inputs = torch.randn(2048, 1024, device=device)
    targets = torch.zeros(2048, dtype=torch.long, device=device)
    for _ in range(ITERATIONS):
        optimizer.zero_grad(set_to_none=True)
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    print(f"rank {dist.get_rank()} peak {torch.cuda.max_memory_allocated()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
