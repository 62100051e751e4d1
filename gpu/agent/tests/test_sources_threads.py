"""Concurrent registration of source files by several threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ridgeline_agent.patches.overlay import Overlay
from ridgeline_agent.program.sources import Sources, UserCode


def test_each_file_has_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_code = UserCode(str(tmp_path), [str(tmp_path)], [], [])
    sources = Sources(user_code, Overlay(str(tmp_path), {}))
    absolute = user_code.absolute

    def slow(filename: str) -> str:
        # Resolving links takes a while and lets other threads run.
        time.sleep(0.001)
        return absolute(filename)

    monkeypatch.setattr(user_code, "absolute", slow)
    names = [str(tmp_path / f"module_{number}.py") for number in range(20)]
    start = threading.Barrier(4)

    def register_files(first: int) -> None:
        start.wait()
        for name in names[first:] + names[:first]:
            sources.file(name)

    threads = [threading.Thread(target=register_files, args=(first,)) for first in (0, 0, 5, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    indices = [sources.file(name) for name in names]
    assert sorted(index for index in indices if index is not None) == list(range(len(names)))
    assert len(sources.files_json()) == len(names)
