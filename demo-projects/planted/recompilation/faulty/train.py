"""Train with a compiled loss whose sharpness grows from step to step."""

import torch
from torch import Tensor, nn


@torch.compile(backend="eager")
def sharpened(errors: Tensor, options: dict) -> Tensor:  # fault
    return errors.abs().pow(options["sharpness"]).mean()


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for step in range(40):
        inputs = torch.randn(256, 64)
        loss = sharpened(model(inputs) - inputs, {"sharpness": 1.5 + 0.01 * (step % 6)})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
