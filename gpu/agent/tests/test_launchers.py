"""Two ranks through the launchers themselves: Slurm's srun, accelerate, Ray's jobs, and ssh.

Each test runs where its launcher is there and works, and says that it is skipped elsewhere. See
docs/ranks.md for the versions with which they were run.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_driver import Agent, all_end, is_alive, log
from test_launch import ITERATIONS, TORCHRUN, TRAINING, check_recordings

# Where the launcher tells a rank its number in its own way, programs translate it.
OF_SLURM = """\
import os
os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"],
                  MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}")
"""
WITH_ACCELERATE = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for _ in range(1000):
    optimizer.zero_grad()
    accelerator.backward(model(torch.randn(8, 16)).sum())
    optimizer.step()
"""


@pytest.fixture
def launches() -> Iterator[Agent]:
    with Agent("--launch") as started:
        yield started


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def succeeds(*command: str) -> bool:
    """Whether a command is there and does what it should within a moment."""
    try:
        return subprocess.run(command, capture_output=True, timeout=60.0).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def start(agent: Agent, folder: Path, text: str, launcher: dict[str, Any]) -> int:
    (folder / "out").mkdir()
    return agent.start(folder, text, launcher=launcher, iterations=ITERATIONS)


def both_record(agent: Agent, folder: Path, text: str, *words: str) -> None:
    identifier = start(agent, folder, text, {"command": list(words)})
    finished = agent.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", (finished, log(folder)[-2000:])
    check_recordings(folder)


def cancelled_leaves_no_rank(agent: Agent, folder: Path, *words: str) -> None:
    text = "import time\ntime.sleep(600)\n"
    identifier = start(agent, folder, text, {"command": list(words)})
    states: list[Path] = []
    end = time.monotonic() + 100.0
    while len(states) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
        states = list((folder / "out" / "ranks").glob("?.json"))
    processes = [json.loads(state.read_text())["pid"] for state in states]
    assert all(is_alive(process) for process in processes)
    agent.send({"op": "cancel", "id": identifier})
    assert agent.wait_for("finished", id=identifier)["outcome"] == "cancelled"
    assert all_end(processes)


@pytest.fixture(scope="module")
def srun() -> None:
    if not succeeds("srun", "-n", "2", "true"):
        pytest.skip("there is no Slurm here that runs two tasks")


