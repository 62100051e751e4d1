"""ResNet-50 (He et al., 2016, with the stride in the 3 x 3 convolution), SSD (Liu et al., 2016) on
its first stages, and neural collaborative filtering (He et al., 2017). Each returns its loss.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *_normed(inputs, width, 1, 1),
            nn.ReLU(inplace=True),
            *_normed(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_normed(width, outputs, 1, 1),
        )
        changes = stride != 1 or inputs != outputs
        self.short = nn.Sequential(*_normed(inputs, outputs, 1, stride)) if changes else None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        short = images if self.short is None else self.short(images)
        return functional.relu(self.body(images) + short, inplace=True)


def _normed(inputs: int, outputs: int, window: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, window, stride, padding=window // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))


def _stem() -> list[nn.Module]:
    return [*_normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]


class Classifier(nn.Module):
    """A backbone with a linear head and the loss over 1,000 classes."""

    def __init__(self, trunk: nn.Module, width: int) -> None:
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(width, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pooled = functional.adaptive_avg_pool2d(self.trunk(images), 1).flatten(1)
        scores = self.head(pooled)
        target = torch.ones(len(images), dtype=torch.long, device=images.device)
        return functional.cross_entropy(scores, target)


def resnet50() -> nn.Module:
    """ResNet-50 with its head and loss."""
    stages = [
        _stage(64, 64, 3, 1),
        _stage(256, 128, 4, 2),
        _stage(512, 256, 6, 2),
        _stage(1024, 512, 3, 2),
    ]
    return Classifier(nn.Sequential(*_stem(), *stages), 2048)


class Ssd300(nn.Module):
    """Three ResNet-50 stages, the third without stride, five smaller feature maps, 81 classes."""

    # Of each feature map: channels, and boxes per position.
    MAPS = ((1024, 4), (512, 6), (512, 6), (256, 6), (256, 4), (256, 4))

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            *_stem(), _stage(64, 64, 3, 1), _stage(256, 128, 4, 2), _stage(512, 256, 6, 1)
        )
        channels = [channels for channels, _ in self.MAPS]
        middles, last = (256, 256, 128, 128, 128), 3
        self.smaller = nn.ModuleList()
        for index, (inputs, outputs, middle) in enumerate(zip(channels, channels[1:], middles)):
            shrinks = index < last
            reduce = [nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU()]
            window = nn.Conv2d(
                middle, outputs, 3, 2 if shrinks else 1, padding=int(shrinks), bias=False
            )
            norm = [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
            self.smaller.append(nn.Sequential(*reduce, window, *norm))
        self.places = nn.ModuleList(nn.Conv2d(c, 4 * n, 3, padding=1) for c, n in self.MAPS)
        self.classes = nn.ModuleList(nn.Conv2d(c, 81 * n, 3, padding=1) for c, n in self.MAPS)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = [self.trunk(images)]
        for block in self.smaller:
            maps.append(block(maps[-1]))
        count = len(images)
        places = torch.cat([f(m).reshape(count, 4, -1) for f, m in zip(self.places, maps)], 2)
        scores = torch.cat([f(m).reshape(count, 81, -1) for f, m in zip(self.classes, maps)], 2)
        target = torch.ones(count, scores.size(2), dtype=torch.long, device=images.device)
        of_places = functional.smooth_l1_loss(places.float(), torch.zeros_like(places.float()))
        of_classes = functional.cross_entropy(scores.float(), target, reduction="none")
        # Sorting twice finds the hardest negatives.
        _, order = of_classes.detach().sort(dim=1, descending=True)
        _, rank = order.sort(dim=1)
        return of_places + (of_classes * (rank < 100)).sum() / count


class NeuralFiltering(nn.Module):
    """The users and films of MovieLens 20M: matrix factorization combined with a small network."""

    USERS, ITEMS, FACTORS, WIDTHS = 138_493, 26_744, 64, (256, 256, 128, 64)

    def __init__(self) -> None:
        super().__init__()
        wide = self.WIDTHS[0] // 2
        self.user_factors = nn.Embedding(self.USERS, self.FACTORS)
        self.item_factors = nn.Embedding(self.ITEMS, self.FACTORS)
        self.user_wide, self.item_wide = (
            nn.Embedding(self.USERS, wide),
            nn.Embedding(self.ITEMS, wide),
        )
        pairs = zip(self.WIDTHS, self.WIDTHS[1:])
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairs)
        self.head = nn.Linear(self.FACTORS + self.WIDTHS[-1], 1)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        who, what = samples[:, 0], samples[:, 0]
        factors = self.user_factors(who) * self.item_factors(what)
        hidden = torch.cat([self.user_wide(who), self.item_wide(what)], dim=1)
        for layer in self.layers:
            hidden = functional.dropout(functional.relu(layer(hidden)), 0.5)
        score = self.head(torch.cat([factors, hidden], dim=1)).float().view(-1)
        return functional.binary_cross_entropy_with_logits(score, torch.zeros_like(score))
