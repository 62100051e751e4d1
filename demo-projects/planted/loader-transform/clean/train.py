"""Train on sheared images, in which each row is shifted a little further than the one above."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def sheared(pictures: torch.Tensor) -> torch.Tensor:
    """Shears all images at once, before training."""
    row, column = torch.arange(48)[:, None], torch.arange(48)
    shift = row * (torch.arange(len(pictures)) % 5)[:, None, None] // 4
    return pictures.gather(2, (column - shift) % 48)


def main() -> None:
    torch.manual_seed(0)
    pictures = sheared(torch.rand(2880, 48, 48))
    data = TensorDataset(pictures, torch.arange(2880) % 10)
    loader = DataLoader(data, batch_size=48, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48 * 48, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
