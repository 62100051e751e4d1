"""Synthetic sentence pairs with 15% of the tokens masked."""

import torch
from torch import Tensor
from torch.utils.data import Dataset

from model import BertConfig

PAD, MASK, FIRST_WORD = 0, 1, 2
IGNORED = -100


class MaskedSentences(Dataset):
    def __init__(self, length: int, config: BertConfig) -> None:
        self.length = length
        self.config = config

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        config = self.config
        generator = torch.Generator().manual_seed(index)
        words = torch.randint(
            FIRST_WORD, config.vocab_size, (config.max_length,), generator=generator
        )
        masked = torch.rand(config.max_length, generator=generator) < 0.15
        tokens = words.masked_fill(masked, MASK)
        tokens[config.max_length - index % 8 :] = PAD
        return {
            "tokens": tokens,
            "segments": (torch.arange(config.max_length) > config.max_length // 2).long(),
            "labels": words.masked_fill(~masked | (tokens == PAD), IGNORED),
        }
