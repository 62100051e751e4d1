"""Runs with many ranks: real torchruns of two ranks with gloo, here and on "another machine"."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_driver import BOOT, TIMEOUT_SECONDS, Agent, all_end, is_alive, log, manifest
from agent_driver import TRAINING as SINGLE
from ridgeline_agent.launch.command import starts_python, translated
from ridgeline_agent.launch.rank import number_of_rank
from ridgeline_agent.launch.recording_transfer import ReceivedRecording
from ridgeline_agent.launch.remote_launcher import remote_command
from ridgeline_agent.system.process_tree import descendants

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# Where it does not matter what started the ranks.
FORKED = {"command": [sys.executable, str(Path(__file__).with_name("fork_ranks.py"))]}
ITERATIONS = {"warmup": 1, "timed": 2, "profiled": 1}

TRAINING = """\
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(16, 4)
def train(iterations):
    for step in range(iterations):
        misbehave(step)
        model(torch.randn(8, 16)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(parameter.grad)
            parameter.grad = None
def misbehave(step):
    {misbehave}
train(1000)
"""
# The line of what goes in for `{misbehave}`, and those at which a rank waits for the other one.
MISBEHAVES_AT, MEETS_AT, EXCHANGES_AT = 16, 10, 12


@pytest.fixture
def launches() -> Iterator[Agent]:
    with Agent("--launch") as started:
        yield started


def start(agent: Agent, folder: Path, misbehave: str = "pass", **keys: Any) -> int:
    """Asks for a launched run of the training, of which one step does something else."""
    (folder / "out").mkdir(exist_ok=True)
    text = TRAINING.replace("{misbehave}", misbehave)
    keys = {"launcher": {"command": TORCHRUN}, "iterations": ITERATIONS, **keys}
    return agent.start(folder, text, **keys)


def run(agent: Agent, folder: Path, misbehave: str = "pass", **keys: Any) -> dict[str, Any]:
    """The same; its `finished`. torchrun looks for a free port and lets go of it before a rank
    binds it; where another program took it in between, it is started again.
    """
    finished = agent.wait_for("finished", id=start(agent, folder, misbehave, **keys))
    if "EADDRINUSE" in (finished["message"] or ""):
        shutil.rmtree(folder / "out")
        finished = agent.wait_for("finished", id=start(agent, folder, misbehave, **keys))
    left = [one for one in descendants(agent.process.pid) if is_alive(one)]
    assert left == [], "a run leaves no process"
    return finished


def manifest_of(folder: Path, rank: int) -> dict[str, Any]:
    inner = folder / "out" if rank == 0 else folder / "out" / f"rank-{rank}"
    read: dict[str, Any] = json.loads((inner / "manifest.json").read_text())
    return read


def check_recordings(folder: Path) -> None:
    for rank in (0, 1):
        found = manifest_of(folder, rank)
        assert found["status"] == "complete"
        iterations = found["iterations"]
        # All ranks profile the same iterations, or their exchanges would not match.
        assert (iterations["seen"], len(iterations["profiled"])) == (4, 1), found["notes"]
        assert not [note for note in found["notes"] if "other ranks" in note], found["notes"]
    names = {path.name for path in (folder / "out").iterdir()}
    assert {"trace.json", "lines.bin", "log.txt", "rank-1"} <= names
    assert not {"ranks", "launch.json"} & names


def test_every_rank_records(launches: Agent, tmp_path: Path) -> None:
    finished = run(launches, tmp_path)
    assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    check_recordings(tmp_path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mount namespaces")
def test_ranks_share_what_they_wrote_and_the_disk_stays(launches: Agent, tmp_path: Path) -> None:
    checkpoint = tmp_path / "model.pt"
    checkpoint.write_text("of weeks of training")
    text = TRAINING.replace("{misbehave}", "pass").replace(
        "def misbehave",
        """\
if rank == 0:
    with open("model.pt", "w") as file:
        file.write("of a few iterations")
dist.barrier()
assert open("model.pt").read() == "of a few iterations"
def misbehave""",
    )
    (tmp_path / "out").mkdir()
    asked = {"launcher": FORKED, "iterations": ITERATIONS, "side_effects": "redirect"}
    finished = launches.wait_for("finished", id=launches.start(tmp_path, text, **asked))
    assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    assert checkpoint.read_text() == "of weeks of training"
    told = finished["side_effects"]
    assert told["held_by"] == "kernel"
    assert [(one["path"], one["change"]) for one in told["changes"]] == [("model.pt", "changed")]
    check_recordings(tmp_path)


# By its clock, every other iteration of rank 0 takes 10 ms and the others 20 ms.
ONE_RANK_VARIES = """\
if rank == 0 and step == 0:
        from ridgeline_agent.record.timing import Timer
        end = Timer.end
        Timer.end = lambda timer, now_ns: end(timer, timer._begun + (timer.count % 2 + 1) * 10**7)
"""
# A size that is new to the compiler, in one rank alone.
ONE_RANK_COMPILES = (
    "globals().setdefault('plus', torch.compile(lambda x: x + 1, backend='eager', dynamic=False))"
    "(torch.ones(2 + rank * (step > 3)))"
)


# The other one never asks for anything to be compiled.
ONE_RANK_HAS_A_COMPILER = f"rank == 0 and {ONE_RANK_COMPILES.replace('rank * ', '')}"


@pytest.mark.parametrize(
    "misbehave",
    [ONE_RANK_VARIES, ONE_RANK_COMPILES, ONE_RANK_HAS_A_COMPILER],
    ids=["varies", "compiles", "has a compiler"],
)
def test_ranks_go_on_together(launches: Agent, tmp_path: Path, misbehave: str) -> None:
    """One rank alone has a reason for more iterations, and exchanges in each of them."""
    iterations = {"warmup": 1, "timed": 6, "profiled": 1}
    finished = run(launches, tmp_path, misbehave, iterations=iterations, launcher=FORKED)
    assert finished["outcome"] == "complete", finished
    counts = [manifest_of(tmp_path, rank)["iterations"]["seen"] for rank in (0, 1)]
    assert counts[0] == counts[1]
    assert counts[0] > 1 + 6 + 1, "there was a reason to go on"
    notes = [note for rank in (0, 1) for note in manifest_of(tmp_path, rank)["notes"]]
    assert not [note for note in notes if "other ranks" in note], notes


def test_a_rank_that_raises_is_named(launches: Agent, tmp_path: Path) -> None:
    finished = run(launches, tmp_path, "rank == 1 and step == 2 and [][1]")
    assert finished["outcome"] == "failed", (finished, log(tmp_path)[-2000:])
    assert finished["message"].startswith("rank 1: IndexError")
    # The manifest where the server looks is that of the rank that failed.
    assert manifest(tmp_path)["failure"]["frames"][-1]["line"] == MISBEHAVES_AT


def test_all_ranks_raise(launches: Agent, tmp_path: Path) -> None:
    finished = run(launches, tmp_path, "[][1]", launcher=FORKED)
    assert finished["outcome"] == "failed"
    assert (
        finished["message"]
        == "rank 0: IndexError: list index out of range (1 more rank failed, too)"
    )


def test_a_rank_that_exits_is_named(launches: Agent, tmp_path: Path) -> None:
    finished = run(launches, tmp_path, "rank == 1 and step == 2 and os._exit(7)")
    assert finished["outcome"] == "exited", (finished, log(tmp_path)[-2000:])
    # torch ends rank 0 for it, so that both are gone.
    assert "rank 1 was stopped in stage" in finished["message"]


# Starts the agent with less patience for the ranks that go on when one of them has come to its end.
IMPATIENT = """\
#!{python}
import runpy, sys
sys.argv[:] = [word for word in sys.argv[1:] if word != "-u"]
sys.path.insert(0, {agent!r})
from ridgeline_agent.launch import rank_group
rank_group._AFTER_END_SECONDS = 2.0
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_rank_that_comes_to_its_end_early_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(IMPATIENT.format(python=sys.executable, agent=str(BOOT.parent)))
    python.chmod(0o755)
    with Agent("--launch", python=str(python)) as impatient:
        ends = "rank == 1 and step == 2 and sys.exit()"
        finished = run(impatient, tmp_path, ends, launcher=FORKED)
    # With fewer iterations both may come to their end.
    assert finished["outcome"] == "short", (finished, log(tmp_path)[-2000:])
    assert "rank 1 finished before enough iterations ran" in finished["message"]


def test_a_rank_that_hangs_is_named_with_its_line(launches: Agent, tmp_path: Path) -> None:
    # Four times what a whole run takes on this machine is enough to come there.
    began = time.monotonic()
    assert run(launches, tmp_path, launcher=FORKED)["outcome"] == "complete"
    limits = {"seconds": 4 * (time.monotonic() - began)}
    keys = {"launcher": FORKED, "limits": limits}
    finished = run(launches, tmp_path, "rank == 1 and step == 2 and time.sleep(600)", **keys)
    assert finished["outcome"] == "timeout", (finished, log(tmp_path)[-2000:])
    assert f"rank 1 was at train.py:{MISBEHAVES_AT} in misbehave" in finished["message"]
    # In the exchange, or before that where it met the other one to be profiled.
    places = [f"rank 0 was at train.py:{line} in train" for line in (MEETS_AT, EXCHANGES_AT)]
    assert any(place in finished["message"] for place in places), finished["message"]


def test_too_few_iterations_for_all(launches: Agent, tmp_path: Path) -> None:
    finished = run(launches, tmp_path, "step == 2 and sys.exit()", launcher=FORKED)
    assert finished["outcome"] == "short", (finished, log(tmp_path)[-2000:])
    assert manifest(tmp_path)["iterations"]["seen"] == 2


def test_memory_of_all_ranks_together_is_bounded(launches: Agent, tmp_path: Path) -> None:
    limits = {"seconds": TIMEOUT_SECONDS, "memory_bytes": 2 * 2**30}
    keys = {"launcher": FORKED, "limits": limits}
    take = "rank == 1 and step == 1 and (bytearray(3 * 2**30), time.sleep(600))"
    finished = run(launches, tmp_path, take, **keys)
    assert finished["outcome"] == "memory", (finished, log(tmp_path)[-2000:])


def test_a_launcher_that_is_not_there(launches: Agent, tmp_path: Path) -> None:
    finished = run(launches, tmp_path, launcher={"command": ["no-such-launcher", "-n", "2"]})
    assert finished["outcome"] == "exited"
    assert "no-such-launcher could not be started" in finished["message"]


def test_a_launcher_that_starts_nothing(launches: Agent, tmp_path: Path) -> None:
    finished = run(launches, tmp_path, launcher={"command": ["sh", "-c", "echo no; exit 3"]})
    assert finished["outcome"] == "exited"
    assert finished["message"] == "no rank started: the launcher exited with exit code 3: no"
    assert log(tmp_path) == b"no\n"


def test_a_launcher_that_takes_a_command(launches: Agent, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    launcher = {"command": ["env", "RANK=0", "WORLD_SIZE=1"]}
    text = SINGLE + "train(1000)\n"
    identifier = launches.start(tmp_path, text, launcher=launcher, iterations=ITERATIONS)
    finished = launches.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    assert not (tmp_path / "out" / "rank-1").exists()


def wait_for_ranks(folder: Path, launches: Agent) -> list[int]:
    """Waits until both ranks run; all processes of the run."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while len(list((folder / "out").glob("ranks/*.json"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    return descendants(launches.process.pid)


def test_cancelling_ends_all_ranks(launches: Agent, tmp_path: Path) -> None:
    identifier = start(launches, tmp_path, "time.sleep(600)")
    processes = wait_for_ranks(tmp_path, launches)
    launches.send({"op": "cancel", "id": identifier})
    assert launches.wait_for("finished", id=identifier)["outcome"] == "cancelled"
    assert len(processes) >= 3 and all_end(processes)


def test_the_end_of_the_input_ends_all_ranks(launches: Agent, tmp_path: Path) -> None:
    start(launches, tmp_path, "time.sleep(600)", launcher=FORKED)
    processes = wait_for_ranks(tmp_path, launches)
    launches.close()
    assert len(processes) >= 3 and all_end(processes)


SSH = """\
#!{python}
# As ssh does: `ssh HOST WORDS...` gives the words to a shell there.
import json, os, socket, sys, threading
try:
    there = socket.create_connection((sys.argv[1], {port}))
except OSError:
    sys.exit(255)
there.sendall(json.dumps(" ".join(sys.argv[2:])).encode() + b"\\n")
def send():
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
"""


class Daemon:
    """What answers `ssh` on the second address: processes that are nobody's here, with a folder and
    an environment of their own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.port: int = self._listener.getsockname()[1]
        self.started: list[subprocess.Popen[bytes]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            line = b""
            while not line.endswith(b"\n"):
                line += connection.recv(1)
            variables = {"PATH": "/usr/bin:/bin", "HOME": "/", "TMPDIR": str(self._folder)}
            with connection, open(self._folder.parent / "errors", "ab") as errors:
                command = ["sh", "-c", json.loads(line)]
                self.started.append(
                    subprocess.Popen(
                        command,
                        stdin=connection,
                        stdout=connection,
                        stderr=errors,
                        cwd="/",
                        env=variables,
                    )
                )

    def close(self) -> None:
        self._listener.close()
        for process in self.started:
            process.wait(TIMEOUT_SECONDS)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "there" / "tmp").mkdir(parents=True)
    started = Daemon(tmp_path / "there" / "tmp")
    yield started
    started.close()


@pytest.fixture
def other_machine(tmp_path: Path, daemon: Daemon) -> dict[str, Any]:
    """A launcher on a second address, where the project lies elsewhere."""
    project, there, tools = tmp_path / "project", tmp_path / "there", tmp_path / "tools"
    for folder in (project, there / "tree", tools):
        folder.mkdir()
    ssh = tools / "ssh"
    ssh.write_text(SSH.format(python=sys.executable, port=daemon.port))
    ssh.chmod(0o700)
    return {
        "remote": [str(ssh), "127.0.0.2"],
        "python": sys.executable,
        "command": [
            *TORCHRUN[:3],
            *("--nproc-per-node", "2", "--master-addr", "127.0.0.2"),
            *("--master-port", str(20000 + os.getpid() % 10000)),
        ],
        "paths": {str(project): str(there / "tree")},
    }


def left_there(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "there" / "tmp").glob("ridgeline-*"))


def test_another_machine(launches: Agent, tmp_path: Path, other_machine: dict[str, Any]) -> None:
    tree = tmp_path / "there" / "tree"
    text = TRAINING.replace(
        "{misbehave}", "print('here', os.getcwd(), __file__, sorted(os.environ))"
    )
    (tree / "train.py").write_text(text)
    project = tmp_path / "project"
    variables = {"OF_THE_CONFIGURATION": "x"}
    finished = run(launches, project, launcher=other_machine, env=variables)
    assert finished["outcome"] == "complete", (finished, log(project)[-2000:])
    check_recordings(project)
    assert manifest_of(project, 1)["files"][0]["path"] == "train.py"
    printed = log(project).decode()
    assert f"here {tree} {tree / 'train.py'}" in printed and "OF_THE_CONFIGURATION" in printed
    launches.close()
    assert left_there(tmp_path) == []


def test_another_machine_fails(
    launches: Agent, tmp_path: Path, other_machine: dict[str, Any]
) -> None:
    (tmp_path / "there" / "tree" / "train.py").write_text("import torch\n1 / 0\n")
    project = tmp_path / "project"
    finished = run(launches, project, launcher={**other_machine, **FORKED})
    assert finished["outcome"] == "failed", (finished, log(project)[-2000:])
    assert "rank 0: ZeroDivisionError" in finished["message"]
    assert manifest(project)["failure"]["frames"][-1] == {"file": 0, "line": 2, "name": "<module>"}


def test_the_end_of_the_input_ends_what_runs_there(
    launches: Agent, tmp_path: Path, other_machine: dict[str, Any], daemon: Daemon
) -> None:
    tree, tmp = tmp_path / "there" / "tree", tmp_path / "there" / "tmp"
    (tree / "train.py").write_text("import time\ntime.sleep(600)\n")
    start(launches, tmp_path / "project", launcher=other_machine)
    end = time.monotonic() + TIMEOUT_SECONDS
    while len(list(tmp.glob("ridgeline-*/out/ranks/*.json"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    processes = descendants(daemon.started[0].pid)
    launches.close()
    assert len(processes) >= 3 and all_end(processes)
    daemon.close()
    assert left_there(tmp_path) == []


def test_a_machine_that_cannot_be_reached(
    launches: Agent, tmp_path: Path, other_machine: dict[str, Any]
) -> None:
    launcher = {**other_machine, "remote": [other_machine["remote"][0], "127.0.0.3"]}
    finished = run(launches, tmp_path / "project", launcher=launcher)
    assert finished["outcome"] == "exited"
    assert "lost the connection to the other machine (exit code 255)" in finished["message"]


def test_the_tree_is_not_where_it_is_said_to_be(
    launches: Agent, tmp_path: Path, other_machine: dict[str, Any]
) -> None:
    project = tmp_path / "project"
    launcher = {**other_machine, "paths": {str(project): "/no/such/tree"}}
    finished = run(launches, project, launcher=launcher)
    assert "folder /no/such/tree does not exist on the launcher's machine" in finished["message"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["torchrun", "--nproc-per-node", "2"], True),
        (["accelerate", "launch"], True),
        (["python", "-m", "torch.distributed.run"], True),
        (["python", "launch.py", "--ranks", "2"], True),
        (["srun", "-n", "4", "python3.12"], True),
        (["srun", "-n", "4", "/opt/env/bin/python", "-u"], True),
        (["srun", "-N", "2", "torchrun", "--nproc-per-node", "8"], True),
        (["srun", "python", "-m", "torch.distributed.run", "--nproc-per-node", "8"], True),
        (["ray", "job", "submit", "--", "torchrun", "--nproc-per-node", "2"], True),
        (["uv", "run", "accelerate", "launch", "--num-processes", "2"], True),
        (["srun", "--job-name", "accelerate", "-n", "4"], False),
        (["srun", "-n", "4"], False),
        (["mpirun", "-np", "2"], False),
        (["ray", "job", "submit", "--"], False),
        ([], False),
    ],
)
def test_launchers_that_take_a_script(words: list[str], expected: bool) -> None:
    assert starts_python(words) is expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        (
            {"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
            (3, 8),
        ),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, (1, 4)),
        # A batch script, and a rank of the mpirun in it.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1)),
        (
            {
                **{"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
                **{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
            },
            (3, 4),
        ),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "x", "WORLD_SIZE": "8"}, (0, 1)),
        ({"RANK": "9", "WORLD_SIZE": "2"}, (9, 10)),
    ],
)
def test_a_rank_knows_its_number(variables: dict[str, str], expected: tuple[int, int]) -> None:
    assert number_of_rank(variables) == expected


