"""Two ranks, where rank 1 exits without an error: torchrun --nproc-per-node 2 rank_dies.py"""
# test: {"ranks": 2, "row": "ranks", "fails": "rank 1"}

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DistributedDataParallel(nn.Linear(512, 512).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs = torch.randn(64, 512, device="cuda")
for step in range(1000):
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()
    if step == 4 and dist.get_rank() == 1:
        os._exit(3)
    torch.cuda.synchronize()
