"""Descriptions of exceptions."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import agent_driver  # noqa: F401 (adds the agent to sys.path)
from ridgeline_agent.failure.exception import MAX_FRAMES, MAX_MESSAGE_CHARS, describe_failure
from ridgeline_agent.failure.facts import facts

ROOT = "/home/someone/project"


def failure_of(source: str, **names: Any) -> dict[str, Any]:
    """Runs the source as the project's `train.py` and returns its failure."""
    path = f"{ROOT}/train.py"
    try:
        exec(compile(source, path, "exec"), {"__name__": "__main__", **names})
    except BaseException as error:
        return describe_failure(error, ROOT, lambda file: 0 if file == path else None)
    raise AssertionError("the source did not raise")


def frames(failure: dict[str, Any]) -> list[tuple[int, str]]:
    return [(frame["line"], frame["name"]) for frame in failure["frames"]]


def test_exception() -> None:
    failure = failure_of("def f():\n    raise ValueError('bad')\nf()\n")
    assert frames(failure) == [(3, "<module>"), (2, "f")]
    assert (failure["type"], failure["message"], failure["kind"]) == (
        "ValueError",
        "bad",
        "exception",
    )


def test_paths_outside_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")

    def message(path: str) -> object:
        return failure_of(f"open({path!r})")["facts"]["file"]

    assert message("/home/someone/.cache/tool/a.pkl") == "~/.cache/tool/a.pkl"
    assert message("/home/someone/client/a.pkl") == "…/a.pkl"
    assert message("/home/somebody/.cache/a.pkl") == "…/a.pkl"
    assert message(f"{ROOT}/.cache/a.pkl") == ".cache/a.pkl"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("assert os.path.exists(path)", "data/train.txt"),
        ("assert os.path.isdir('data')  # The data", "data"),
        ("assert args.root.is_dir(), 'no data'", "root"),
        ("assert Path(path).exists()", None),
        ("assert not path", None),
        ("assert args.lazy.exists()", None),
    ],
)
def test_path_whose_existence_is_asserted(tmp_path: Path, line: str, expected: str | None) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import os\n"
        "from pathlib import Path\n"
        "class Options:\n"
        "    lazy = property(lambda self: print('ran') or Path('x'))\n"
        "    def __init__(self): self.root = Path('root')\n"
        "def load(path, args):\n"
        f"    {line}\n"
        "load('data/train.txt', Options())\n"
    )
    with pytest.raises(AssertionError) as raised:
        exec(compile(program.read_text(), str(program), "exec"), {"__name__": "__main__"})
    failure = describe_failure(raised.value, str(tmp_path), lambda file: None)
    assert failure["facts"]["file"] == expected  # type: ignore[index]


