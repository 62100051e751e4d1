"""Classify images of several aspect ratios, where each batch has a single shape."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Images of similar area. Consecutive images have the same shape."""

    def __init__(self, batch: int, side: int) -> None:
        self.batch, self.side = batch, side

    def __len__(self) -> int:
        return 96 * self.batch

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        height = self.side + index // self.batch % 8
        width = self.side**2 // height
        return torch.rand(3, height, width, dtype=torch.bfloat16), index % 16


def network(channels: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(inplace=True)]
    for _ in range(8):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(inplace=True)]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 16)]
    return nn.Sequential(*layers, *pool)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, side, channels = (64, 56, 128) if device == "cuda" else (4, 24, 16)
    loader = DataLoader(
        Pictures(batch, side),
        batch_size=batch,
        num_workers=2,
        persistent_workers=True,
        pin_memory=True,
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
