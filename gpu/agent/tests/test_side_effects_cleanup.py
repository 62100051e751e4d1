"""Redirected runs leave nothing behind, however they end."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent_driver import TIMEOUT_SECONDS, TRAINING, Agent
from side_effect_helpers import PROGRAM, changes, is_redirected, leftover_redirects, on_disk, run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mount namespaces")


@pytest.mark.parametrize("ending", ["1 / 0", "os.abort()", "os.kill(os.getpid(), 9)", "timeout"])
def test_redirect_of_program_that_does_not_complete(
    agent: Agent, project: Path, tmp_path: Path, ending: str
) -> None:
    before = on_disk(project)
    text = "import os, time\nopen('removed.txt', 'w').write('other')\n"
    limits: dict[str, Any] = {}
    if ending == "timeout":
        text, limits = text + "time.sleep(100)\n", {"limits": {"seconds": 2}}
    else:
        text += ending + "\n"
    out = tmp_path / "recording"
    finished = run(agent, project, text, out, side_effects="redirect", **limits)
    assert finished["outcome"] != "complete"
    assert changes(finished) == {"removed.txt": "changed"}
    (project / "train.py").write_text(PROGRAM)
    assert on_disk(project) == before
    assert leftover_redirects() == []


def test_redirect_folders_are_removed_after_agent_and_run_are_killed(
    project: Path, tmp_path: Path
) -> None:
    """The mounts are released with their processes. The next agent removes the folders."""
    before = on_disk(project)
    text = "import time\nopen('removed.txt', 'w').write('other')\nprint('WROTE')\ntime.sleep(100)\n"
    out = tmp_path / "recording"
    with Agent() as agent:
        identifier = agent.start(project, text, out=str(out), side_effects="redirect")
        started = agent.wait_for("started", id=identifier)
        while not out.joinpath("log.txt").exists() or b"WROTE" not in read_log(out):
            time.sleep(0.05)
        agent.process.kill()
        os.kill(started["pid"], 9)
        agent.process.wait()
    (project / "train.py").write_text(PROGRAM)
    assert on_disk(project) == before
    # The records that the supervisor would have read.
    records = [json.loads(path.read_text()) for path in out.glob("redirected-*.json")]
    folders = [Path(folder) for record in records for folder in record["folders"]]
    assert folders
    assert all(folder.is_dir() for folder in folders), folders
    for folder in folders:
        while is_redirected(folder):
            time.sleep(0.05)
        os.utime(folder, (time.time() - 3600, time.time() - 3600))
    with Agent():
        end = time.monotonic() + TIMEOUT_SECONDS
        while any(folder.exists() for folder in folders):
            assert time.monotonic() < end
            time.sleep(0.01)


def read_log(out: Path) -> bytes:
    return (out / "log.txt").read_bytes()


def test_forged_record_does_not_remove_files(agent: Agent, project: Path, tmp_path: Path) -> None:
    out = tmp_path / "recording"
    victim = project / "out"
    text = f"""\
import json, os
record = {{"mode": "redirect", "folders": [{str(victim)!r}, "/tmp/ridgeline-run-forged/.."],
           "layers": [[{str(project)!r}, {str(victim)!r}]]}}
with open({str(out)!r} + "/redirected-0.json", "w") as file:
    json.dump(record, file)
"""
    finished = run(agent, project, text + TRAINING + "train(1000)\n", out, side_effects="redirect")
    assert finished["outcome"] == "complete"
    assert (victim / "model.pt").read_bytes() == b"trained weights"


def test_disk_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ridgeline_agent.side_effects.discarded_writes import DiskWatch

    free_blocks = 1000
    original = os.statvfs(tmp_path)
    fields = list(original)

    def statvfs(_: object) -> os.statvfs_result:
        fields[0:2] = [1, 1]
        fields[4] = free_blocks
        return os.statvfs_result(fields)

    (tmp_path / "redirected-1.json").write_text(json.dumps({"folders": [str(tmp_path)]}))
    monkeypatch.setattr(os, "statvfs", statvfs)
    watch = DiskWatch(str(tmp_path))
    assert not watch.is_too_much()
    free_blocks = 600
    assert not watch.is_too_much()
    free_blocks = 499
    assert watch.is_too_much()
