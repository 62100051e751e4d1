"""A measured run leaves the disk as it was, whatever the program writes with."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent_driver import TIMEOUT_SECONDS, TRAINING, Agent

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mount namespaces")

WRITING = """\
import ctypes, glob, json, multiprocessing, os, shutil, sqlite3, subprocess, sys
import torch
OUTSIDE = sys.argv[1]
seen = {}

def write_in_child(path):
    with open(path, "w") as file:
        file.write("of the child")

if __name__ == "__main__":
    # Over a checkpoint that is there, by C++.
    torch.save({"w": torch.zeros(1000)}, "out/model.pt")
    seen["saved"] = torch.load("out/model.pt")["w"].sum().item()
    # Past all of Python's own functions.
    libc = ctypes.CDLL(None)
    descriptor = libc.open(b"by_libc.txt", os.O_WRONLY | os.O_TRUNC)
    libc.write(descriptor, b"of libc", 7)
    libc.close(descriptor)
    seen["libc"] = open("by_libc.txt").read()
    # By another program.
    subprocess.run(["cp", "train.py", "copied.txt"], check=True)
    seen["copied"] = open("copied.txt").read() == open("train.py").read()
    # By a library.
    table = sqlite3.connect("rows.db")
    table.execute("delete from rows")
    table.commit()
    seen["rows"] = table.execute("select count(*) from rows").fetchone()[0]
    table.close()
    # By a process that is started afresh.
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=write_in_child, args=("spawned.txt",))
    child.start()
    child.join()
    seen["spawned"] = open("spawned.txt").read()
    # Removed, made, renamed, and appended to outside of the project.
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
    # Opened for writing, and left as it was.
    open("untouched.txt", "r+").close()
    seen["names"] = sorted(os.listdir("."))
    print("SEEN " + json.dumps(seen))
"""

PROGRAM = WRITING + "    " + TRAINING.replace("\n", "\n    ") + "train(1000)\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with work in it that no run may change."""
    import sqlite3

    folder = tmp_path / "project"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "model.pt").write_bytes(b"of weeks of training")
    for name in ("by_libc.txt", "copied.txt", "spawned.txt", "removed.txt", "old_name.txt"):
        (folder / name).write_text("of the person\n")
    (folder / "untouched.txt").write_text("of the person\n")
    for name in ("old_folder", "tree"):
        (folder / name).mkdir()
        (folder / name / "inside.txt").write_text("of the person\n")
    table = sqlite3.connect(folder / "rows.db")
    table.execute("create table rows (value)")
    table.executemany("insert into rows values (?)", [(one,) for one in range(5)])
    table.commit()
    table.close()
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of another project."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "runs.log").write_text("a run\n")
    return folder


