"""Forward and backward captured as a CUDA graph. The optimizer steps outside of it."""
# test: {"row": "cuda-graphs"}

import os

import torch
from torch import nn

WARM_UP = int(os.environ.get("WARM_UP", "3"))
STEPS = int(os.environ.get("STEPS", "60"))


def build():
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 10))


def main():
    torch.manual_seed(0)
    model = build().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    static_x = torch.randn(256, 256, device="cuda")
    static_y = torch.randint(10, (256,), device="cuda")

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(static_x), static_y).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)

    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = model(static_x)
        loss = nn.functional.cross_entropy(logits, static_y)
        loss.backward()

    for _ in range(STEPS):  # the training loop
        static_x.copy_(torch.randn(256, 256))
        graph.replay()
        optimizer.step()


if __name__ == "__main__":
    main()
