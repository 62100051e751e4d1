"""Padding of token batches that is reported in `observed.padding`."""

from __future__ import annotations

import pytest

from observed_helpers import observed, place, record_complete

PADDED = """
    import torch
    from torch import nn
    class Net(nn.Module):
        def __init__(self, padding_idx):
            super().__init__()
            self.words = nn.Embedding(50, 4, padding_idx=padding_idx)
            self.out = nn.Linear(4, 2)
        def forward(self, tokens, attention_mask=None):
            return self.out(self.words(tokens))  # embedding
    def tokens(lengths, longest=10):
        rows = torch.randint(1, 50, (len(lengths), longest))
        for row, length in zip(rows, lengths):
            row[length:] = 0
        return rows
"""
TRAIN_PADDED = """
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        {call}.mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("batch", ["tokens([10, 4, 6])", "tokens([10, 4, 6]).t().contiguous()"])
def test_padding_by_padding_idx(batch: str) -> None:
    train = TRAIN_PADDED.format(call=f"net({batch})")
    recording = record_complete(PADDED + "    net = Net(0)" + train)
    (result,) = recording.manifest["observed"]["padding"]
    assert result.pop("at") == place(recording, "# embedding")
    assert recording.manifest["modules"][result.pop("module")]["path"] == "words"
    assert result == {"tokens": 2 * 30, "padding": 2 * 10, "by": "padding_idx"}


@pytest.mark.parametrize(
    "batch", ["tokens([3, 3, 3]).flip(1)", "tokens([9, 9, 9]).roll(4, 1)", "tokens([10, 10, 10])"]
)
def test_only_trailing_zeros_are_padding(batch: str) -> None:
    train = TRAIN_PADDED.format(call=f"net({batch})")
    (result,) = observed(PADDED + "    net = Net(0)" + train)["padding"]
    assert (result["tokens"], result["padding"]) == (60, 0)


def test_embedding_without_padding() -> None:
    result = observed(
        PADDED + "    net = Net(None)" + TRAIN_PADDED.format(call="net(tokens([3, 3]))")
    )
    assert result["padding"] == []


def test_padding_by_attention_mask() -> None:
    train = TRAIN_PADDED.format(
        call="net(tokens([10, 5]), attention_mask=(tokens([10, 5]) != 0).long())"
    )
    (result,) = observed(PADDED + "    net = Net(None)" + train)["padding"]
    assert (result["module"], result["tokens"], result["padding"]) == (0, 2 * 20, 2 * 5)
    # Also if the mask is a positional argument.
    positional = train.replace("attention_mask=", "")
    (second,) = observed(PADDED + "    net = Net(None)" + positional)["padding"]
    assert second == result and result["by"] == "mask"
    # If the embedding has a padding_idx, the mask is not counted too.
    (result,) = observed(PADDED + "    net = Net(0)" + train)["padding"]
    assert result["module"] != 0 and result["padding"] == 2 * 5


@pytest.mark.parametrize("batch", ["{0}", "{0}.t().contiguous()"])
def test_padding_without_padding_idx_and_mask(batch: str) -> None:
    call = batch.format("tokens([10, 4, 6, 5, 4])")
    recording = record_complete(
        PADDED + "    net = Net(None)" + TRAIN_PADDED.format(call=f"net({call})")
    )
    (result,) = recording.manifest["observed"]["padding"]
    assert result.pop("at") == place(recording, "# embedding")
    assert recording.manifest["modules"][result.pop("module")]["path"] == "words"
    assert result == {"tokens": 2 * 50, "padding": 2 * 21, "by": "ends"}


@pytest.mark.parametrize(
    "batch",
    [
        "tokens([10, 10, 10, 10])",
        "torch.zeros(4, 10, dtype=torch.long)",
        # The token also occurs elsewhere.
        "tokens([10, 4, 6, 5, 4]).roll(1, 1)",
        # All rows have the same length, or one of them is empty.
        "tokens([4, 4, 4, 4])",
        "tokens([10, 4, 6, 0, 4])",
        # The token differs between batches.
        "torch.where(tokens([10, 4, 6, 5, 4]) == 0, next(numbers) % 40, 49)",
        "torch.arange(10).repeat(5, 1)",
    ],
)
def test_row_ends_that_are_not_padding(batch: str) -> None:
    train = "    import itertools\n    numbers = itertools.count()\n    net = Net(None)"
    train += TRAIN_PADDED.format(call=f"net({batch})")
    assert observed(PADDED + train)["padding"] == []


def test_token_types_are_not_padding() -> None:
    net = "    net = Net(None)\n    net.words = nn.Embedding(2, 4)"
    call = "net((tokens([10, 4, 6, 5, 4]) == 0).long())"
    assert observed(PADDED + net + TRAIN_PADDED.format(call=call))["padding"] == []


def test_causal_mask_is_not_padding() -> None:
    train = TRAIN_PADDED.format(
        call="net(tokens([9, 9]), attention_mask=torch.zeros(2, 9).fill_(float('-inf')).triu(1))"
    )
    assert observed(PADDED + "    net = Net(None)" + train)["padding"] == []
