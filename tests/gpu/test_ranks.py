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
CANNOT_BUILD = 77
TIMEOUT_SECONDS = 240


def binary() -> str:
    override = os.environ.get("RIDGELINE_BINARY")
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target"))
    candidates = (
        [Path(override).resolve()]
        if override
        else [target / kind / "ridgeline" for kind in ("release", "debug")]
    )
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    pytest.skip("no ridgeline binary: set RIDGELINE_BINARY")


def run_on_simulator(
    devices: int,
    command: list[str],
    folder: Path,
    extra_environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command with this many simulated devices."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    variables = {
        **os.environ,
        "PATH": path,
        "SIMGPU_COUNT": str(devices),
        "OMP_NUM_THREADS": "1",
        "RIDGELINE_CACHE_DIR": str(folder / "cache"),
        **(extra_environment or {}),
    }
    result = subprocess.run(
        [str(RUN), "--python", sys.executable, *command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    if result.returncode == CANNOT_BUILD:
        pytest.skip(result.stdout.strip())
    return result


def torchrun(program: Path, ranks: int, folder: Path) -> str:
    command = ["torchrun", "--standalone", "--nproc-per-node", str(ranks), str(program)]
    result = run_on_simulator(ranks, command, folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def profile(
    program: Path, ranks: int, folder: Path, extra_environment: Mapping[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Profiles a program with ranks. Returns the command's result, and its JSON if it has one."""
    document = folder / "profile.json"
    launcher = f"torchrun --standalone --nproc-per-node {ranks}"
    command = [binary(), "profile", str(program), "--launcher", launcher]
    command += ["--python", sys.executable, "--json", str(document)]
    result = run_on_simulator(ranks, command, folder, extra_environment)
    cost = json.loads(document.read_text()) if document.exists() else {}
    return result, cost


@pytest.mark.parametrize("ranks", [2, 4])
def test_results_of_collectives(ranks: int, tmp_path: Path) -> None:
    output = torchrun(PROGRAMS / "collectives.py", ranks, tmp_path)
    assert output.count("all collectives are correct") == ranks, output


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
    result, cost = profile(PROGRAMS / f"{name}.py", 2, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert cost["coverage"]["time"] >= 0.99, (cost["coverage"], cost["untracked"])
    # Communication runs as NCCL kernels, and each rank has its own device.
    recorded = manifests(tmp_path)
    assert [manifest["device"]["index"] for _, manifest in sorted(recorded.items())] == [0, 1]
    ranks = cost["ranks"]["ranks"]
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
    assert weights > 0.05 * cost["memory"]["peak_bytes"], weights
    # Simulated kernels run on this machine's cores, so one rank may really be slower. Whether
    # findings compare ranks correctly (`imbalance`, `straggler`) is tested with fixed times.
    assert "gpu-slowed" not in {finding["rule"] for finding in cost["findings"]}


def test_unequal_batches_with_one_visible_device_per_rank(tmp_path: Path) -> None:
    result, cost = profile(PROGRAMS / "straggler.py", 2, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [rank["batch_size"] for rank in cost["ranks"]["ranks"]] == [4096, 8192]
    assert "imbalance" in [finding["rule"] for finding in cost["findings"]], cost["findings"]
    # Each rank sees its device as device 0 (CUDA_VISIBLE_DEVICES).
    assert {manifest["device"]["index"] for manifest in manifests(tmp_path).values()} == {0}


def test_communication_overlaps_with_the_backward_pass(tmp_path: Path) -> None:
    # Uses the backend of torch 2.14 and earlier, because that of 2.15 makes the backward pass wait
    # for each bucket.
    extra_environment = {"TORCH_DIST_USE_NCCL2": "0"}
    result, cost = profile(PROGRAMS / "ddp.py", 2, tmp_path, extra_environment)
    assert result.returncode == 0, result.stdout + result.stderr
    for rank in cost["ranks"]["ranks"]:
        assert rank["exposed_ms"] < rank["communication_ms"], rank


def test_ranks_on_one_device_are_not_other_processes(tmp_path: Path) -> None:
    one_device = {"SIMGPU_COUNT": "1"}
    result, cost = profile(HERE / "shared_gpu.py", 2, tmp_path, one_device)
    assert result.returncode == 0, result.stdout + result.stderr
    for manifest in manifests(tmp_path).values():
        assert manifest["observed"]["gpu"]["other_processes"] == 0
    assert "gpu-slowed" not in [finding["rule"] for finding in cost["findings"]]


def test_a_rank_that_dies_is_named(tmp_path: Path) -> None:
    result, _ = profile(PROGRAMS / "rank_dies.py", 2, tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "rank 1 was stopped" in result.stderr, result.stderr
    # No shared-memory segments are left behind.
    assert not list(Path("/dev/shm").glob("simgpu-nccl.*"))