def jobs_of_slurm() -> list[str]:
    queue = ["squeue", "--noheader", "--format", "%i", "--states", "RUNNING"]
    return subprocess.run(queue, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.usefixtures("srun")
def test_srun(launches: Agent, tmp_path: Path) -> None:
    text = OF_SLURM.replace("{port}", str(free_port())) + TRAINING.replace("{misbehave}", "pass")
    both_record(launches, tmp_path, text, "srun", "-n", "2")


@pytest.mark.usefixtures("srun")
def test_srun_starts_torchrun(launches: Agent, tmp_path: Path) -> None:
    text = TRAINING.replace("{misbehave}", "pass")
    both_record(launches, tmp_path, text, "srun", "-n", "1", *TORCHRUN)


@pytest.mark.usefixtures("srun")
def test_a_cancelled_srun_leaves_no_rank(launches: Agent, tmp_path: Path) -> None:
    before = set(jobs_of_slurm())
    cancelled_leaves_no_rank(launches, tmp_path, "srun", "-n", "2")
    # Nor is a job left that nobody is in, which would hold its processors.
    assert set(jobs_of_slurm()) <= before


@pytest.mark.usefixtures("srun")
def test_a_server_that_goes_away_leaves_no_job_of_slurm(launches: Agent, tmp_path: Path) -> None:
    before = set(jobs_of_slurm())
    start(launches, tmp_path, "import time\ntime.sleep(600)\n", {"command": ["srun", "-n", "2"]})
    end = time.monotonic() + 100.0
    while len(list((tmp_path / "out" / "ranks").glob("?.json"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not set(jobs_of_slurm()) <= before
    launches.close()
    assert set(jobs_of_slurm()) <= before


def test_accelerate(launches: Agent, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    # On processors alone it starts several ranks only when it is told of GPUs (or by an mpirun).
    launcher = ["accelerate", "launch", "--multi_gpu", "--num_processes", "2"]
    port = ["--main_process_port", str(free_port())]
    both_record(launches, tmp_path, WITH_ACCELERATE, *launcher, *port)


@pytest.fixture(scope="module")
def ray_job() -> Iterator[list[str]]:
    """The words that submit a job to a Ray cluster of this test's own."""
    ray = shutil.which("ray", path=os.path.dirname(sys.executable))
    if ray is None:
        pytest.skip("there is no Ray beside this Python")
    pages = free_port()
    ports = ["--port", str(free_port()), "--dashboard-port", str(pages)]
    begin = [ray, "start", "--block", "--head", "--num-cpus", "2", "--disable-usage-stats", *ports]
    # In the foreground: `ray stop` would end every cluster of this machine.
    variables = {**os.environ, "RAY_raylet_start_wait_time_s": "120"}
    cluster = subprocess.Popen(
        begin, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = ["--address", f"http://127.0.0.1:{pages}"]
    end = time.monotonic() + 180.0
    try:
        # Its pages answer before it takes jobs.
        while not succeeds(ray, "job", "submit", *address, "--", "true"):
            if time.monotonic() > end or cluster.poll() is not None:
                pytest.skip("Ray does not start here")
        yield [ray, "job", "submit", *address, "--"]
    finally:
        cluster.terminate()
        cluster.wait(60.0)


def test_a_job_of_ray(launches: Agent, tmp_path: Path, ray_job: list[str]) -> None:
    text = TRAINING.replace("{misbehave}", "pass")
    both_record(launches, tmp_path, text, *ray_job, *TORCHRUN)


def test_a_cancelled_job_of_ray_leaves_no_rank(
    launches: Agent, tmp_path: Path, ray_job: list[str]
) -> None:
    # What runs there is nobody's here: it has to find out by itself.
    cancelled_leaves_no_rank(launches, tmp_path, *ray_job, *TORCHRUN)


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    """The words that reach a real sshd on the second address of this machine."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("there is no ssh with its server here")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    key, host, known = folder / "key", folder / "host", folder / "known"
    for file in (key, host):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    with socket.create_server(("127.0.0.2", 0)) as listener:
        port = str(listener.getsockname()[1])
    settings = [
        *(f"ListenAddress=127.0.0.2:{port}", f"AuthorizedKeysFile={key}.pub", f"HostKey={host}"),
        *("StrictModes=no", "UsePAM=no", "PermitRootLogin=yes", "PidFile=none"),
    ]
    options = [word for setting in settings for word in ("-o", setting)]
    said = open(folder / "said", "w+")  # noqa: SIM115
    server = subprocess.Popen([sshd, "-D", "-e", "-f", "/dev/null", *options], stderr=said)
    accept = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=accept-new"]
    words = ["ssh", "-p", port, "-i", str(key), "-o", "BatchMode=yes", *accept]
    words.append(f"{getpass.getuser()}@127.0.0.2")
    end = time.monotonic() + 5.0
    while not succeeds(*words, "true"):
        if time.monotonic() > end or server.poll() is not None:
            server.kill()
            pytest.skip(f"sshd does not work here: {(folder / 'said').read_text()[-300:]}")
    yield words
    server.terminate()
    server.wait(10.0)


def test_ssh(launches: Agent, tmp_path: Path, ssh: list[str]) -> None:
    project, tree = tmp_path / "project", tmp_path / "my tree"
    project.mkdir()
    tree.mkdir()
    text = TRAINING.replace("{misbehave}", "print('in', os.getcwd(), os.environ['SSH_CLIENT'])")
    (tree / "train.py").write_text(text)
    launcher = {
        "remote": ssh,
        "python": sys.executable,
        "command": TORCHRUN,
        "paths": {str(project): str(tree)},
    }
    identifier = start(launches, project, text, launcher)
    finished = launches.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", (finished, log(project)[-2000:])
    check_recordings(project)
    assert f"in {tree} 127.0.0." in log(project).decode()
