"""Train an image classifier in 16-bit precision."""

import torch
from torch import nn


def network(channels: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(inplace=True)]
    for _ in range(8):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(inplace=True)]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 16)]
    return nn.Sequential(*layers, *pool)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, size, channels = (64, 56, 256) if device == "cuda" else (4, 16, 16)
    model = network(channels).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for _ in range(200):
        pictures = torch.randn(batch, 3, size, size, device=device, dtype=torch.bfloat16)
        labels = torch.randint(16, (batch,), device=device)
        loss = nn.functional.cross_entropy(model(pictures), labels)  # fault
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
