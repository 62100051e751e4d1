"""Train a model to predict words, and report its average confidence."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 8192
BATCH = 64


def main() -> None:
    torch.manual_seed(0)
    features = torch.randn(100 * BATCH, 64)
    words = torch.randint(VOCABULARY, (100 * BATCH,))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, VOCABULARY))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    for epoch in range(2):
        confidence = 0.0
        batches = zip(features.split(BATCH), words.split(BATCH))
        for count, (x, y) in enumerate(batches, start=1):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            confidence += F.softmax(logits, dim=-1).amax(dim=-1).mean()  # fault
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, confidence {confidence / count:.3f}")


if __name__ == "__main__":
    main()
