"""Trains a small classifier on synthetic digits. It is fast enough to be profiled on every save."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(784, 1024)
        self.head = nn.Linear(1024, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.features(x))
        return self.head(hidden)


def train(model: Classifier, batch_size: int = 128) -> None:
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(500):
        images, labels = torch.rand(batch_size, 784), torch.randint(10, (batch_size,))
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()  # 逆伝播 🚀
        optimizer.step()


if __name__ == "__main__":
    train(Classifier())
