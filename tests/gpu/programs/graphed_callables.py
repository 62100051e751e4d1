"""Two parts of a model turned into CUDA graphs by make_graphed_callables."""
# test: {"row": "cuda-graphs"}

import os

import torch
from torch import nn

STEPS = int(os.environ.get("STEPS", "60"))


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.up = nn.Linear(size, 4 * size)
        self.down = nn.Linear(4 * size, size)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.up(x))
        return x + self.down(hidden)


def main():
    first, second = Block(128).cuda(), Block(128).cuda()
    head = nn.Linear(128, 10).cuda()
    parameters = [*first.parameters(), *second.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    sample = torch.randn(64, 128, device="cuda")
    hidden = torch.randn(64, 128, device="cuda", requires_grad=True)
    first, second = torch.cuda.make_graphed_callables((first, second), ((sample,), (hidden,)))

    for _ in range(STEPS):  # the training loop
        x = torch.randn(64, 128, device="cuda")
        y = torch.randint(10, (64,), device="cuda")
        optimizer.zero_grad(set_to_none=True)
        x = first(x)
        x = second(x)
        loss = nn.functional.cross_entropy(head(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
