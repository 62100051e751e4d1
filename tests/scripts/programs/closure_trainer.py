"""In the manner of Lightning: forward and backward run inside `optimizer.step(closure)`."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)  # forward

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Trainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, model, loader):
        optimizer = model.configure_optimizers()
        for _ in range(self.max_epochs):
            for batch in loader:  # loop
                self.optimizer_step(model, optimizer, batch)

    def optimizer_step(self, model, optimizer, batch):
        def closure():
            optimizer.zero_grad()
            loss = model.training_step(batch)
            loss.backward()  # backward
            return loss

        optimizer.step(closure=closure)  # step


if __name__ == "__main__":
    data = TensorDataset(torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
    Trainer(max_epochs=4).fit(LitModel(), DataLoader(data, batch_size=128, shuffle=True))
