"""Sort bags of words, and keep what was learned about each word."""

import io

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    words = nn.EmbeddingBag(100_000, 64, sparse=True)
    model = nn.Sequential(words, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    checkpoint = io.BytesIO()

    for step in range(120):
        x, y = torch.randint(100_000, (64, 256)), torch.randint(10, (64,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            checkpoint.seek(0)
            torch.save(model.state_dict(), checkpoint)  # fault
    print(f"step {step}: loss {loss.item():.3f}, {checkpoint.tell()} bytes")


if __name__ == "__main__":
    main()
