"""Train with a compiled function that smooths the losses so far."""

import torch
from torch import Tensor, nn


@torch.compile(backend="eager")
def smoothed(losses: list[Tensor]) -> Tensor:  # fault
    return torch.stack(losses).mean()


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    losses: list[Tensor] = []
    for _ in range(40):
        inputs = torch.randn(256, 64)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        average = smoothed(losses)
    print(f"average loss {average.item():.3f}")


if __name__ == "__main__":
    main()
