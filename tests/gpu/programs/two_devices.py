"""A model with layers on two GPUs of one process."""
# test: {"gpus": 2}

import os

import torch
from torch import nn

STEPS = int(os.environ.get("STEPS", "60"))


class TwoDevices(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 1024).to("cuda:0")
        self.second = nn.Linear(1024, 64).to("cuda:1")

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        hidden = hidden.to("cuda:1")
        return self.second(hidden)


def main():
    model = TwoDevices()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):  # the training loop
        x = torch.randn(128, 256, device="cuda:0")
        y = torch.randn(128, 64, device="cuda:1")
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
