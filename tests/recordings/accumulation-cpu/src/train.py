"""Gradient accumulation: two backward passes for each step, with a transformer's encoder."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 2


class Classifier(nn.Module):
    def __init__(self, width=32, classes=5):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.encoder(x)[:, 0])


class Trainer:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self):
        for step, (inputs, labels) in enumerate(self.loader, start=1):
            loss = self.criterion(self.model(inputs), labels) / ACCUMULATE
            loss.backward()
            if step % ACCUMULATE == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()


if __name__ == "__main__":
    data = TensorDataset(torch.randn(1024, 12, 32), torch.randint(0, 5, (1024,)))
    Trainer(Classifier(), DataLoader(data, batch_size=8)).fit()
