"""Train on texts that are tokenized word by word, with a profiler left from last week."""

import cProfile

import torch
from torch import nn


def number(word: str) -> int:
    return len(word) * 31 % 1000


def numbers(text: list[str]) -> list[int]:
    return [number(word) for word in text]


def main() -> None:
    torch.manual_seed(0)
    texts = [["a" * (1 + (word * row) % 50) for word in range(1000)] for row in range(16)]
    model = nn.Sequential(nn.EmbeddingBag(1000, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    profiler = cProfile.Profile()
    profiler.enable()  # fault
    for step in range(200):
        x, y = torch.tensor([numbers(text) for text in texts]), torch.randint(10, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
