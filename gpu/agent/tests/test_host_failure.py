"""How exceptions are written down."""

from __future__ import annotations

import os
from typing import Any

import pytest

import agent_driver  # noqa: F401 (it puts the agent on the path)
from ridgeline_agent.failure.exception import MAX_FRAMES, MAX_MESSAGE_CHARS, describe_failure

ROOT = "/home/someone/project"


def check(source: str, **names: Any) -> dict[str, Any]:
    """Runs the source as the project's `train.py`; the failure."""
    path = f"{ROOT}/train.py"
    try:
        exec(compile(source, path, "exec"), {"__name__": "__main__", **names})
    except BaseException as error:
        return describe_failure(error, ROOT, lambda file: 0 if file == path else None)
    raise AssertionError("the source raises nothing")


def lines(failure: dict[str, Any]) -> list[tuple[int, str]]:
    return [(frame["line"], frame["name"]) for frame in failure["frames"]]


def test_an_exception() -> None:
    failure = check("def f():\n    raise ValueError('bad')\nf()\n")
    assert lines(failure) == [(3, "<module>"), (2, "f")]
    assert (failure["type"], failure["message"], failure["kind"]) == (
        "ValueError",
        "bad",
        "exception",
    )


def test_frames_of_libraries_are_left_out() -> None:
    assert lines(check("import json\njson.loads('{')\n")) == [(2, "<module>")]


def test_the_type_of_a_library() -> None:
    assert check("import json\njson.loads('{')\n")["type"] == "json.decoder.JSONDecodeError"


def test_a_chain() -> None:
    failure = check(
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error\n"
    )
    assert failure["message"] == "'k'\ncaused by ZeroDivisionError: division by zero"
    assert lines(failure) == [(4, "<module>")]


def test_a_chain_that_is_hidden() -> None:
    failure = check(
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k') from None\n"
    )
    assert failure["message"] == "'k'"


def test_a_chain_that_is_a_ring() -> None:
    failure = check(
        "a, b = KeyError('a'), KeyError('b')\na.__cause__, b.__cause__ = b, a\nraise a\n"
    )
    assert failure["message"] == "'a'\ncaused by KeyError: 'b'"


def test_the_users_frame_of_a_cause() -> None:
    # A library catches what the user's callback raised, and raises its own from elsewhere.
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


def test_endless_recursion() -> None:
    failure = check("def f():\n    f()\nf()\n")
    assert failure["type"] == "RecursionError"
    assert len(failure["frames"]) == MAX_FRAMES
    assert lines(failure)[0] == (3, "<module>")


def test_a_long_message() -> None:
    assert len(check("raise ValueError('x' * 10_000_000)\n")["message"]) == MAX_MESSAGE_CHARS


def test_a_message_that_is_no_unicode() -> None:
    assert check("raise ValueError('a\\udc80')\n")["message"] == "a?"


def test_a_message_that_cannot_be_made() -> None:
    assert check("class E(Exception):\n    __str__ = None\nraise E\n")["message"] == ""


def test_paths_are_relative() -> None:
    failure = check(f"raise OSError({ROOT + '/data/a.bin'!r}, '/etc/secret/b.bin', 'and/or')\n")
    assert "data/a.bin" in failure["message"] and ROOT not in failure["message"]
    assert "/etc/secret" not in failure["message"] and "and/or" in failure["message"]


def test_paths_of_libraries() -> None:
    library = os.path.dirname(os.__file__)
    assert check(f"raise OSError({library + '/json/x.py'!r})\n")["message"] == "json/x.py"


def test_sys_exit() -> None:
    failure = check("raise SystemExit(3)\n")
    assert (failure["kind"], failure["message"]) == ("exit", "the program exited with code 3")


def test_memory_of_the_cpu() -> None:
    # The text is torch's own (c10/core/impl/alloc_cpu.cpp).
    text = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
    failure = check(f"raise RuntimeError({text!r})\n")
    assert (failure["kind"], failure["requested_bytes"]) == ("memory", 4096)


def test_memory_of_a_gpu() -> None:
    # The text is torch's own (c10/cuda/CUDACachingAllocator.cpp).
    text = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.7 GiB"
    source = "class OutOfMemoryError(RuntimeError):\n    pass\n"
    failure = check(source + f"raise OutOfMemoryError({text!r})\n")
    assert (failure["kind"], failure["requested_bytes"]) == ("memory", 2684354560)


def test_memory_of_python() -> None:
    failure = check("raise MemoryError\n")
    assert (failure["kind"], failure["requested_bytes"]) == ("memory", None)


def test_a_syntax_error_without_a_file() -> None:
    failure = check("eval('1 +')\n")
    assert failure["kind"] == "syntax"
    assert lines(failure) == [(1, "<module>")]
