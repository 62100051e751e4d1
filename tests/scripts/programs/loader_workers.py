"""Two worker processes, persistent, a custom collate, dictionaries for batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return {"x": torch.full((32,), float(index)), "y": index % 2}


def collate(rows):
    return {
        "x": torch.stack([row["x"] for row in rows]),
        "y": torch.tensor([row["y"] for row in rows]),
    }


def main():
    loader = DataLoader(
        Pairs(), batch_size=64, num_workers=2, persistent_workers=True, collate_fn=collate
    )
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.RMSprop(model.parameters())
    for _ in range(3):
        for batch in loader:  # loop
            loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])  # forward
            optimizer.zero_grad()
            loss.backward()  # backward
            optimizer.step()  # step


if __name__ == "__main__":
    main()