def on_disk(*folders: Path) -> dict[str, bytes | None]:
    """Everything in these folders, to the byte."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for folder in folders
        for path in sorted(folder.rglob("*"))
    }


def run(agent: Agent, folder: Path, text: str, out: Path, **keys: Any) -> dict[str, Any]:
    """Runs the text with its recording outside of the project."""
    return agent.run(folder, text, **{"out": str(out), **keys})


def seen_by_program(out: Path) -> dict[str, Any]:
    import json

    lines = (out / "log.txt").read_text().splitlines()
    said = [line for line in lines if line.startswith("SEEN ")]
    assert said, lines
    seen: dict[str, Any] = json.loads(said[-1][len("SEEN ") :])
    return seen


def changes(finished: dict[str, Any]) -> dict[str, str]:
    """What is listed, by path."""
    return {one["path"]: one["change"] for one in finished["side_effects"]["changes"]}


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
        "libc": "of libc",
        "copied": True,
        "rows": 0,
        "spawned": "of the child",
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
        "made/deep": "created",
        "out/empty": "created",
        "old_folder": "removed",
        "tree": "removed",
    }
    told = finished["side_effects"]
    assert (told["mode"], told["held_by"], told["open"]) == ("redirect", "kernel", [])
    assert told["count"] == len(told["changes"])
    by_path = {one["path"]: one for one in told["changes"]}
    assert by_path["out/model.pt"]["bytes"] > 4000
    assert by_path[log_path]["outside"]
    assert b"Not written to disk: " in (out / "log.txt").read_bytes()
    assert not list(out.glob("redirected-*"))
    assert left_behind() == []


def left_behind(user: int | None = None) -> list[str]:
    """What stays of throw-away folders of this user that no run holds, and mounts that show outside
    of a run. Runs of other tests that go on beside this one remove theirs a moment after their end.
    """
    ends = time.monotonic() + 10
    while (found := unheld(user)) and time.monotonic() < ends:
        time.sleep(0.05)
    return found


def unheld(user: int | None = None) -> list[str]:
    user = os.geteuid() if user is None else user
    bases = (Path.home() / ".cache/ridgeline/redirected", Path("/var/tmp"), Path("/tmp"))
    folders = [path for base in bases for path in base.glob("ridgeline-run-*")]
    found = [str(path) for path in folders if is_of(path, user) and not is_redirected(path)]
    table = Path("/proc/self/mountinfo").read_text()
    return found + [line for line in table.splitlines() if "ridgeline-run-" in line]


def is_of(folder: Path, user: int) -> bool:
    try:
        return folder.lstat().st_uid == user
    except FileNotFoundError:
        return False


def is_redirected(folder: Path) -> bool:
    """Whether a process of its run lives, or it has just gone."""
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


def test_the_disk_stays_as_it_was(
    agent: Agent, project: Path, outside: Path, tmp_path: Path
) -> None:
    check_redirected(agent, project, outside, tmp_path / "recording")


def test_allow_writes(agent: Agent, project: Path, outside: Path, tmp_path: Path) -> None:
    out = tmp_path / "recording"
    finished = run(agent, project, PROGRAM, out, args=[str(outside)], side_effects="allow")
    assert finished["outcome"] == "complete", finished
    assert finished.get("side_effects") is None
    assert (project / "out" / "model.pt").stat().st_size > 4000
    assert (project / "by_libc.txt").read_text() == "of libc"
    assert not (project / "removed.txt").exists()
    assert (outside / "runs.log").read_text() == "a run\nanother run\n"


def test_deny_refuses(agent: Agent, project: Path, tmp_path: Path) -> None:
    before = on_disk(project)
    text = """\
import os, subprocess, sys, tempfile
refused = []
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
        refused.append(error.errno if isinstance(error, OSError) else "cp")
if os.geteuid() == 0:
    try:
        open("/left_by_a_test", "w")
        refused.append("not at the root")
    except OSError:
        pass
print("SEEN", refused)
with tempfile.TemporaryFile() as file:  # What is temporary is not the person's.
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
    assert left_behind() == []


def test_caches_and_named_folders_are_kept(agent: Agent, project: Path, tmp_path: Path) -> None:
    """One cache is there before the run; the other two the program makes."""
    there, made = tmp_path / "compiled", tmp_path / "downloaded" / "hub"
    there.mkdir()
    text = f"""\
import os
for folder in ({str(there)!r}, {str(made)!r}, "data/cache"):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernel.bin"), "w") as file:
        file.write("kept")
open("lost.txt", "w").close()
"""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(there), "HF_HUB_CACHE": str(made)}
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
    for folder in (there, made, project / "data" / "cache"):
        assert (folder / "kernel.bin").read_text() == "kept"
    assert changes(finished) == {"lost.txt": "created"}
    assert left_behind() == []


def test_a_variable_cannot_keep_the_whole_home_folder(tmp_path: Path) -> None:
    from ridgeline_agent.side_effects.persistent_folders import kept_folders

    home = os.path.expanduser("~")
    variables = {"HF_HOME": home, "TORCH_HOME": "/", "TRITON_CACHE_DIR": str(tmp_path)}
    kept = kept_folders(["data/cache"], str(tmp_path), variables)
    assert not {home, "/", str(tmp_path)} & set(kept)
    assert {str(tmp_path / "data/cache"), os.path.join(home, ".cache")} <= set(kept)


def test_git_sees_no_change(agent: Agent, project: Path, outside: Path, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    def git(*words: str) -> str:
        import subprocess

        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(project), *identity, *words]
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


def test_in_standby(standby: Agent, project: Path, outside: Path, tmp_path: Path) -> None:
    check_redirected(standby, project, outside, tmp_path / "recording")


def test_versions_are_apart(agent: Agent, tmp_path: Path) -> None:
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
    assert left_behind() == []


