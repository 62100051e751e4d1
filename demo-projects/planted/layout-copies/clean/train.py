"""Learn from the weighted means of signals."""

import torch
from torch import Tensor, nn


class Scores(nn.Module):
    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 10)
        self.register_buffer("window", torch.hann_window(length).unsqueeze(1))

    def forward(self, signals: Tensor) -> Tensor:
        return self.score((signals * self.window).mean(dim=1))


def main() -> None:
    torch.manual_seed(0)
    model = Scores(length=256, width=128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    signals, labels = torch.randn(64, 256, 128), torch.randint(10, (64,))
    for _ in range(200):
        loss = nn.functional.cross_entropy(model(signals), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
