"""Training on the second GPU only, which is not the current device."""
# test: {"gpus": 2}

import os

import torch
from torch import nn

STEPS = int(os.environ.get("STEPS", "60"))


def main():
    device = torch.device("cuda:1")
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):  # the training loop
        x = torch.randn(128, 256, device=device)
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
