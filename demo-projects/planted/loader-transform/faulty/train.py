"""Train on sheared images, in which each row is shifted a little further than the one above."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sheared(Dataset):
    def __init__(self) -> None:
        self.pictures = torch.rand(2880, 48, 48)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = self.pictures[index].clone()
        for row in range(48):
            picture[row] = picture[row].roll(row * (index % 5) // 4)  # fault
        return picture, index % 10


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(Sheared(), batch_size=48, shuffle=True)
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
