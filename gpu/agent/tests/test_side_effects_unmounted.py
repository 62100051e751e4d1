"""Redirected writes where mounting is not permitted, as in many containers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_driver import TRAINING, Agent
from side_effect_helpers import PROGRAM, changes, leftover_redirects, on_disk, run, seen_by_program

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mount namespaces")


# Denies mounts and Landlock with a seccomp filter, as in a container (PR_SET_NO_NEW_PRIVS 38,
# PR_SET_SECCOMP 22). System call numbers depend on the architecture.
PYTHON_WITH_SECCOMP = """\
#!{python}
import ctypes, os, struct, sys
numbers = {numbers}
filter = [(0x20, 0, 0, 0)]  # load the system call number
for number in numbers:
    filter += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]  # EPERM
filter.append((0x06, 0, 0, 0x7fff0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in filter))
program = struct.pack("HxxxxxxP", len(filter), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
UNSHARE = {"x86_64": 272, "aarch64": 97}.get(os.uname().machine, 272)
LANDLOCK = 444


@pytest.fixture(scope="module", params=["landlock", "python"])
def agent_without_mounts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """An agent that cannot mount, and the mechanism that it uses instead."""
    numbers = [UNSHARE] if request.param == "landlock" else [UNSHARE, LANDLOCK]
    python = tmp_path_factory.mktemp("unmounted") / "python"
    python.write_text(PYTHON_WITH_SECCOMP.format(python=sys.executable, numbers=numbers))
    python.chmod(0o755)
    with Agent(python=str(python)) as agent:
        yield agent, request.param


WRITING_WITH_PYTHON = """\
import json, os, shutil, sqlite3, subprocess, sys
from pathlib import Path
import torch
torch.save({"w": torch.zeros(1000)}, "out/model.pt")
seen = {"saved": torch.load("out/model.pt")["w"].sum().item()}
Path("by_libc.txt").write_text("by Python")
seen["written"] = open("by_libc.txt").read()
with open("copied.txt", "a") as file:
    file.write("more")
seen["appended"] = Path("copied.txt").read_text()
table = sqlite3.connect("rows.db")
table.execute("delete from rows")
table.commit()
seen["rows"] = table.execute("select count(*) from rows").fetchone()[0]
table.close()
os.remove("removed.txt")
seen["removed"] = [os.path.exists("removed.txt"), "removed.txt" in os.listdir(".")]
os.makedirs("made/deep")
Path("made/deep/new.txt").touch()
os.rename("old_name.txt", "new_name.txt")
os.replace("made/deep/new.txt", "spawned.txt")
seen["replaced"] = Path("spawned.txt").read_text()
os.rename("old_folder", "new_folder")
seen["moved"] = Path("new_folder/inside.txt").read_text()
shutil.rmtree("tree")
seen["tree"] = os.path.isdir("tree")
with open(os.path.join(sys.argv[1], "runs.log"), "a") as file:
    file.write("another run\\n")
seen["walked"] = [name for _, _, names in os.walk("made") for name in names]
seen["listed"] = sorted(entry.name for entry in os.scandir("."))
command = [sys.executable, "-S", "-c", "open('untouched.txt', 'w')"]
seen["other program"] = subprocess.run(command, capture_output=True).returncode
print("SEEN " + json.dumps(seen))
"""


def test_redirect_without_mounts(
    agent_without_mounts: tuple[Agent, str], project: Path, outside: Path, tmp_path: Path
) -> None:
    agent, held_by = agent_without_mounts
    before = on_disk(project, outside)
    out = tmp_path / "recording"
    text = WRITING_WITH_PYTHON + TRAINING + "train(1000)\n"
    finished = run(agent, project, text, out, args=[str(outside)], side_effects="redirect")
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    seen = seen_by_program(out)
    names = seen.pop("listed")
    # Landlock also applies to other programs, unlike the patched Python functions.
    assert (seen.pop("other program") == 1) == (held_by == "landlock")
    assert seen == {
        "saved": 0.0,
        "written": "by Python",
        "appended": "original\nmore",
        "rows": 0,
        "removed": [False, False],
        "replaced": "",
        "moved": "original\n",
        "tree": False,
        "walked": [],
    }
    assert {"made", "new_name.txt", "new_folder", "train.py"} <= set(names)
    assert not {"removed.txt", "old_name.txt", "old_folder", "tree"} & set(names)
    (project / "train.py").write_text(PROGRAM)
    after = on_disk(project, outside)
    if held_by == "python":
        del after[str(project / "untouched.txt")], before[str(project / "untouched.txt")]
    assert after == before
    side_effects = finished["side_effects"]
    assert side_effects["held_by"] == held_by
    reported = changes(finished)
    assert reported["out/model.pt"] == "changed"
    assert reported["removed.txt"] == "removed"
    assert reported["new_name.txt"] == "created"
    assert any(path.endswith("runs.log") for path in reported)
    assert leftover_redirects() == []


def test_deny_without_mounts(
    agent_without_mounts: tuple[Agent, str], project: Path, tmp_path: Path
) -> None:
    agent, held_by = agent_without_mounts
    text = """\
import os
denied = 0
for write in (lambda: open("by_libc.txt", "w"), lambda: os.remove("removed.txt")):
    try:
        write()
    except OSError:
        denied += 1
print("DENIED", denied)
"""
    out = tmp_path / "recording"
    text += TRAINING + "train(1000)\n"
    before = on_disk(project)
    finished = run(agent, project, text, out, side_effects="deny")
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    assert b"DENIED 2" in (out / "log.txt").read_bytes()
    assert finished["side_effects"]["held_by"] == held_by
    (project / "train.py").write_text(PROGRAM)
    assert on_disk(project) == before
