"""An endless synthetic text that a model can learn: a noisy walk over the vocabulary."""

from collections.abc import Iterator

import torch
from torch import Tensor

from model import Config


def batches(config: Config, batch_size: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        start = torch.randint(config.vocab_size, (batch_size, 1), generator=generator)
        strides = torch.randint(1, 4, (batch_size, config.context), generator=generator)
        text = torch.cat([start, start + strides.cumsum(dim=1)], dim=1) % config.vocab_size
        yield text[:, :-1], text[:, 1:]
