"""Profiles the demos and the programs of `tests/gpu/programs`, and checks each recording."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bundle import Bundle
from checks import REPOSITORY, Checks

DEMOS = ["resnet", "gpt", "seq2seq", "dcgan", "ncf", "bert"]
PROGRAMS = REPOSITORY / "tests/gpu/programs"
# `max_memory_allocated` rounds up each block. Otherwise the two values are the same.
PEAK_SHARE = 0.001
COVERAGE = 0.99
# By program: the lines that must have kernels, and the required text of a note.
EXPECTATIONS: dict[str, dict[str, Any]] = json.loads((PROGRAMS / "expectations.json").read_text())
LOOP = "# the training loop"
# Relative and absolute tolerance of the iteration time: after the last event of a timed block, the
# host takes some time to wake up.
EVENTS_SHARE, EVENTS_MS = 0.01, 0.02
# Below 5 ms, more iterations are timed. Near that, it depends on which iterations came first.
SHORT_MS, TIMED_SHORT = 3.0, 24
PROFILE_SECONDS = 240


@dataclass
class Setting:
    """The options of this command, and its outputs."""

    binary: str
    python: str
    out: Path
    quick: bool
    gpus: int
    checks: Checks
    bundle: Bundle
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_to_bundle(self, name: str, recording: Path) -> None:
        """Adds a recording to the bundle."""
        with self.lock:
            self.bundle.recording(name, recording)


@dataclass
class Profiled:
    """A program's profile as JSON, and its recording."""

    cost: dict[str, Any]
    recording: Path
    manifest: dict[str, Any]


def isolated_folders(cache: Path) -> dict[str, str]:
    """Returns the environment with separate cache and state folders."""
    return {**os.environ, "RIDGELINE_CACHE_DIR": str(cache), "RIDGELINE_STATE_DIR": str(cache)}


