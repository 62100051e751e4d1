"""Synthetic clicks with the dimensions of MovieLens, and random negatives for each click."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Clicks(Dataset):
    def __init__(self, clicks: int, users: int, items: int, negatives: int = 4) -> None:
        generator = torch.Generator().manual_seed(0)
        user = torch.randint(users, (clicks,), generator=generator)
        item = torch.randint(items, (clicks,), generator=generator)
        noise = torch.randint(items, (clicks * negatives,), generator=generator)
        self.user = torch.cat([user, user.repeat_interleave(negatives)])
        self.item = torch.cat([item, noise])
        self.label = torch.cat([torch.ones(clicks), torch.zeros(clicks * negatives)])

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.user[index], self.item[index], self.label[index]
