"""Sentences of varying length, several of which are packed into each row."""

import torch


def sentences(count=640):
    """Sentences as bytes, sorted by length. Most are short."""
    generator = torch.Generator().manual_seed(0)
    lengths = [64 + 1000 * number**2 // count**2 for number in range(count)]
    return [torch.randint(0, 256, (length,), generator=generator) for length in lengths]


def batches(texts, rank, ranks, size=8):
    """The batches of this rank: its share of the sentences in random order, repeated endlessly."""
    own = texts[rank::ranks]
    rows = len(own) // size
    for _ in range(10):
        for first in range(rows):
            yield torch.cat(own[first::rows]).unsqueeze(0)
