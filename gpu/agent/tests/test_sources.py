"""Which files count as the user's."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ridgeline_agent.patches.overlay import Overlay
from ridgeline_agent.program.sources import Sources, UserCode, line_checksums


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


def test_modules_that_import_themselves_on_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise ImportError(name)

    file = tmp_path / "own.py"
    file.write_text("x = 1\n")
    own = types.ModuleType("own")
    own.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "no_module", object())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "own", own)
    user_code = UserCode(str(tmp_path), [str(tmp_path)], [], ["lazy"])
    sources = Sources(user_code, Overlay(str(tmp_path), {}))
    sources.read_texts(2**63)
    number = sources.file(str(file))
    assert number is not None
    assert sources.text(number) == b"x = 1\n"


def test_text_in_another_encoding_is_read_as_editors_read_it() -> None:
    text = "# -*- coding: latin-1 -*-\nréseau = 1\n".encode("latin-1")
    as_shown = text.decode("utf-8", "replace")
    assert "\ufffd" in as_shown
    assert line_checksums(text) == line_checksums(as_shown.encode())
