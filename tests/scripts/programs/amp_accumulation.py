"""Mixed precision with a scaler, four micro-batches a step, a scheduler, and no main guard."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
scaler = torch.amp.GradScaler("cpu", enabled=False)
ACCUMULATE = 4

for step in range(400):  # loop
    x = torch.randn(32, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x) - x).pow(2).mean() / ACCUMULATE  # forward
    scaler.scale(loss).backward()  # backward
    if (step + 1) % ACCUMULATE == 0:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)  # step
        scaler.update()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
