"""Batches from a DataLoader with worker processes and pinned memory."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.full((256,), float(index)), index % 10


def main():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Samples(), batch_size=64, num_workers=2, pin_memory=True)
    for x, y in loader:  # the training loop
        x = x.cuda(non_blocking=True)
        y = y.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
