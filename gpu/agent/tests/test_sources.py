"""Which files count as the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline_agent.program.sources import UserCode


def test_cython_of_a_library_is_not_user_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compiled code names its source relative to the folder of its build.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.pyx").write_text("")
    user_code = UserCode(str(tmp_path), [str(tmp_path)], [], [])
    assert user_code.path("own.pyx") == "own.pyx"
    assert user_code.path("h5py/h5f.pyx") is None
    assert user_code.path("train.py") == "train.py"
