"""Alignment of ranks, with two threads as ranks and an in-memory store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from ridgeline_agent.record import alignment
from ridgeline_agent.record.alignment import Alignment


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[Alignment]:
    store = dist.HashStore()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    return [Alignment(True), Alignment(True)]


def test_total_sums_over_ranks(ranks: list[Alignment]) -> None:
    with ThreadPoolExecutor(2) as threads:
        for name, values in [("more", (1, 2)), ("more", (0, 5)), ("timing", (0, 0))]:
            both = threads.map(Alignment.total, ranks, (name, name), values)
            assert list(both) == [sum(values)] * 2


def test_missing_rank_is_waited_for_only_once(
    ranks: list[Alignment], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ranks
    monkeypatch.setattr(alignment, "MEETING_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(Exception) as timed_out:
        first.total("timing", 1)
    assert "alone" not in str(timed_out.value)
    # The other rank is late or at another alignment point. No rank waits from now on.
    monkeypatch.setattr(alignment, "MEETING_TIMEOUT_SECONDS", 3600.0)
    with pytest.raises(RuntimeError, match="one continued without the others"):
        second.total("profiling", 1)
    assert [rank.total("profiling", 1) for rank in ranks] == [0, 0]


def test_disabled_alignment_does_not_wait(ranks: list[Alignment]) -> None:
    assert Alignment(False).total("more", 3) == 3
