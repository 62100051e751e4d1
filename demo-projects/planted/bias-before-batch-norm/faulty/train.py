"""Train a small perceptron with batch norm."""

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 512),  # fault
        nn.BatchNorm1d(512),
        nn.ReLU(inplace=True),
        nn.Linear(512, 8),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(200):
        inputs, labels = torch.randn(1024, 32), torch.randint(8, (1024,))
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
