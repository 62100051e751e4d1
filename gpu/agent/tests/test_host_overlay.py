"""Programs see unsaved text in place of files, and the files do not change."""

from __future__ import annotations

import compileall
import json
import zlib
from pathlib import Path
from typing import Any

from agent_driver import Agent, log, manifest

TRAINING = """\
import inspect, io, os, pathlib, sys, traceback
import torch
from settings import size
import package.inner as inner
for name in ("config.toml", b"config.toml", pathlib.Path("config.toml")):
    print("open", open(name).read(), open(name).name == os.fspath(name))
print("io", io.open("config.toml", "rb").read(), pathlib.Path("config.toml").read_text())
print("os", os.read(os.open("config.toml", os.O_RDONLY), 100))
print("source", inspect.getsource(inner.double).splitlines()[-1].strip())
try:
    inner.fail()
except ValueError:
    print("line", "raise ValueError  # unsaved too" in traceback.format_exc())
print("main", inspect.getsource(sys.modules["__main__"]).splitlines()[0])
model = torch.nn.Linear(4, size)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    inner.double(model(torch.randn(8, 4))).sum().backward()
    optimizer.step()
"""
INNER = """\
def double(x):
    return 2 * x  # unsaved
def fail():
    raise ValueError  # unsaved too
"""


def create_project(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "inner.py").write_text("def double(x):\n    return x\n")
    (folder / "settings.py").write_text("size = 2\n")
    (folder / "config.toml").write_text("size = 2")


OVERLAY = {
    "package/inner.py": INNER,
    "settings.py": "size = 3\n",
    "config.toml": "größe = 3",
}


def run(agent: Agent, folder: Path, text: str, overlay: dict[str, str], **keys: Any) -> str:
    finished = agent.run(folder, text, overlay=overlay, **keys)
    printed = log(folder).decode()
    assert finished["outcome"] == "complete", (finished, printed)
    return printed


def test_overlay_applies_to_imports_files_and_tracebacks(agent: Agent, tmp_path: Path) -> None:
    create_project(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    printed = run(agent, tmp_path, TRAINING, OVERLAY).splitlines()
    assert printed[:8] == [
        "open größe = 3 True",
        "open größe = 3 True",
        "open größe = 3 True",
        f"io {'größe = 3'.encode()!r} größe = 3",
        f"os {'größe = 3'.encode()!r}",
        "source return 2 * x  # unsaved",
        "line True",
        "main import inspect, io, os, pathlib, sys, traceback",
    ]
    assert {path: path.read_bytes() for path in before} == before
    recorded = manifest(tmp_path)
    weight = next(part for module in recorded["modules"] for part in module["parameters"])
    assert weight["elements"] == 3 * 4


def test_recording_refers_to_overlay_text(agent: Agent, tmp_path: Path) -> None:
    create_project(tmp_path)
    run(agent, tmp_path, TRAINING, {**OVERLAY, "train.py": "\n# unsaved\n" + TRAINING})
    recorded = manifest(tmp_path)
    checksums = {file["path"]: file["line_crc"] for file in recorded["files"]}
    assert checksums["package/inner.py"][1] == zlib.crc32(b"return 2 * x  # unsaved")
    assert checksums["train.py"][1] == zlib.crc32(b"# unsaved")
    assert recorded["loop"]["line"] == TRAINING.splitlines().index("for _ in range(5):") + 3


def test_next_run_without_overlay_sees_files(agent: Agent, tmp_path: Path) -> None:
    create_project(tmp_path)
    text = TRAINING.replace("inner.fail()", "raise ValueError")
    run(agent, tmp_path, text, OVERLAY)
    assert "open size = 2 True" in run(agent, tmp_path, text, {})


def test_bytecode_is_not_used_or_written(agent: Agent, tmp_path: Path) -> None:
    create_project(tmp_path)
    text = TRAINING.replace("inner.fail()", "raise ValueError")
    compileall.compile_dir(tmp_path, quiet=1)
    caches = {path: path.read_bytes() for path in tmp_path.rglob("*.pyc")}
    assert len(caches) == 3
    assert "source return 2 * x  # unsaved" in run(agent, tmp_path, text, OVERLAY)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.pyc")} == caches


def test_module_that_exists_only_in_overlay(agent: Agent, tmp_path: Path) -> None:
    overlay = {
        "fresh.py": "import inspect, sys\nsize = 3\nprint(inspect.getsource(sys.modules[__name__]))"
    }
    text = "from fresh import size\nimport torch\n" + TRAINING[TRAINING.index("model =") :]
    text = text.replace("inner.double", "")
    assert "size = 3" in run(agent, tmp_path, text, overlay)


def test_overlay_applies_to_module_entry(agent: Agent, tmp_path: Path) -> None:
    create_project(tmp_path)
    (tmp_path / "package" / "train.py").write_text("raise SystemExit('overlay was not used')")
    identifier = agent.start_entry(
        tmp_path,
        {"kind": "module", "name": "package.train"},
        overlay={**OVERLAY, "package/train.py": TRAINING},
    )
    assert agent.wait_for("finished", id=identifier)["outcome"] == "complete", log(tmp_path)


def test_overlay_applies_to_provider(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "provider.py"
    path.write_text("this is not Python")
    text = """\
import torch
def skyline_model_provider():
    return torch.nn.Linear(4, 2)
def skyline_input_provider(batch_size=8):
    return (torch.randn(batch_size, 4),)
def skyline_iteration_provider(model):
    return lambda x: model(x).sum().backward()
"""
    identifier = agent.start_entry(
        tmp_path,
        {"kind": "provider", "path": str(path)},
        overlay={"provider.py": text},
        batch_size=16,
    )
    assert agent.wait_for("finished", id=identifier)["outcome"] == "complete", log(tmp_path)
    assert manifest(tmp_path)["batch"]["size"] == 16


def test_program_reads_its_own_writes(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("1")
    text = """\
import json, torch
assert json.load(open("state.json")) == 2
with open("state.json", "w") as file:
    file.write("3")
assert json.load(open("state.json")) == 3
print("passed")
"""
    finished = agent.run(tmp_path, text, overlay={"state.json": "2"})
    assert finished["outcome"] == "short"
    assert log(tmp_path).decode().split() == ["passed"]
    assert json.loads((tmp_path / "state.json").read_text()) == 3


def test_invalid_overlays_are_rejected(agent: Agent, tmp_path: Path) -> None:
    for overlay in ({"/etc/hosts": "x"}, {"": "x"}, {"a.py": 1}, ["a.py"], {"a\0.py": "x"}):
        finished = agent.run(tmp_path, TRAINING, overlay=overlay)
        assert finished["outcome"] == "exited"
        assert "overlay" in finished["message"]


def test_syntax_error_in_overlay_reports_line(agent: Agent, tmp_path: Path) -> None:
    create_project(tmp_path)
    finished = agent.run(tmp_path, TRAINING, overlay={**OVERLAY, "settings.py": "size = 2\nsize ="})
    assert finished["outcome"] == "failed"
    recorded = manifest(tmp_path)
    frame = recorded["failure"]["frames"][-1]
    assert recorded["files"][frame["file"]]["path"] == "settings.py"
    assert frame["line"] == 2
