"""Tests that the bundle of `tests/gpu/run` does not identify the machine, its user or files."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest
from bundle import Bundle

USER, HOST = "mallory-the-tester", "secret-host-17"
HOME = f"/home/{USER}"
IDENTIFYING = [USER, HOST, HOME, "/srv/private", "token-4711", "import os  # the source"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user and a machine with known names."""
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, USER)
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setenv("SECRET", "token-4711")
    monkeypatch.setattr("socket.gethostname", lambda: f"{HOST}.example.org")
    return tmp_path


def recording(folder: Path, *, compressed: bool) -> Path:
    """A recording with identifying text everywhere it might occur."""
    folder.mkdir()
    manifest = {
        "files": [{"path": "train.py"}],
        "notes": [f"{HOME}/project/train.py failed on {HOST}"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "log.txt").write_text("import os  # the source\nSECRET=token-4711\n")
    trace = {"name": "aten::mm", "at": f"/srv/private/{USER}/model.py(3): forward", "by": USER}
    data = json.dumps(trace).encode()
    if compressed:
        (folder / "trace.json.gz").write_bytes(gzip.compress(data))
    else:
        (folder / "trace.json").write_bytes(data)
    (folder / "lines.bin").write_bytes(f"\0\1{USER}\0".encode())
    return folder


def members(file: Path) -> dict[str, bytes]:
    """Returns the decompressed contents of a bundle."""
    with tarfile.open(file) as archive:
        entries = archive.getmembers()
        for entry in entries:
            assert (entry.uname, entry.gname, entry.uid, entry.mtime) == ("", "", 0, 0)
        read = {entry.name: archive.extractfile(entry).read() for entry in entries}
    return {
        name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in read.items()
    }


@pytest.mark.parametrize("compressed", [False, True])
def test_the_bundle_has_no_names_paths_or_source(machine: Path, compressed: bool):
    file = machine / "bundle.tar.gz"
    bundle = Bundle(file)
    bundle.text(
        "page.txt", f"FAIL recording: {HOME}/x/y: [Errno 2] '/srv/private/a b/c' on {HOST}\n"
    )
    bundle.text("checks.json", json.dumps({"measured": f"C:\\\\Users\\\\{USER}\\\\x, by {USER}"}))
    bundle.recording("gpt", recording(machine / "gpt", compressed=compressed))
    bundle.close()
    found = members(file)
    assert set(found) == {"page.txt", "checks.json", "gpt/manifest.json", "gpt/trace.json.gz"}
    for name, data in found.items():
        for text in IDENTIFYING:
            assert text.encode() not in data, f"{text} is in {name}: {data!r}"
    json.loads(found["checks.json"])
    json.loads(found["gpt/manifest.json"])
    assert json.loads(found["gpt/trace.json.gz"])["name"] == "aten::mm"


def test_text_without_identifying_data_is_unchanged(machine: Path):
    file = machine / "bundle.tar.gz"
    bundle = Bundle(file)
    text = "1/2 of 3 GB/s at train.py:12, model/block.py, void f<int, 4>(float*) // 10%"
    bundle.text("page.txt", text)
    bundle.close()
    assert members(file)["page.txt"].decode() == text


def test_large_recordings_are_left_out_and_listed(machine: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bundle.LARGEST_MEMBER", 10)
    bundle = Bundle(machine / "bundle.tar.gz")
    bundle.text("page.txt", "more than ten bytes")
    bundle.close()
    assert bundle.left_out == ["page.txt"]
    assert members(machine / "bundle.tar.gz") == {}
