"""Runs programs that write files and checks what remains on disk."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from agent_driver import TRAINING, Agent

WRITING = """\
import ctypes, glob, json, multiprocessing, os, shutil, sqlite3, subprocess, sys
import torch
OUTSIDE = sys.argv[1]
seen = {}

def write_in_child(path):
    with open(path, "w") as file:
        file.write("from child")

if __name__ == "__main__":
    # Overwrite an existing checkpoint, from C++.
    torch.save({"w": torch.zeros(1000)}, "out/model.pt")
    seen["saved"] = torch.load("out/model.pt")["w"].sum().item()
    # Bypass Python's functions.
    libc = ctypes.CDLL(None)
    descriptor = libc.open(b"by_libc.txt", os.O_WRONLY | os.O_TRUNC)
    libc.write(descriptor, b"by libc", 7)
    libc.close(descriptor)
    seen["libc"] = open("by_libc.txt").read()
    # Write from another program.
    subprocess.run(["cp", "train.py", "copied.txt"], check=True)
    seen["copied"] = open("copied.txt").read() == open("train.py").read()
    # Write from a library.
    table = sqlite3.connect("rows.db")
    table.execute("delete from rows")
    table.commit()
    seen["rows"] = table.execute("select count(*) from rows").fetchone()[0]
    table.close()
    # Write from a spawned process.
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=write_in_child, args=("spawned.txt",))
    child.start()
    child.join()
    seen["spawned"] = open("spawned.txt").read()
    # Remove, create, rename, and append to a file outside of the project.
    os.remove("removed.txt")
    seen["removed"] = os.path.exists("removed.txt")
    os.makedirs("made/deep")
    os.makedirs("out/empty")
    os.rename("old_name.txt", "new_name.txt")
    os.rename("old_folder", "new_folder")
    shutil.rmtree("tree")
    with open(os.path.join(OUTSIDE, "runs.log"), "a") as file:
        file.write("another run\\n")
    seen["log"] = open(os.path.join(OUTSIDE, "runs.log")).read()
    # Open for writing without changes.
    open("untouched.txt", "r+").close()
    seen["names"] = sorted(os.listdir("."))
    print("SEEN " + json.dumps(seen))
"""

PROGRAM = WRITING + "    " + TRAINING.replace("\n", "\n    ") + "train(1000)\n"


def on_disk(*folders: Path) -> dict[str, bytes | None]:
    """The paths and the contents of all files in these folders."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for folder in folders
        for path in sorted(folder.rglob("*"))
    }


def run(agent: Agent, folder: Path, text: str, out: Path, **keys: Any) -> dict[str, Any]:
    """Runs the text with the recording in `out`."""
    return agent.run(folder, text, **{"out": str(out), **keys})


def seen_by_program(out: Path) -> dict[str, Any]:
    lines = (out / "log.txt").read_text().splitlines()
    printed = [line for line in lines if line.startswith("SEEN ")]
    assert printed, lines
    seen: dict[str, Any] = json.loads(printed[-1][len("SEEN ") :])
    return seen


def changes(finished: dict[str, Any]) -> dict[str, str]:
    """The reported changes by path."""
    return {change["path"]: change["change"] for change in finished["side_effects"]["changes"]}


def check_redirected(agent: Agent, project: Path, outside: Path, out: Path, **keys: Any) -> None:
    before = on_disk(project, outside)
    finished = run(
        agent, project, PROGRAM, out, args=[str(outside)], side_effects="redirect", **keys
    )
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    assert on_disk(project, outside) == before
    seen = seen_by_program(out)
    names = seen.pop("names")
    assert seen == {
        "saved": 0.0,
        "libc": "by libc",
        "copied": True,
        "rows": 0,
        "spawned": "from child",
        "removed": False,
        "log": "a run\nanother run\n",
    }
    assert {"made", "new_name.txt", "new_folder"} <= set(names)
    assert not {"removed.txt", "old_name.txt", "old_folder", "tree"} & set(names)
    listed = changes(finished)
    log_path = next(path for path in listed if path.endswith("runs.log"))
    assert listed.pop(log_path) == "changed"
    listed.pop("new_folder", None)
    listed.pop("new_folder/inside.txt", None)
    assert listed == {
        "out/model.pt": "changed",
        "by_libc.txt": "changed",
        "copied.txt": "changed",
        "rows.db": "changed",
        "spawned.txt": "changed",
        "removed.txt": "removed",
        "old_name.txt": "removed",
        "new_name.txt": "created",
        "old_folder": "removed",
        "tree": "removed",
    }
    side_effects = finished["side_effects"]
    assert (side_effects["mode"], side_effects["held_by"], side_effects["open"]) == (
        "redirect",
        "kernel",
        [],
    )
    assert side_effects["count"] == len(side_effects["changes"])
    by_path = {change["path"]: change for change in side_effects["changes"]}
    assert by_path["out/model.pt"]["bytes"] > 4000
    assert by_path[log_path]["outside"]
    assert b"Not written to disk: " in (out / "log.txt").read_bytes()
    assert not list(out.glob("redirected-*"))
    assert leftover_redirects() == []


def leftover_redirects(user: int | None = None) -> list[str]:
    """The user's temporary folders that no run uses, and mounts that are visible outside of a run.

    Concurrent runs of other tests remove their folders shortly after they exit.
    """
    end = time.monotonic() + 10
    while (leftovers := unused_redirects(user)) and time.monotonic() < end:
        time.sleep(0.05)
    return leftovers


def unused_redirects(user: int | None = None) -> list[str]:
    user = os.geteuid() if user is None else user
    bases = (Path.home() / ".cache/ridgeline/redirected", Path("/var/tmp"), Path("/tmp"))
    folders = [path for base in bases for path in base.glob("ridgeline-run-*")]
    leftovers = [
        str(path) for path in folders if is_owned_by(path, user) and not is_redirected(path)
    ]
    table = Path("/proc/self/mountinfo").read_text()
    return leftovers + [line for line in table.splitlines() if "ridgeline-run-" in line]


def is_owned_by(folder: Path, user: int) -> bool:
    try:
        return folder.lstat().st_uid == user
    except FileNotFoundError:
        return False


def is_redirected(folder: Path) -> bool:
    """Whether a process of the folder's run is alive, or the folder has just been removed."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return not folder.exists()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
