"""Unit tests of launchers: commands, rank numbers, paths and the transfer of recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline_agent.launch.command import starts_python, translated
from ridgeline_agent.launch.rank import number_of_rank
from ridgeline_agent.launch.recording_transfer import ReceivedRecording
from ridgeline_agent.launch.remote_launcher import remote_command


@pytest.mark.parametrize(
    ("command", "expected"),
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
def test_starts_python(command: list[str], expected: bool) -> None:
    assert starts_python(command) is expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        (
            {"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
            (3, 8),
        ),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, (1, 4)),
        # A batch script, and a rank started by mpirun inside it.
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
def test_number_of_rank(variables: dict[str, str], expected: tuple[int, int]) -> None:
    assert number_of_rank(variables) == expected


def test_translated_uses_longest_matching_folder() -> None:
    paths = {"/p": "/a", "/p/data": "/d/", "/": "/root"}
    assert translated("/p/x.py", paths) == "/a/x.py"
    assert translated("/p/data/x", paths) == "/d/x"
    assert translated("/p/database", paths) == "/a/database"
    assert translated("/p", paths) == "/a"
    assert translated("/q", {"/p": "/a"}) == "/q"


def test_remote_command_quotes_only_for_ssh() -> None:
    ssh_command = remote_command(("/usr/bin/ssh", "host"), "/opt/my python")
    assert ssh_command[2] == "'/opt/my python'"
    assert remote_command(("docker", "exec"), "/opt/my python")[2] == "/opt/my python"


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "rank-1/../../manifest.json", "x.py", "rank-1/rank-2/trace.json"],
)
def test_received_recording_rejects_other_paths(tmp_path: Path, name: str) -> None:
    received = ReceivedRecording(str(tmp_path), lambda data: None)
    with pytest.raises(OSError, match="does not belong to a recording"):
        received.take({"path": name, "data": "eJwDAAAAAAE="})
    assert list(tmp_path.iterdir()) == []


def test_received_recording_rejects_damaged_data(tmp_path: Path) -> None:
    received = ReceivedRecording(str(tmp_path), lambda data: None)
    for data in ("!", "AAAA", 3, None):
        with pytest.raises(OSError, match=r"damaged|does not belong"):
            received.take({"path": "trace.json", "data": data})
