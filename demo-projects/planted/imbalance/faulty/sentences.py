"""Sentences of many lengths, in batches of one length each."""

import torch


def sentences(count=640):
    """Tokens, the shortest sentences first."""
    generator = torch.Generator().manual_seed(0)
    lengths = [32 + 160 * number // count for number in range(count)]
    return [torch.randint(0, 1000, (length,), generator=generator) for length in lengths]


def batches(texts, rank, ranks, size=8):
    """This rank's batches: its part of the sentences, again and again."""
    part = len(texts) // ranks
    own = texts[rank * part : (rank + 1) * part]
    for _ in range(10):
        for first in range(0, len(own) - size + 1, size):
            group = own[first : first + size]
            yield torch.stack([text[: len(group[0])] for text in group])