def test_paths_are_translated_by_the_longest_folder() -> None:
    there = {"/p": "/a", "/p/data": "/d/", "/": "/root"}
    assert translated("/p/x.py", there) == "/a/x.py"
    assert translated("/p/data/x", there) == "/d/x"
    assert translated("/p/database", there) == "/a/database"
    assert translated("/p", there) == "/a"
    assert translated("/q", {"/p": "/a"}) == "/q"


def test_words_for_a_shell_are_quoted_for_ssh_alone() -> None:
    of_ssh = remote_command(("/usr/bin/ssh", "host"), "/opt/my python")
    assert of_ssh[2] == "'/opt/my python'"
    assert remote_command(("docker", "exec"), "/opt/my python")[2] == "/opt/my python"


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "rank-1/../../manifest.json", "x.py", "rank-1/rank-2/trace.json"],
)
def test_only_parts_of_a_recording_are_taken(tmp_path: Path, name: str) -> None:
    received = ReceivedRecording(str(tmp_path), lambda data: None)
    with pytest.raises(OSError, match="does not belong to a recording"):
        received.take({"path": name, "data": "eJwDAAAAAAE="})
    assert list(tmp_path.iterdir()) == []


def test_what_is_broken_is_not_taken(tmp_path: Path) -> None:
    received = ReceivedRecording(str(tmp_path), lambda data: None)
    for data in ("!", "AAAA", 3, None):
        with pytest.raises(OSError, match=r"damaged|does not belong"):
            received.take({"path": "trace.json", "data": data})


