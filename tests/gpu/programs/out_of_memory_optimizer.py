"""A model whose first optimizer step runs out of memory for the optimizer state."""
# test: {"fails": "in the optimizer step", "row": "out-of-memory"}

import torch
from torch import nn


def main():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(300 * 2**20 / total)
    model = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(6)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(60):
        x = torch.randn(8, 2048, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        model(x).sum().backward()
        optimizer.step()  # fault


if __name__ == "__main__":
    main()
