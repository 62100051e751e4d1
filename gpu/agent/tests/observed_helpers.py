"""Records programs and reads `observed` from their manifests."""

from __future__ import annotations

from typing import Any

from recording import Recording, record

ITERATIONS = {"warmup": 3, "timed": 2, "profiled": 2}

START = """
    import torch
    from torch import nn
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    other = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    iteration_ms = 1
    def batch():
        return torch.randn(6, 4)
    def train():
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()
"""


def record_complete(source: str, files: dict[str, str] | None = None, **request: Any) -> Recording:
    recording = record(source, files, **{"iterations": ITERATIONS, **request})
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["notes"] == [], recording.manifest["notes"]
    return recording


def observed(source: str, files: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    result: dict[str, Any] = record_complete(source, files, **request).manifest["observed"]
    return result


def place(recording: Recording, mark: str) -> dict[str, int]:
    """The location of the line of `train.py` that contains the mark."""
    files = [file["path"] for file in recording.manifest["files"]]
    return {"file": files.index("train.py"), "line": recording.line_of(mark)}