def test_one_iteration_of_many_ranks(launches: Agent, tmp_path: Path) -> None:
    """Timed in one run and profiled in another, where each rank finds its own times."""
    text = TRAINING.replace("{misbehave}", "pass").replace("train(1000)", "train(1)")
    hints = {"found_by": "backward", "signals": {"first": 0, "every": 1}}
    (tmp_path / "out").mkdir()
    out, first = str(tmp_path / "out"), str(tmp_path / "out" / "run-1")
    os.mkdir(first)
    asked = {"launcher": FORKED, "side_effects": "redirect"}
    for to, timed, profiled, earlier in ((first, 1, 0, []), (out, 0, 1, [first])):
        iterations = {"warmup": 0, "timed": timed, "profiled": profiled, **hints}
        asked = {**asked, "out": to, "iterations": iterations, "earlier": earlier}
        finished = launches.wait_for("finished", id=launches.start(tmp_path, text, **asked))
        assert finished["outcome"] == "complete", (finished, log(tmp_path)[-2000:])
    for rank in (0, 1):
        found = manifest_of(tmp_path, rank)
        timed_there = json.loads(
            (tmp_path / "out/run-1" / ("rank-1" if rank else ".") / "manifest.json").read_text()
        )["iterations"]["timed_ns"]
        assert found["iterations"]["timed_ns"] == timed_there and len(timed_there) == 1
        assert len(found["iterations"]["profiled"]) == 1 and found["iterations"]["runs"] == 2
