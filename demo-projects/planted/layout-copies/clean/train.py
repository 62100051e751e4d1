"""Train a model that predicts words, with fixed word vectors as the output layer."""

import torch
from torch import Tensor, nn


class Scores(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.register_buffer("words", 0.1 * torch.randn(words, width))

    def forward(self, contexts: Tensor) -> Tensor:
        return self.project(contexts) @ self.words.t()


def main() -> None:
    torch.manual_seed(0)
    model = Scores(words=80_000, width=256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(200):
        contexts, words = torch.randn(8, 256), torch.randint(80_000, (8,))
        loss = nn.functional.cross_entropy(model(contexts), words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