@pytest.mark.parametrize("ending", ["1 / 0", "os.abort()", "os.kill(os.getpid(), 9)", "timeout"])
def test_however_it_ends(agent: Agent, project: Path, tmp_path: Path, ending: str) -> None:
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
    assert left_behind() == []


def test_nothing_is_left_after_everything_was_killed(project: Path, tmp_path: Path) -> None:
    """Mounts end with their processes, and the folders go when the next agent starts."""
    before = on_disk(project)
    text = "import time\nopen('removed.txt', 'w').write('other')\nprint('WROTE')\ntime.sleep(100)\n"
    out = tmp_path / "recording"
    with Agent() as killed:
        identifier = killed.start(project, text, out=str(out), side_effects="redirect")
        started = killed.wait_for("started", id=identifier)
        while not out.joinpath("log.txt").exists() or b"WROTE" not in log_of(out):
            time.sleep(0.05)
        killed.process.kill()
        os.kill(started["pid"], 9)
        killed.process.wait()
    (project / "train.py").write_text(PROGRAM)
    assert on_disk(project) == before
    # What the supervisor would have read.
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


def log_of(out: Path) -> bytes:
    return (out / "log.txt").read_bytes()


def test_what_the_program_writes_into_the_record_removes_nothing(
    agent: Agent, project: Path, tmp_path: Path
) -> None:
    out = tmp_path / "recording"
    victim = project / "out"
    text = f"""\
import json, os
record = {{"mode": "redirect", "folders": [{str(victim)!r}, "/tmp/ridgeline-run-of-nobody/.."],
           "layers": [[{str(project)!r}, {str(victim)!r}]]}}
with open({str(out)!r} + "/redirected-0.json", "w") as file:
    json.dump(record, file)
"""
    finished = run(agent, project, text + TRAINING + "train(1000)\n", out, side_effects="redirect")
    assert finished["outcome"] == "complete"
    assert (victim / "model.pt").read_bytes() == b"of weeks of training"


def test_a_disk_that_fills_up_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from ridgeline_agent.side_effects.discarded_writes import DiskWatch

    free = 1000
    real = os.statvfs(tmp_path)
    fields = list(real)

    def statvfs(_: object) -> os.statvfs_result:
        fields[0:2] = [1, 1]
        fields[4] = free
        return os.statvfs_result(fields)

    (tmp_path / "redirected-1.json").write_text(json.dumps({"folders": [str(tmp_path)]}))
    monkeypatch.setattr(os, "statvfs", statvfs)
    watch = DiskWatch(str(tmp_path))
    assert not watch.is_too_much()
    free = 600
    assert not watch.is_too_much()
    free = 499
    assert watch.is_too_much()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_for_a_user_without_rights(tmp_path: Path) -> None:
    """The agent's tests may run as root, for whom it takes no user namespace."""
    import codecs
    import ctypes
    import tempfile
    import traceback

    from ridgeline_agent.protocol import spec
    from ridgeline_agent.side_effects import discarded_writes, redirect

    codecs.lookup("ascii")  # The user may not read this Python's files.
    with tempfile.TemporaryDirectory() as folder:
        project, home = Path(folder) / "project", Path(folder) / "home"
        for path in (project / "out", home):
            path.mkdir(parents=True)
        (project / "old").mkdir()
        for path in (project / "model.pt", project / "old" / "kept.txt"):
            path.write_text("of weeks")
            os.chown(path, 4321, 4321)
        os.chown(project / "old", 4321, 4321)
        (project / "out" / "of_root.txt").write_text("of root")
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
                # As in a process that was started as this user (PR_SET_DUMPABLE).
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
                os.environ["HOME"] = str(home)
                asked = spec.RunSpec.from_json(request)
                os.mkdir(asked.out)
                inner = os.fork()
                if inner == 0:
                    try:
                        redirect.hold("redirect", asked.root, asked.cwd, asked.out, ())
                        (project / "model.pt").write_text("of a few iterations")
                        assert (project / "model.pt").read_text() == "of a few iterations"
                        assert (project / "out" / "of_root.txt").read_text() == "of root"
                        (home / ".bashrc").write_text("changed")
                        Path("/tmp/left_by_a_test").write_text("changed")
                        Path("/var/tmp/left_by_a_test").write_text("changed")
                        (project / "old").rename(project / "new")
                        assert (project / "new" / "kept.txt").read_text() == "of weeks"
                        # It must not be able to take the overlay away again.
                        with pytest.raises(OSError):
                            redirect.mounts._call("umount2", str(project).encode(), 2)
                        os._exit(0)
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(1)
                assert os.waitpid(inner, 0)[1] == 0
                told = discarded_writes.take(asked)
                assert told is not None
                listed = {one["path"]: one["change"] for one in told["changes"]}
                assert listed == {
                    "model.pt": "changed",
                    "~/.bashrc": "created",
                    "old": "removed",
                    "new/kept.txt": "created",
                }, listed
                assert told["held_by"] == "kernel"
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert (project / "model.pt").read_text() == "of weeks"
        assert not (home / ".bashrc").exists()
        assert not Path("/tmp/left_by_a_test").exists()
    assert left_behind(4321) == []


