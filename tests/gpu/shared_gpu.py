"""Two ranks that communicate through gloo and compute on one GPU."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.cuda.set_device(0)
model = DistributedDataParallel(nn.Linear(256, 256).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs = torch.randn(64, 256, device="cuda")
for _ in range(100):
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()
