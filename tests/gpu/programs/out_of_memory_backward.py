"""A backward pass that runs out of memory, after a forward pass that just fits."""
# test: {"fails": "in the backward pass (batch size 2048)", "row": "out-of-memory"}

import torch
from torch import nn


def main():
    model = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(6)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = torch.cuda.get_device_properties(0).total_memory
    for _ in range(60):
        x = torch.randn(2048, 2048, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).sum()
        torch.cuda.empty_cache()
        limit = torch.cuda.memory_reserved() + 2**23
        torch.cuda.set_per_process_memory_fraction(limit / total)
        loss.backward()  # fault
        optimizer.step()


if __name__ == "__main__":
    main()
