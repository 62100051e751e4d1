"""Unit tests of CUDA graph support that need no GPU. See test_cuda_programs.py for the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ridgeline_agent.iterations.finder import BACKWARD, MODULE, OPTIMIZER, IterationFinder, Verdict
from ridgeline_agent.process.run import _visible
from ridgeline_agent.record.capture_traces import _add_events
from ridgeline_agent.record.device_activity import has_activity
from ridgeline_agent.record.patches.cuda_graphs import MENTIONS_CAPTURE, Capture

OPTIMIZERS = {1}


def replay(finder: IterationFinder, signal: str, symbol: object = "graph") -> Verdict:
    return finder.replayed(signal, symbol, OPTIMIZERS, set(OPTIMIZERS))


def test_replay_of_full_step_is_an_iteration() -> None:
    finder = IterationFinder(None)
    finder.optimizer_created()
    assert [replay(finder, OPTIMIZER) for _ in range(3)] == [Verdict.BOUNDARY] * 3
    assert finder.found_by == OPTIMIZER


def test_replays_of_two_graphs_form_one_iteration() -> None:
    finder = IterationFinder(None)
    for _ in range(3):
        for symbol in ("critic", "generator"):
            replay(finder, OPTIMIZER, symbol)
    assert finder.signals_per_iteration == 2


def test_iteration_with_replayed_backward_ends_at_optimizer_step() -> None:
    finder = IterationFinder(None)
    finder.optimizer_created()
    for _ in range(3):
        assert replay(finder, BACKWARD) is Verdict.NOTHING
        assert finder.stepped(1, "line", set(OPTIMIZERS)) is Verdict.BOUNDARY


def test_reset_discards_signals_before_capture() -> None:
    finder = IterationFinder(None)
    for _ in range(3):
        finder.stepped(1, "warm-up", set(OPTIMIZERS))
    finder.reset()
    assert finder.found_by is None and not finder.seen
    assert replay(finder, OPTIMIZER) is Verdict.BOUNDARY


def test_capture_keeps_strongest_signal() -> None:
    capture = Capture(0, False)
    assert capture.strongest_signal == MODULE
    capture.went_backward()
    assert capture.strongest_signal == BACKWARD
    capture.stepped(object())
    capture.went_backward()
    assert capture.strongest_signal == OPTIMIZER


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        (b"g = torch.cuda.CUDAGraph()", True),
        (b"with torch.cuda.graph(g):", True),
        (b"torch.cuda.make_graphed_callables(net, (x,))", True),
        (b"import networkx\ngraph = networkx.Graph()", False),
        (b"from torch_geometric.nn import GraphConv", False),
    ],
)
def test_mentions_capture(text: bytes, mentions: bool) -> None:
    assert bool(MENTIONS_CAPTURE.search(text)) == mentions


# Ends like a trace written by Kineto.
TRACE = """\
{
  "schemaVersion": 1,
  "traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "args": {"Input Dims": [[2, 2]]}},
  {"name": "Record Window End", "ph": "i", "s": "g", "ts": 1}
  ],
  "traceName": "trace.json",
  "displayTimeUnit": "ms"
}
"""


def test_capture_events_are_added_to_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(TRACE)
    _add_events(str(trace), ['{"name": "captured"}', '{"name": "too"}'])
    loaded = json.loads(trace.read_text())
    assert [event["name"] for event in loaded["traceEvents"][-2:]] == ["captured", "too"]
    assert loaded["displayTimeUnit"] == "ms"


def test_truncated_trace_is_not_modified(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": []}')
    with pytest.raises(ValueError, match="is truncated"):
        _add_events(str(trace), ["{}"])
    assert trace.read_text() == '{"traceEvents": []}'


def test_has_activity(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(TRACE)
    assert not has_activity(str(trace))
    # The category spans two chunks.
    trace.write_text(" " * (2**20 - 8) + '"cat": "gpu_memcpy"')
    assert has_activity(str(trace))


@pytest.mark.parametrize(
    ("variable", "index", "visible"),
    [
        (None, 1, "1"),
        ("", 0, ""),
        ("3,2", 1, "2"),
        (" 3 , 2 ", 0, "3"),
        ("3", 1, ""),
        ("0,-1,1", 1, ""),
        ("GPU-8932f937,MIG-GPU-8932f937/1/0", 1, "MIG-GPU-8932f937/1/0"),
    ],
)
def test_visible_device(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, index: int, visible: str
) -> None:
    if variable is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert _visible(index) == visible
