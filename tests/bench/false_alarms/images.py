"""Train an image classifier of timm, and validate it after each epoch."""

import argparse

import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pictures(count: int, size: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, 3, size, size), torch.randint(10, (count,)))


def train(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    model.train()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    total = 0.0
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(images)
    return total / len(loader.dataset)


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    model.eval()
    correct = 0
    for images, labels in loader:
        predicted = model(images.to(device)).argmax(dim=1)
        correct += (predicted == labels.to(device)).sum().item()
    return correct / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = timm.create_model(args.model, num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    pinned = device.type == "cuda"
    training = DataLoader(pictures(48, args.size), batch_size=4, shuffle=True, pin_memory=pinned)
    validation = DataLoader(pictures(8, args.size), batch_size=4, pin_memory=pinned)
    for epoch in range(args.epochs):
        loss = train(model, training, optimizer, device)
        accuracy = validate(model, validation, device)
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
