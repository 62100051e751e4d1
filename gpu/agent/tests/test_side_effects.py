"""Writes of measured programs are redirected, allowed or denied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_driver import TRAINING, Agent
from side_effect_helpers import PROGRAM, changes, check_redirected, leftover_redirects, on_disk, run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mount namespaces")


def test_redirect(agent: Agent, project: Path, outside: Path, tmp_path: Path) -> None:
    check_redirected(agent, project, outside, tmp_path / "recording")


def test_allow(agent: Agent, project: Path, outside: Path, tmp_path: Path) -> None:
    out = tmp_path / "recording"
    finished = run(agent, project, PROGRAM, out, args=[str(outside)], side_effects="allow")
    assert finished["outcome"] == "complete", finished
    assert finished.get("side_effects") is None
    assert (project / "out" / "model.pt").stat().st_size > 4000
    assert (project / "by_libc.txt").read_text() == "by libc"
    assert not (project / "removed.txt").exists()
    assert (outside / "runs.log").read_text() == "a run\nanother run\n"


def test_deny(agent: Agent, project: Path, tmp_path: Path) -> None:
    before = on_disk(project)
    text = """\
import os, subprocess, sys, tempfile
errors = []
for write in (
    lambda: open("new.txt", "w"),
    lambda: os.remove("removed.txt"),
    lambda: os.mkdir("made"),
    lambda: open("by_libc.txt", "a"),
    lambda: subprocess.run(["cp", "train.py", "copied.txt"], check=True, capture_output=True),
):
    try:
        write()
    except (OSError, subprocess.CalledProcessError) as error:
        errors.append(error.errno if isinstance(error, OSError) else "cp")
if os.geteuid() == 0:
    try:
        open("/written_by_test", "w")
        errors.append("not at the root")
    except OSError:
        pass
print("SEEN", errors)
with tempfile.TemporaryFile() as file:  # Temporary files are allowed.
    file.write(b"x")
"""
    out = tmp_path / "recording"
    finished = run(agent, project, text + TRAINING + "train(1000)\n", out, side_effects="deny")
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    assert b"SEEN [30, 30, 30, 30, 'cp']" in (out / "log.txt").read_bytes()
    (project / "train.py").write_text(PROGRAM)
    assert on_disk(project) == before
    assert finished["side_effects"]["mode"] == "deny"
    assert finished["side_effects"]["changes"] == []
    assert leftover_redirects() == []


def test_caches_and_configured_folders_are_kept(
    agent: Agent, project: Path, tmp_path: Path
) -> None:
    # One cache exists before the run. The program creates the other two.
    existing, created = tmp_path / "compiled", tmp_path / "downloaded" / "hub"
    existing.mkdir()
    text = f"""\
import os
for folder in ({str(existing)!r}, {str(created)!r}, "data/cache"):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernel.bin"), "w") as file:
        file.write("kept")
open("lost.txt", "w").close()
"""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(existing), "HF_HUB_CACHE": str(created)}
    out = tmp_path / "recording"
    finished = run(
        agent,
        project,
        text + TRAINING + "train(1000)\n",
        out,
        env=env,
        side_effects="redirect",
        keep_writes=["data/cache"],
    )
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    for folder in (existing, created, project / "data" / "cache"):
        assert (folder / "kernel.bin").read_text() == "kept"
    assert changes(finished) == {"lost.txt": "created"}
    assert leftover_redirects() == []


def test_variables_cannot_keep_whole_home_folder(tmp_path: Path) -> None:
    from ridgeline_agent.side_effects.persistent_folders import kept_folders

    home = os.path.expanduser("~")
    variables = {"HF_HOME": home, "TORCH_HOME": "/", "TRITON_CACHE_DIR": str(tmp_path)}
    kept = kept_folders(["data/cache"], str(tmp_path), variables)
    assert not {home, "/", str(tmp_path)} & set(kept)
    assert {str(tmp_path / "data/cache"), os.path.join(home, ".cache")} <= set(kept)


def test_redirect_leaves_git_status_clean(
    agent: Agent, project: Path, outside: Path, tmp_path: Path
) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(project), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    (project / "module.py").write_text("x = 1\n")
    text = "import module\n" + PROGRAM
    (project / "train.py").write_text(text)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "before")
    out = tmp_path / "recording"
    finished = run(agent, project, text, out, args=[str(outside)], side_effects="redirect")
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    assert git("status", "--porcelain", "--ignored") == ""


def test_redirect_with_standby_agent(
    standby: Agent, project: Path, outside: Path, tmp_path: Path
) -> None:
    check_redirected(standby, project, outside, tmp_path / "recording")


def test_versions_do_not_share_redirected_writes(agent: Agent, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "count.txt").write_text("0")
    text = """\
