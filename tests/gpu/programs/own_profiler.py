"""A program that runs torch.profiler itself during its whole training."""

import os

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = int(os.environ.get("STEPS", "60"))


def main():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=1, active=4, repeat=2),
    ) as profiler:
        for _ in range(STEPS):  # the training loop
            x = torch.randn(128, 256, device="cuda")
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            profiler.step()
    print(len(profiler.key_averages()))


if __name__ == "__main__":
    main()
