"""Recordings are readable only by the user, regardless of the program's umask."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from agent_driver import TRAINING, Agent


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file modes")
def test_recording_is_private(agent: Agent, tmp_path: Path) -> None:
    text = "import os\nos.umask(0)\nopen('own.txt', 'w').close()\n" + TRAINING + "train(20)\n"
    finished = agent.run(tmp_path, text)
    assert finished["outcome"] == "complete", finished
    out = tmp_path / "out"
    names = {path.name for path in out.iterdir()}
    assert {"manifest.json", "trace.json", "lines.bin", "log.txt"} <= names
    for path in [out, *out.rglob("*")]:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        assert mode & 0o077 == 0, f"{path.name}: {mode:o}"
    # The program's own files keep their mode.
    assert stat.S_IMODE((tmp_path / "own.txt").stat().st_mode) == 0o666