def profile(
    setting: Setting,
    script: Path,
    cache: Path,
    extra: list[str],
    environment: dict[str, str] | None = None,
) -> Profiled:
    """Profiles a script. Raises an error with the output if it fails."""
    cache.mkdir(parents=True, exist_ok=True)
    out = cache / "profile.json"
    result = subprocess.run(
        [setting.binary, "profile", script, "--python", setting.python, "--json", out, *extra],
        env={**isolated_folders(cache), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=PROFILE_SECONDS,
    )
    if result.returncode != 0:
        raise RuntimeError(f"exit {result.returncode}: {result.stderr[-2000:]}")
    # With several ranks, the first rank's recording is higher in the tree than the others'.
    manifests = sorted(cache.rglob("manifest.json"), key=lambda path: len(path.parts))
    recording = manifests[0].parent
    manifest = json.loads(manifests[0].read_text())
    return Profiled(json.loads(out.read_text()), recording, manifest)


def check_recording(
    name: str, profiled: Profiled, checks: Checks, *, own_pool: bool = False
) -> None:
    """Checks what must hold for any program's recording on a GPU."""
    cost, manifest = profiled.cost, profiled.manifest
    device = cost["device"]
    checks.add(f"{name}: device", device["kind"] == "cuda", device["name"], "a CUDA device")
    reported = device["simulated"]
    checks.add(f"{name}: simulated", reported is checks.simulated, reported, str(checks.simulated))
    kernel_ns = (cost.get("gpu") or {}).get("kernel_ns", 0)
    checks.add(f"{name}: kernels", kernel_ns > 0, f"{kernel_ns} ns", "more than 0")
    share = cost["coverage"]["time"]
    checks.add(f"{name}: kernel time on user lines", share >= COVERAGE, f"{share:.4f}", "0.99")
    peak = cost["memory"]["peak_bytes"]
    allocated = manifest["memory"]["max_allocated_bytes"]
    if own_pool:
        checks.skip(
            f"{name}: peak memory", "the allocator does not count a CUDA graph's private pool"
        )
    else:
        checks.within(f"{name}: peak memory", peak, allocated, PEAK_SHARE)
    kinds = sum(cost["memory"]["at_peak"].values())
    checks.add(f"{name}: memory kinds sum to the peak", kinds == peak, kinds, str(peak))
    iteration_ms = cost["iteration"]["time_ms"]
    # If some iterations are slow, the reported time is the mean. Then compare the typical
    # iterations.
    slow = cost["iteration"]["slow"]
    typical = iteration_ms if slow is None else slow["typical_ms"]
    slow_iterations = set() if slow is None else set(manifest["iterations"]["slow"])
    event_times = enumerate(manifest["iterations"]["timed_device_ns"])
    events = statistics.median(ns for at, ns in event_times if at not in slow_iterations) / 1e6
    # The simulated GPU runs on the host's cores, which other programs share. A check there only
    # detects a wrong unit or a wrong number of iterations.
    tolerance = 0.5 if checks.simulated else EVENTS_SHARE
    tolerance = max(tolerance, EVENTS_MS / events)
    checks.within(f"{name}: iteration by CUDA events", typical, events, tolerance)
    tracked = sum(line["self_ms"] for line in cost["lines"])
    tracked += sum(part["time_ms"] for part in cost["untracked"])
    checks.within(f"{name}: line times sum to the iteration", tracked, iteration_ms, 0.01)
    if iteration_ms < SHORT_MS:
        with checks.row("short-iterations"):
            timed = len(manifest["iterations"]["timed_ns"])
            checks.add(
                f"{name}: more iterations are timed", timed >= TIMED_SHORT, timed, str(TIMED_SHORT)
            )
    with checks.row("utilization"):
        gpu = cost.get("gpu") or dict.fromkeys(("busy_ns", "idle_ns", "span_ns"), 0)
        share = gpu["busy_ns"] / max(gpu["span_ns"], 1)
        added = gpu["busy_ns"] + gpu["idle_ns"] == gpu["span_ns"]
        checks.add(
            f"{name}: busy and idle add up", added and 0 < share <= 1, f"{share:.1%}", "100%"
        )
    with checks.row("gpu-state"):
        state = manifest["observed"]["gpu"] or {}
        clocks, highest = state.get("clock_mhz") or [], state.get("highest_clock_mhz") or 0
        passed = bool(clocks) and max(clocks) <= highest
        checks.add(f"{name}: clocks", passed, f"{clocks[-1:]} of {highest} MHz", "<= maximum")


def program_settings(program: Path) -> dict[str, Any]:
    """Returns a program's settings: `# test: {"ranks": 2}` on a separate line.

    row: the row of docs/gpu-status.md (default "recording")
    ranks: number of ranks to start with torchrun, one GPU each
    gpus: number of GPUs that the program uses itself
    trains: false if the program checks itself and is not profiled
    own_pool: its tensors are in the pool of a CUDA graph during replay, where the allocator
        does not count them as allocated, so `max_memory_allocated` is no reference for the peak
    finds: a rule that must report a finding
    fails: the program ends with an error, whose report contains this text and the line
        marked `# fault`
    """
    found = re.search(r"^# test: (\{.*\})$", program.read_text(), re.MULTILINE)
    return json.loads(found[1]) if found else {}


def check_program(setting: Setting, program: Path) -> None:
    """Checks a program of `tests/gpu/programs`."""
    name, settings, checks = program.stem, program_settings(program), setting.checks
    ranks = settings.get("ranks", 1)
    gpus = settings.get("gpus", ranks)
    with (
        checks.row(settings.get("row", "recording")),
        tempfile.TemporaryDirectory() as folder,
    ):
        if gpus > setting.gpus and not checks.simulated:
            checks.skip(f"{name}: profiles", f"requires {gpus} GPUs")
            return
        environment = {"SIMGPU_COUNT": str(gpus)} if checks.simulated and gpus > 1 else {}
        torchrun = [setting.python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        if not settings.get("trains", True):
            check_assertions(name, [*torchrun, str(program)], environment, checks)
            return
        # A separate folder, because everything next to the script belongs to the project.
        script = Path(shutil.copy(program, Path(folder) / "train.py"))
        extra = ["--launcher", " ".join(torchrun)] if ranks > 1 else []
        try:
            profiled = profile(setting, script, Path(folder) / "cache", extra, environment)
        except (RuntimeError, subprocess.TimeoutExpired, OSError, ValueError) as error:
            if "fails" in settings:
                check_failure(name, program, settings["fails"], str(error), checks)
            else:
                checks.add(f"{name}: profiles", False, str(error), "a profile")
            return
        if "fails" in settings:
            checks.add(f"{name}: fails", False, "the run succeeded", settings["fails"])
            return
        setting.add_to_bundle(name, profiled.recording)
        check_recording(name, profiled, checks, own_pool=settings.get("own_pool", False))
        if program.name in EXPECTATIONS:
            check_lines(program, profiled.cost, checks)
        if ranks > 1:
            found = (profiled.cost.get("ranks") or {}).get("world_size")
            checks.add(f"{name}: ranks", found == ranks, found, str(ranks))
        if rule := settings.get("finds"):
            rules = sorted({finding["rule"] for finding in profiled.cost["findings"] or []})
            checks.add(f"{name}: finding", rule in rules, ", ".join(rules), rule)


def check_lines(program: Path, cost: dict[str, Any], checks: Checks) -> None:
    """Checks that the marked loop is the training loop, and that the lines of `expectations.json`
    have kernels.
    """
    name, expected = program.stem, EXPECTATIONS[program.name]
    text = program.read_text().splitlines()
    loop = cost["iteration"]["loop"]
    at = loop and loop["line"]
    checks.add(f"{name}: the loop", bool(at) and LOOP in text[at - 1], f"line {at}", LOOP)
    with_kernels = {
        text[line["line"] - 1].strip()
        for line in cost["lines"]
        if line["file"] == "train.py" and line["device"] and line["device"]["kernel_ms"] > 0
    }
    missing = [line for line in expected["kernels"] if line not in with_kernels]
    checks.add(f"{name}: lines with kernels", not missing, f"missing: {missing}", "none missing")
    if note := expected.get("notes"):
        checks.add(
            f"{name}: note",
            any(note in text for text in cost["notes"]),
            str(cost["notes"]),
            note,
        )


def check_assertions(
    name: str, command: list[str], environment: dict[str, str], checks: Checks
) -> None:
    """Runs a program that succeeds only if all its own assertions hold."""
    try:
        result = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PROFILE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        checks.add(f"{name}: assertions", False, str(error), "exit 0")
        return
    reported = (
        "exit 0" if result.returncode == 0 else f"exit {result.returncode}: {result.stderr[-2000:]}"
    )
    checks.add(f"{name}: assertions", result.returncode == 0, reported, "exit 0")


def check_failure(name: str, program: Path, text: str, error: str, checks: Checks) -> None:
    """Checks that the report of a failed run has the error and its line."""
    lines = program.read_text().splitlines()
    marked = (number for number, line in enumerate(lines, 1) if line.endswith("# fault"))
    expected = [text, *(f"train.py:{number}" for number in marked)]
    passed = all(part in error for part in expected)
    checks.add(f"{name}: reason for the failure", passed, error[-600:], ", ".join(expected))