# As in a container: what is mounted, or what Landlock restricts, is refused by a filter of seccomp
# (PR_SET_NO_NEW_PRIVS 38, PR_SET_SECCOMP 22). Numbers of calls are those of this machine.
REFUSING = """\
#!{python}
import ctypes, os, struct, sys
numbers = {numbers}
filter = [(0x20, 0, 0, 0)]  # load the call's number
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
def unmounted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agent where nothing can be mounted, and what holds its runs there."""
    numbers = [UNSHARE] if request.param == "landlock" else [UNSHARE, LANDLOCK]
    python = tmp_path_factory.mktemp("unmounted") / "python"
    python.write_text(REFUSING.format(python=sys.executable, numbers=numbers))
    python.chmod(0o755)
    with Agent(python=str(python)) as agent:
        yield agent, request.param


PYTHONIC = """\
import json, os, shutil, sqlite3, subprocess, sys
from pathlib import Path
import torch
torch.save({"w": torch.zeros(1000)}, "out/model.pt")
seen = {"saved": torch.load("out/model.pt")["w"].sum().item()}
Path("by_libc.txt").write_text("of Python")
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
seen["listed"] = sorted(one.name for one in os.scandir("."))
command = [sys.executable, "-S", "-c", "open('untouched.txt', 'w')"]
seen["other program"] = subprocess.run(command, capture_output=True).returncode
print("SEEN " + json.dumps(seen))
"""


def test_where_nothing_can_be_mounted(
    unmounted: tuple[Agent, str], project: Path, outside: Path, tmp_path: Path
) -> None:
    agent, held_by = unmounted
    before = on_disk(project, outside)
    out = tmp_path / "recording"
    text = PYTHONIC + TRAINING + "train(1000)\n"
    finished = run(agent, project, text, out, args=[str(outside)], side_effects="redirect")
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    seen = seen_by_program(out)
    names = seen.pop("listed")
    # Another program is what Python's functions cannot hold, and Landlock can.
    assert (seen.pop("other program") == 1) == (held_by == "landlock")
    assert seen == {
        "saved": 0.0,
        "written": "of Python",
        "appended": "of the person\nmore",
        "rows": 0,
        "removed": [False, False],
        "replaced": "",
        "moved": "of the person\n",
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
    told = finished["side_effects"]
    assert told["held_by"] == held_by
    listed = changes(finished)
    assert listed["out/model.pt"] == "changed"
    assert listed["removed.txt"] == "removed"
    assert listed["new_name.txt"] == "created"
    assert any(path.endswith("runs.log") for path in listed)
    assert left_behind() == []


def test_deny_where_nothing_can_be_mounted(
    unmounted: tuple[Agent, str], project: Path, tmp_path: Path
) -> None:
    agent, held_by = unmounted
    text = """\
import os
refused = 0
for write in (lambda: open("by_libc.txt", "w"), lambda: os.remove("removed.txt")):
    try:
        write()
    except OSError:
        refused += 1
print("REFUSED", refused)
"""
    out = tmp_path / "recording"
    text += TRAINING + "train(1000)\n"
    before = on_disk(project)
    finished = run(agent, project, text, out, side_effects="deny")
    assert finished["outcome"] == "complete", (finished, (out / "log.txt").read_text())
    assert b"REFUSED 2" in (out / "log.txt").read_bytes()
    assert finished["side_effects"]["held_by"] == held_by
    (project / "train.py").write_text(PROGRAM)
    assert on_disk(project) == before
