"""Fully sharded training with fully_shard: torchrun --nproc-per-node 2 fsdp2.py"""
# test: {"ranks": 2, "row": "ranks"}

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

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
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(1024) for _ in range(4)), nn.Linear(1024, 10)).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    inputs = torch.randn(4096, 1024, device=device)
    targets = torch.zeros(4096, dtype=torch.long, device=device)
    for _ in range(ITERATIONS):
        optimizer.zero_grad(set_to_none=True)
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs.float(), targets)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    print(f"rank {dist.get_rank()} peak {torch.cuda.max_memory_allocated()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
