"""The terminal size that programs see."""

from __future__ import annotations

import os

import pytest

from ridgeline_agent.patches.terminal_size import fake_terminal_size


def test_fake_terminal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "popen", os.popen)
    fake_terminal_size()
    rows, columns = os.popen("stty size", "r").read().split()
    assert (int(rows), int(columns)) == (24, 80)
    with os.popen("echo other") as other:
        assert other.read() == "other\n"