with open("count.txt") as file:
    count = int(file.read())
with open("count.txt", "w") as file:
    file.write(str(count + 1))
print("COUNT", count + 1)
"""
    out = tmp_path / "recording"
    versions = [{"out": str(out / str(number)), "overlay": {}} for number in range(2)]
    finished = run(
        agent,
        folder,
        text + TRAINING + "train(1000)\n",
        out,
        versions=versions,
        side_effects="redirect",
    )
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    assert (out / "log.txt").read_text().count("COUNT 1") == 2
    assert (folder / "count.txt").read_text() == "0"
    assert changes(finished) == {"count.txt": "changed"}
    assert leftover_redirects() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_redirect_for_unprivileged_user(tmp_path: Path) -> None:
    """Covers user namespaces, which are not used when the tests run as root."""
    import codecs
    import ctypes
    import tempfile
    import traceback

    from ridgeline_agent.protocol import spec
    from ridgeline_agent.side_effects import discarded_writes, redirect

    codecs.lookup("ascii")  # The user may not have permission to read Python's files.
    with tempfile.TemporaryDirectory() as folder:
        project, home = Path(folder) / "project", Path(folder) / "home"
        for path in (project / "out", home):
            path.mkdir(parents=True)
        (project / "old").mkdir()
        for path in (project / "model.pt", project / "old" / "kept.txt"):
            path.write_text("trained")
            os.chown(path, 4321, 4321)
        os.chown(project / "old", 4321, 4321)
        (project / "out" / "of_root.txt").write_text("root")
        for path in (Path(folder), project, home, project / "out", project / "model.pt"):
            os.chown(path, 4321, 4321)
        request = {
            "op": "run", "id": 1, "out": str(project / "recording"), "root": str(project),
            "entry": {"kind": "script", "path": "train.py"}, "side_effects": "redirect",
        }  # fmt: skip
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setresgid(4321, 4321, 4321)
                os.setresuid(4321, 4321, 4321)
                # Like a process that was started by this user (PR_SET_DUMPABLE).
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
                os.environ["HOME"] = str(home)
                run_spec = spec.RunSpec.from_json(request)
                os.mkdir(run_spec.out)
                grandchild = os.fork()
                if grandchild == 0:
                    try:
                        redirect.hold("redirect", run_spec.root, run_spec.cwd, run_spec.out, ())
                        (project / "model.pt").write_text("new weights")
                        assert (project / "model.pt").read_text() == "new weights"
                        assert (project / "out" / "of_root.txt").read_text() == "root"
                        (home / ".bashrc").write_text("changed")
                        Path("/tmp/written_by_test").write_text("changed")
                        Path("/var/tmp/written_by_test").write_text("changed")
                        (project / "old").rename(project / "new")
                        assert (project / "new" / "kept.txt").read_text() == "trained"
                        # The program must not be able to unmount the overlay.
                        with pytest.raises(OSError):
                            redirect.mounts._call("umount2", str(project).encode(), 2)
                        os._exit(0)
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(1)
                assert os.waitpid(grandchild, 0)[1] == 0
                side_effects = discarded_writes.take(run_spec)
                assert side_effects is not None
                changed = {change["path"]: change["change"] for change in side_effects["changes"]}
                assert changed == {
                    "model.pt": "changed",
                    "~/.bashrc": "created",
                    "old": "removed",
                    "new/kept.txt": "created",
                }, changed
                assert side_effects["held_by"] == "kernel"
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert (project / "model.pt").read_text() == "trained"
        assert not (home / ".bashrc").exists()
        assert not Path("/tmp/written_by_test").exists()
    assert leftover_redirects(4321) == []