def test_the_code_that_uses_a_missing_name(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text(
        "import types\n"
        "class Module(types.ModuleType):\n"
        "    def __getattr__(self, name):\n"
        "        raise AttributeError(name)\n"
        "def use():\n"
        "    return Module('old').removed\n"
    )
    names: dict[str, Any] = {}
    exec(compile(library.read_text(), str(library), "exec"), names)
    failure = failure_of("use()", use=names["use"])
    assert failure["facts"]["raised_in"]["name"] == "use"


def test_library_frames_are_excluded() -> None:
    assert frames(failure_of("import json\njson.loads('{')\n")) == [(2, "<module>")]


def test_files_that_numpy_does_not_find() -> None:
    def file(message: str) -> object:
        failure = failure_of(f"raise FileNotFoundError({message!r})\n")
        return failure["facts"]["file"]

    assert file("data/ratings.txt not found.") == "data/ratings.txt"
    assert file("ratings.csv not found.") == "ratings.csv"
    assert file("Training data not found.") is None
    assert file("The data.csv was not found.") is None


def test_library_exception_type() -> None:
    assert failure_of("import json\njson.loads('{')\n")["type"] == "json.decoder.JSONDecodeError"


def test_exception_chain() -> None:
    failure = failure_of(
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error\n"
    )
    assert failure["message"] == "'k'\ncaused by ZeroDivisionError: division by zero"
    assert frames(failure) == [(4, "<module>")]


def test_suppressed_exception_chain() -> None:
    failure = failure_of(
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k') from None\n"
    )
    assert failure["message"] == "'k'"


def test_circular_exception_chain() -> None:
    failure = failure_of(
        "a, b = KeyError('a'), KeyError('b')\na.__cause__, b.__cause__ = b, a\nraise a\n"
    )
    assert failure["message"] == "'a'\ncaused by KeyError: 'b'"


def test_user_frame_of_cause() -> None:
    # A library catches an exception from a user callback and later raises its own from it.
    def outer() -> None:
        raise RuntimeError("outer")

    source = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    cause = error\n"
    names: dict[str, Any] = {}
    path = f"{ROOT}/train.py"
    exec(compile(source, path, "exec"), names)
    with pytest.raises(RuntimeError) as caught:
        outer()
    caught.value.__cause__ = names["cause"]
    failure = describe_failure(caught.value, ROOT, lambda file: 0 if file == path else None)
    assert failure["frames"] == [{"file": 0, "line": 2, "name": "<module>"}]


def test_infinite_recursion() -> None:
    failure = failure_of("def f():\n    f()\nf()\n")
    assert failure["type"] == "RecursionError"
    assert len(failure["frames"]) == MAX_FRAMES
    assert frames(failure)[0] == (3, "<module>")


def test_long_message() -> None:
    assert len(failure_of("raise ValueError('x' * 10_000_000)\n")["message"]) == MAX_MESSAGE_CHARS


def test_message_with_surrogates() -> None:
    assert failure_of("raise ValueError('a\\udc80')\n")["message"] == "a?"


def test_message_with_failing_str() -> None:
    assert failure_of("class E(Exception):\n    __str__ = None\nraise E\n")["message"] == ""


def test_paths_are_relative() -> None:
    failure = failure_of(
        f"raise OSError({ROOT + '/data/a.bin'!r}, '/etc/secret/b.bin', 'and/or')\n"
    )
    assert "data/a.bin" in failure["message"] and ROOT not in failure["message"]
    assert "/etc/secret" not in failure["message"] and "and/or" in failure["message"]


def test_library_paths_are_relative() -> None:
    library = os.path.dirname(os.__file__)
    assert failure_of(f"raise OSError({library + '/json/x.py'!r})\n")["message"] == "json/x.py"


def test_sys_exit() -> None:
    failure = failure_of("raise SystemExit(3)\n")
    assert (failure["kind"], failure["message"]) == ("exit", "the program exited with code 3")


def test_cpu_out_of_memory() -> None:
    # The message is from torch (c10/core/impl/alloc_cpu.cpp).
    text = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
    failure = failure_of(f"raise RuntimeError({text!r})\n")
    assert (failure["kind"], failure["requested_bytes"]) == ("memory", 4096)


def test_cuda_out_of_memory() -> None:
    # The message is from torch (c10/cuda/CUDACachingAllocator.cpp).
    text = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.7 GiB"
    source = "class OutOfMemoryError(RuntimeError):\n    pass\n"
    failure = failure_of(source + f"raise OutOfMemoryError({text!r})\n")
    assert (failure["kind"], failure["requested_bytes"]) == ("memory", 2684354560)


def test_python_memory_error() -> None:
    failure = failure_of("raise MemoryError\n")
    assert (failure["kind"], failure["requested_bytes"]) == ("memory", None)


def test_syntax_error_without_file() -> None:
    failure = failure_of("eval('1 +')\n")
    assert failure["kind"] == "syntax"
    assert frames(failure) == [(1, "<module>")]


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.10 names the object")
def test_module_that_nothing_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "unimported"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for attribute, expected in (("part", "unimported.part"), ("other", None)):
        with pytest.raises(AttributeError) as raised:
            getattr(importlib.import_module("unimported"), attribute)
        module = facts(raised.value, str)["module"]
        assert isinstance(module, dict) and module["not_imported"] == expected
