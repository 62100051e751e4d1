"""Unit tests of parts that need no process: requests, the log and the protocol's lines."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import agent_driver  # noqa: F401 (adds the agent to sys.path)
from ridgeline_agent.process.run_log import RunLog
from ridgeline_agent.protocol import channel
from ridgeline_agent.protocol.spec import Iterations, RunSpec, SpecError

REQUEST: dict[str, Any] = {
    "op": "run",
    "id": 7,
    "out": "/out",
    "root": "/project",
    "entry": {"kind": "script", "path": "/project/train.py"},
}


def test_request_defaults() -> None:
    spec = RunSpec.from_json(REQUEST)
    assert (spec.cwd, spec.user_code, spec.device) == ("/project", ("/project",), "auto")
    assert spec.iterations == Iterations(2, 3, None, 2, None)
    assert spec.limits.seconds is None


def test_null_means_default() -> None:
    nulls = dict.fromkeys(("args", "env", "device", "iterations", "batch_size", "eager", "limits"))
    assert RunSpec.from_json({**REQUEST, **nulls}) == RunSpec.from_json(REQUEST)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", None),
        ("id", -1),
        ("id", True),
        ("id", 1e9),
        ("out", ""),
        ("root", "a\0b"),
        ("root", "\ud800"),
        ("entry", None),
        ("entry", {"kind": "notebook", "path": "x"}),
        ("entry", {"kind": "module"}),
        ("args", "--epochs"),
        ("args", [1]),
        ("env", {"A=B": "1"}),
        ("env", {"": "1"}),
        ("env", {"A": 1}),
        ("env", {"A": "\0"}),
        ("device", "cuda:"),
        ("device", "cuda:-1"),
        ("device", "cuda:²"),
        ("device", "cuda:99999999999"),
        ("iterations", {"timed": 0, "profiled": 0}),
        ("iterations", {"signals": {"every": 0}}),
        ("earlier", ["/a"] * 17),
        ("iterations", {"timed_at_most": 0}),
        ("iterations", {"warmup": 10**100}),
        ("iterations", {"found_by": "unknown"}),
        ("batch_size", 0),
        ("eager", 1),
        ("limits", {"seconds": 0}),
        ("limits", {"seconds": float("nan")}),
        ("limits", {"seconds": float("inf")}),
        ("limits", {"memory_bytes": 0.5}),
        ("limits", [1]),
    ],
)
def test_invalid_request(key: str, value: object) -> None:
    with pytest.raises(SpecError, match=key):
        RunSpec.from_json({**REQUEST, key: value})


@pytest.mark.parametrize("request_", [None, 3, [], "run", {}])
def test_not_a_request(request_: object) -> None:
    with pytest.raises(SpecError):
        RunSpec.from_json(request_)


def write_log(folder: Path, max_bytes: int, *pieces: bytes) -> bytes:
    log = RunLog(str(folder), max_bytes)
    for piece in pieces:
        log.write(piece)
    log.close()
    return (folder / "log.txt").read_bytes()


def test_short_log_is_complete(tmp_path: Path) -> None:
    assert write_log(tmp_path, 1000, b"one\n", b"\xff\0", b"two\n") == b"one\n\xff\0two\n"


@pytest.mark.parametrize("max_bytes", [0, 1, 79, 81, 200, 1000])
@pytest.mark.parametrize("piece", [1, 7, 64, 5000])
def test_long_log_is_truncated(tmp_path: Path, max_bytes: int, piece: int) -> None:
    text = b"".join(b"%d\n" % number for number in range(1000))
    pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
    log = write_log(tmp_path, max_bytes, *pieces)
    assert len(log) <= max(max_bytes, 80)
    if max_bytes >= 200:
        head, _, tail = log.partition(b"\n[... ")
        count, _, tail = tail.partition(b" bytes left out ...]\n")
        assert text.startswith(head) and text.endswith(tail)
        assert len(head) + int(count) + len(tail) == len(text)


def test_read_objects_skips_invalid_lines() -> None:
    read_end, write_end = os.pipe()
    lines = [b'{"a": 1}', b"[1]", b"{", b"[" * 100_000, b"\xff", b"", b'{"a": 2}', b'{"a": 3']

    def write() -> None:
        channel.write_all(write_end, b"\n".join(lines))
        os.close(write_end)

    writer = threading.Thread(target=write)
    writer.start()
    assert list(channel.read_objects(read_end)) == [{"a": 1}, {"a": 2}]
    writer.join()
    os.close(read_end)


def test_too_long_line_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_LINE_BYTES", 1000)
    read_end, write_end = os.pipe()
    channel.write_all(write_end, b'{"a": "' + b"x" * 5000)
    channel.write_all(write_end, b'"}\n{"a": 1}\n')
    os.close(write_end)
    assert list(channel.read_objects(read_end)) == [{"a": 1}]
    os.close(read_end)


def test_sender_detects_replaced_file_descriptor(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    sender = channel.Sender(write_end)
    sender.send({"a": "\ud800 é"})
    assert json.loads(os.read(read_end, 1000)) == {"a": "\ud800 é"}
    with open(tmp_path / "other", "wb") as other:
        os.dup2(other.fileno(), write_end)
        with pytest.raises(OSError):
            sender.send({})
    assert (tmp_path / "other").read_bytes() == b""
    os.close(read_end)
    os.close(write_end)
