"""A small residual network, SGD with momentum, a schedule, and a helper that trains one epoch."""

import torch
import torch.nn.functional as F
from resnet import SmallResNet
from torch.utils.data import DataLoader, TensorDataset


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = SmallResNet(classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    for epoch in range(10):
        loss = train_epoch(model, loader, optimizer, scheduler)
        print(f"epoch {epoch}: {loss:.3f}")


if __name__ == "__main__":
    main()
