"""Mixed precision in float16 with a gradient scaler."""

import os

import torch
from torch import nn

STEPS = int(os.environ.get("STEPS", "60"))


def main():
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 64)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(STEPS):  # the training loop
        x = torch.randn(128, 256, device="cuda")
        y = torch.randn(128, 64, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            output = model(x)
            loss = nn.functional.mse_loss(output, y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main()
