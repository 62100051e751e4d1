"""Recompilations and graph breaks of compiled programs."""

from __future__ import annotations

import re

import pytest
import torch

from observed_helpers import START, observed, place, record_complete
from ridgeline_agent.patches.hooks import compiles_with


def test_recompilations_and_graph_breaks() -> None:
    recording = record_complete(
        START
        + """
    @torch.compile(backend="eager", dynamic=False)
    def forward(x):  # recompiled
        y = net(x)
        print("a line")  # break
        return y.relu()
    size = 3
    while True:
        size = min(size + 1, 6)
        optimizer.zero_grad()
        forward(torch.randn(size, 4)).mean().backward()
        optimizer.step()
    """
    )
    (recompilation,) = recording.manifest["observed"]["recompilations"]
    assert recompilation["at"] == place(recording, "# recompiled")
    assert recompilation["count"] == 2 and recompilation["time_ns"] > 0
    assert "size mismatch" in recompilation["reason"]
    (graph_break,) = recording.manifest["observed"]["graph_breaks"]
    assert graph_break["at"] == place(recording, "# break")
    assert graph_break["count"] == 3 and "print" in graph_break["reason"]
    assert "a line" not in str(recording.manifest["observed"])


def test_frames_of_graph_break() -> None:
    recording = record_complete(
        START
        + """
    def watch(y):
        if y.max().item() > 3:  # break
            y = y * 2
        return y
    @torch.compile(backend="eager")
    def forward(x):
        return watch(net(x)).relu()
    while True:
        optimizer.zero_grad()
        forward(torch.randn(3, 4)).mean().backward()
        optimizer.step()
    """
    )
    graph_break, *_ = recording.manifest["observed"]["graph_breaks"]
    assert graph_break["at"] == place(recording, "# break")
    ran = {event.get("name", "") for event in recording.trace()["traceEvents"]}
    regions = {re.match(r"Torch-Compiled Region: (\d+)/", name) for name in ran}
    numbers = {int(region[1]) for region in regions if region}
    # Since torch 2.5, the trace contains Dynamo's frame numbers.
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5):
        # `watch`, the rest of `watch`, and the rest of `forward`, whose first frame is 0.
        assert len(numbers) >= 3 and set(graph_break["frames"]) == numbers - {0}


def test_recorder_does_not_affect_compiled_module() -> None:
    recording = record_complete(
        START
        + """
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net
        def forward(self, x):
            x = self.inner(x)
            print("broken")
            return self.inner(x.repeat(1, 2))
    compiled = torch.compile(Two(), backend="eager")
    while True:
        optimizer.zero_grad()
        compiled(torch.randn(3, 4)).mean().backward()
        optimizer.step()
    """
    )
    ran = {event.get("name", "") for event in recording.trace()["traceEvents"]}
    regions = {re.match(r"Torch-Compiled Region: (\d+)/", name) for name in ran}
    # The code before the graph break and after it. Older versions of torch cannot skip the
    # recorder's function or do not report frame numbers.
    if compiles_with is not None:
        assert {int(region[1]) for region in regions if region} == {0, 1}


@pytest.mark.parametrize("compiled", ["torch.compile(net, backend='eager')", "net"])
def test_compilation_without_recompilation(compiled: str) -> None:
    result = observed(
        START
        + f"""
    compiled = {compiled}
    net.compile(backend="eager")
    while True:
        optimizer.zero_grad()
        compiled(batch()).mean().backward()
        optimizer.step()
    """
    )
    assert result["recompilations"] == [] and result["graph_breaks"] == []
    assert result["evaluations"] == []
