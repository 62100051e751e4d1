"""Synthetic photographs: random noise in the shape of ImageNet images, generated on the fly."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class SyntheticImages(Dataset):
    def __init__(self, length: int, image_size: int, num_classes: int) -> None:
        self.length = length
        self.image_size = image_size
        self.num_classes = num_classes

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, self.image_size, self.image_size, generator=generator)
        image = (image - 0.45) / 0.225
        return image, index % self.num_classes
