"""Conversion of Dynamo's compilation metrics to `observed.recompilations`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ridgeline_agent.record.observed import recompilations


def metrics(number: int, microseconds: int, fail_type: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        compile_id=f"0/{number}",
        fail_type=fail_type,
        dynamo_cumulative_compile_time_us=microseconds,
        co_filename="train.py",
        co_name="loss",
        recompile_reason="a size",
    )


def test_failed_compilations_only_count_as_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first is not a recompilation. The last one hits the recompilation limit.
    compilations = [
        metrics(0, 500),
        metrics(1, 20),
        metrics(2, 30),
        metrics(3, 4, "FailOnRecompileLimitHit"),
    ]
    monkeypatch.setattr(recompilations, "_compilations", lambda: iter(compilations))
    monkeypatch.setattr(recompilations, "_function", lambda *_: (0, 7))
    monkeypatch.setattr(recompilations, "_reason", lambda *_: "a size")
    unused: Any = None
    assert recompilations.recompilations_json(unused, []) == [
        {"at": {"file": 0, "line": 7}, "count": 2, "time_ns": 54_000, "reason": "a size"}
    ]
    # A failed compilation alone does not count as a recompilation.
    monkeypatch.setattr(
        recompilations, "_compilations", lambda: iter([compilations[0], compilations[3]])
    )
    assert recompilations.recompilations_json(unused, []) == []


def test_compilations_of_the_first_iteration_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compilations = [metrics(number, number) for number in range(3)]
    monkeypatch.setattr(recompilations, "_compilations", lambda: iter(compilations))
    monkeypatch.setattr(recompilations, "_function", lambda *_: (0, 7))
    monkeypatch.setattr(recompilations, "_reason", lambda *_: "a size")
    first = recompilations.compilations_so_far()
    unused: Any = None
    assert recompilations.recompilations_json(unused, [], first) == []
    compilations.append(metrics(3, 3))
    assert recompilations.recompilations_json(unused, [], first) == [
        {"at": {"file": 0, "line": 7}, "count": 1, "time_ns": 3000, "reason": "a size"}
    ]
