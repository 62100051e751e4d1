"""Train with a compiled function that smooths the losses so far."""

import torch
from torch import Tensor, nn


@torch.compile(backend="eager")
def smoothed(average: Tensor, loss: Tensor) -> Tensor:
    return average + 0.1 * (loss - average)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    average = torch.zeros(())
    for _ in range(40):
        inputs = torch.randn(256, 64)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = smoothed(average, loss.detach())
    print(f"average loss {average.item():.3f}")


if __name__ == "__main__":
    main()
