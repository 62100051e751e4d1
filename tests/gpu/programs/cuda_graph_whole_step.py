"""A whole training step captured as one CUDA graph, as in PyTorch's documentation."""
# test: {"row": "cuda-graphs"}

import os

import torch
from torch import nn

WARM_UP = int(os.environ.get("WARM_UP", "3"))
STEPS = int(os.environ.get("STEPS", "60"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(256, 1024)
        self.narrow = nn.Linear(1024, 256)

    def forward(self, x):
        hidden = self.wide(x)
        hidden = torch.relu(hidden)
        return self.narrow(hidden)


def main():
    device = torch.device("cuda")
    model = Net().to(device)
    loss_function = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    static_input = torch.randn(512, 256, device=device)
    static_target = torch.randn(512, 256, device=device)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_function(model(static_input), static_target)
            loss.backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        output = model(static_input)
        loss = loss_function(output, static_target)
        loss.backward()
        optimizer.step()

    inputs = [torch.randn(512, 256) for _ in range(4)]
    targets = [torch.randn(512, 256) for _ in range(4)]
    for step in range(STEPS):  # the training loop
        static_input.copy_(inputs[step % 4])
        static_target.copy_(targets[step % 4])
        graph.replay()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
