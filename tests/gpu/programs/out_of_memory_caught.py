"""A program that finds its batch size by catching out-of-memory errors."""
# test: {"row": "out-of-memory"}

import torch
from torch import nn


def step(model, optimizer, batch_size):
    x = torch.randn(batch_size, 1024, device="cuda")
    optimizer.zero_grad(set_to_none=True)
    model(x).sum().backward()
    optimizer.step()


def main():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(600 * 2**20 / total)
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch_size, done = 1 << 18, 0
    while done < 60:
        try:
            step(model, optimizer, batch_size)
            done += 1
        except torch.OutOfMemoryError:
            batch_size //= 2
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
