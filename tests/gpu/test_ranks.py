"""Trains with several ranks on the simulated device, to test NCCL's collectives and the profiles.

    RIDGELINE_BINARY=target/debug/ridgeline pytest tests/gpu/test_ranks.py

Skipped, with the reason, if the simulator cannot be built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
RUN = HERE / "simulated" / "run"
PROGRAMS = HERE / "programs"
CANNOT_BE_BUILT = 77
SECONDS = 240


def binary() -> str:
    named = os.environ.get("RIDGELINE_BINARY")
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target"))
    candidates = (
        [Path(named).resolve()]
        if named
        else [target / kind / "ridgeline" for kind in ("release", "debug")]
    )
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    pytest.skip("there is no ridgeline binary: set RIDGELINE_BINARY")


def on_devices(
    devices: int, command: list[str], folder: Path, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command with this many simulated devices."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    variables = {
        **os.environ,
        "PATH": path,
        "SIMGPU_COUNT": str(devices),
        "OMP_NUM_THREADS": "1",
        "RIDGELINE_CACHE_DIR": str(folder / "cache"),
        **(more or {}),
    }
    ended = subprocess.run(
        [str(RUN), "--python", sys.executable, *command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if ended.returncode == CANNOT_BE_BUILT:
        pytest.skip(ended.stdout.strip())
    return ended


def torchrun(program: Path, ranks: int, folder: Path) -> str:
    command = ["torchrun", "--standalone", "--nproc-per-node", str(ranks), str(program)]
    ended = on_devices(ranks, command, folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def profile(
    program: Path, ranks: int, folder: Path, more: Mapping[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Profiles a program with ranks. Returns the command's result, and its JSON if it has one."""
    document = folder / "profile.json"
    launcher = f"torchrun --standalone --nproc-per-node {ranks}"
    command = [binary(), "profile", str(program), "--launcher", launcher]
    command += ["--python", sys.executable, "--json", str(document)]
    ended = on_devices(ranks, command, folder, more)
    found = json.loads(document.read_text()) if document.exists() else {}
    return ended, found


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_collectives_deliver(ranks: int, tmp_path: Path) -> None:
    said = torchrun(PROGRAMS / "collectives.py", ranks, tmp_path)
    assert said.count("all collectives deliver") == ranks, said


def manifests(folder: Path) -> dict[int, dict[str, Any]]:
    """Returns the manifests of the newest recording, by rank."""
    recordings = (folder / "cache" / "recordings").glob("*/*/manifest.json")
    run = max(recordings, key=lambda path: path.stat().st_mtime).parent
    found = {0: json.loads((run / "manifest.json").read_text())}
    for path in run.glob("rank-*/manifest.json"):
        found[int(path.parent.name.removeprefix("rank-"))] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "tensor_parallel"])
def test_a_profile_with_two_ranks(name: str, tmp_path: Path) -> None:
    ended, found = profile(PROGRAMS / f"{name}.py", 2, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert found["coverage"]["time"] >= 0.99, (found["coverage"], found["untracked"])
    # Communication runs as NCCL kernels, and each rank has its own device.
    recorded = manifests(tmp_path)
    assert [one["device"]["index"] for _, one in sorted(recorded.items())] == [0, 1]
    ranks = found["ranks"]["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    for rank in ranks:
        assert rank["communication_ms"] > 0
        assert 0 <= rank["exposed_ms"] <= rank["communication_ms"] <= rank["time_ms"]
        assert 0 < rank["computing_ms"] <= rank["time_ms"]
        allocated = recorded[rank["rank"]]["memory"]["max_allocated_bytes"]
        assert abs(rank["peak_bytes"] - allocated) <= 0.001 * allocated
    # FSDP2 and tensor parallelism store shards of distributed tensors on each rank.
    weights = sum(
        entry["bytes"] for entry in recorded[0]["memory"]["baseline"] if entry["kind"] == "weight"
    )
    assert weights > 0.05 * found["memory"]["peak_bytes"], weights
    # Simulated kernels run on this machine's cores, so one rank may really be slower. Whether
    # findings compare ranks correctly (`imbalance`, `straggler`) is tested with fixed times.
    assert "gpu-slowed" not in {finding["rule"] for finding in found["findings"]}


def test_unequal_batches_and_a_device_of_each_rank_alone(tmp_path: Path) -> None:
    ended, found = profile(PROGRAMS / "straggler.py", 2, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [rank["batch_size"] for rank in found["ranks"]["ranks"]] == [4096, 8192]
    assert "imbalance" in [finding["rule"] for finding in found["findings"]], found["findings"]
    # Each rank sees its device as device 0 (CUDA_VISIBLE_DEVICES).
    assert {one["device"]["index"] for one in manifests(tmp_path).values()} == {0}


def test_exchanges_beside_the_backward_pass_are_hidden(tmp_path: Path) -> None:
    # Uses the backend of torch 2.14 and earlier, because that of 2.15 makes the backward pass wait
    # for each bucket.
    more = {"TORCH_DIST_USE_NCCL2": "0"}
    ended, found = profile(PROGRAMS / "ddp.py", 2, tmp_path, more)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for rank in found["ranks"]["ranks"]:
        assert rank["exposed_ms"] < rank["communication_ms"], rank


def test_ranks_on_one_device_are_no_strangers(tmp_path: Path) -> None:
    launched = {"SIMGPU_COUNT": "1"}
    ended, found = profile(HERE / "shared_gpu.py", 2, tmp_path, launched)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for one in manifests(tmp_path).values():
        assert one["observed"]["gpu"]["other_processes"] == 0
    assert "gpu-slowed" not in [finding["rule"] for finding in found["findings"]]


def test_a_rank_that_dies_is_named(tmp_path: Path) -> None:
    ended, _ = profile(PROGRAMS / "rank_dies.py", 2, tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "rank 1 was stopped" in ended.stderr, ended.stderr
    # No shared-memory segments are left behind.
    assert not list(Path("/dev/shm").glob("simgpu-nccl.*"))
