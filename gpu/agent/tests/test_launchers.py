"""Runs of two ranks with real launchers: Slurm's srun, accelerate, Ray jobs and ssh.

A test is skipped if its launcher is not installed or does not work. docs/ranks.md lists the
versions that were tested.
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

from agent_driver import Agent, all_exit, is_alive, log
from launch_helpers import ITERATIONS, TORCHRUN, TRAINING, check_recordings

# Programs translate launcher-specific variables to those of torch.distributed.
SLURM_SETUP = """\
import os
os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"],
                  MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}")
"""
ACCELERATE_TRAINING = """\
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def succeeds(*command: str) -> bool:
    """Whether a command exists and succeeds within a minute."""
    try:
        return subprocess.run(command, capture_output=True, timeout=60.0).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def start(agent: Agent, folder: Path, text: str, launcher: dict[str, Any]) -> int:
    (folder / "out").mkdir()
    return agent.start(folder, text, launcher=launcher, iterations=ITERATIONS)


def check_both_ranks_are_recorded(agent: Agent, folder: Path, text: str, *command: str) -> None:
    identifier = start(agent, folder, text, {"command": list(command)})
    finished = agent.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", (finished, log(folder)[-2000:])
    check_recordings(folder)


def check_cancel_terminates_ranks(agent: Agent, folder: Path, *command: str) -> None:
    text = "import time\ntime.sleep(600)\n"
    identifier = start(agent, folder, text, {"command": list(command)})
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
    assert all_exit(processes)


@pytest.fixture(scope="module")
def srun() -> None:
    if not succeeds("srun", "-n", "2", "true"):
        pytest.skip("Slurm is not available or cannot run two tasks")


def running_slurm_jobs() -> list[str]:
    queue = ["squeue", "--noheader", "--format", "%i", "--states", "RUNNING"]
    return subprocess.run(queue, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.usefixtures("srun")
def test_srun(launch_agent: Agent, tmp_path: Path) -> None:
    text = SLURM_SETUP.replace("{port}", str(free_port())) + TRAINING.replace("{step_hook}", "pass")
    check_both_ranks_are_recorded(launch_agent, tmp_path, text, "srun", "-n", "2")


@pytest.mark.usefixtures("srun")
def test_srun_starts_torchrun(launch_agent: Agent, tmp_path: Path) -> None:
    text = TRAINING.replace("{step_hook}", "pass")
    check_both_ranks_are_recorded(launch_agent, tmp_path, text, "srun", "-n", "1", *TORCHRUN)


@pytest.mark.usefixtures("srun")
def test_cancel_terminates_srun_ranks(launch_agent: Agent, tmp_path: Path) -> None:
    before = set(running_slurm_jobs())
    check_cancel_terminates_ranks(launch_agent, tmp_path, "srun", "-n", "2")
    # An empty job would keep its CPUs allocated.
    assert set(running_slurm_jobs()) <= before


@pytest.mark.usefixtures("srun")
def test_end_of_input_terminates_slurm_job(launch_agent: Agent, tmp_path: Path) -> None:
    before = set(running_slurm_jobs())
    start(
        launch_agent, tmp_path, "import time\ntime.sleep(600)\n", {"command": ["srun", "-n", "2"]}
    )
    end = time.monotonic() + 100.0
    while len(list((tmp_path / "out" / "ranks").glob("?.json"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not set(running_slurm_jobs()) <= before
    launch_agent.close()
    assert set(running_slurm_jobs()) <= before


def test_accelerate(launch_agent: Agent, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    # Without --multi_gpu (or mpirun), accelerate starts only one rank on CPUs.
    launcher = ["accelerate", "launch", "--multi_gpu", "--num_processes", "2"]
    port = ["--main_process_port", str(free_port())]
    check_both_ranks_are_recorded(launch_agent, tmp_path, ACCELERATE_TRAINING, *launcher, *port)


@pytest.fixture(scope="module")
def ray_job() -> Iterator[list[str]]:
    """The command that submits a job to a Ray cluster started for these tests."""
    ray = shutil.which("ray", path=os.path.dirname(sys.executable))
    if ray is None:
        pytest.skip("Ray is not installed")
    dashboard_port = free_port()
    ports = ["--port", str(free_port()), "--dashboard-port", str(dashboard_port)]
    start_command = [
        ray,
        "start",
        "--block",
        "--head",
        "--num-cpus",
        "2",
        "--disable-usage-stats",
        *ports,
    ]
    # Run in the foreground, because `ray stop` would stop every cluster on this machine.
    variables = {**os.environ, "RAY_raylet_start_wait_time_s": "120"}
    cluster = subprocess.Popen(
        start_command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = ["--address", f"http://127.0.0.1:{dashboard_port}"]
    end = time.monotonic() + 180.0
    try:
        # The dashboard responds before the cluster accepts jobs.
        while not succeeds(ray, "job", "submit", *address, "--", "true"):
            if time.monotonic() > end or cluster.poll() is not None:
                pytest.skip("Ray does not start")
        yield [ray, "job", "submit", *address, "--"]
    finally:
        cluster.terminate()
        cluster.wait(60.0)


def test_ray_job(launch_agent: Agent, tmp_path: Path, ray_job: list[str]) -> None:
    text = TRAINING.replace("{step_hook}", "pass")
    check_both_ranks_are_recorded(launch_agent, tmp_path, text, *ray_job, *TORCHRUN)


def test_cancel_terminates_ray_job_ranks(
    launch_agent: Agent, tmp_path: Path, ray_job: list[str]
) -> None:
    # The ranks are not descendants of the agent and must detect the cancellation themselves.
    check_cancel_terminates_ranks(launch_agent, tmp_path, *ray_job, *TORCHRUN)


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    """The command that connects to a real sshd on a second address of this machine."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("ssh and sshd are not installed")
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
    output = open(folder / "output", "w+")  # noqa: SIM115
    server = subprocess.Popen([sshd, "-D", "-e", "-f", "/dev/null", *options], stderr=output)
    accept = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=accept-new"]
    command = ["ssh", "-p", port, "-i", str(key), "-o", "BatchMode=yes", *accept]
    command.append(f"{getpass.getuser()}@127.0.0.2")
    end = time.monotonic() + 5.0
    while not succeeds(*command, "true"):
        if time.monotonic() > end or server.poll() is not None:
            server.kill()
            pytest.skip(f"sshd does not work: {(folder / 'output').read_text()[-300:]}")
    yield command
    server.terminate()
    server.wait(10.0)


def test_ssh(launch_agent: Agent, tmp_path: Path, ssh: list[str]) -> None:
    project, tree = tmp_path / "project", tmp_path / "my tree"
    project.mkdir()
    tree.mkdir()
    text = TRAINING.replace("{step_hook}", "print('in', os.getcwd(), os.environ['SSH_CLIENT'])")
    (tree / "train.py").write_text(text)
    launcher = {
        "remote": ssh,
        "python": sys.executable,
        "command": TORCHRUN,
        "paths": {str(project): str(tree)},
    }
    identifier = start(launch_agent, project, text, launcher)
    finished = launch_agent.wait_for("finished", id=identifier)
    assert finished["outcome"] == "complete", (finished, log(project)[-2000:])
    check_recordings(project)
    assert f"in {tree} 127.0.0." in log(project).decode()
