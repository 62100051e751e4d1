"""Classify images of a fixed size in 16-bit precision."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.benchmark = True


def network(channels: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(inplace=True)]
    for _ in range(8):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(inplace=True)]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 16)]
    return nn.Sequential(*layers, *pool)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, size, channels = (64, 56, 256) if device == "cuda" else (4, 24, 16)
    pictures = torch.rand(64 * batch, 3, size, size, dtype=torch.bfloat16)
    data = TensorDataset(pictures, torch.randint(16, (len(pictures),)))
    loader = DataLoader(
        data, batch_size=batch, num_workers=2, persistent_workers=True, pin_memory=True
    )
    model = network(channels).to(device, torch.bfloat16, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for epoch in range(4):
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
