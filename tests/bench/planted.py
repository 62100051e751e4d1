"""Compares the cost that findings report for the planted faults with what the clean twin saves.

    python tests/bench/planted.py [--python PYTHON_WITH_TORCH] [--rounds 5] [--device cpu] [RULE…]

Each pair of `demo-projects/planted` is profiled in several rounds, because the machine's speed
changes over minutes. With a GPU as the device, these are the pairs whose fault only shows on a GPU,
otherwise all others. The savings of the twin are measured without Ridgeline: both programs
alternate every few iterations (tests/bench/take_turns.py), on the CPU with one thread and by CPU
time. For programs with several processes, the wall times of the two profiles are compared instead,
and for recompilation the first iterations of new processes. Each round yields the ratio of the
reported cost to the savings. The table shows the medians, and the range of the ratio over the
rounds. Exits with 1 if a median ratio differs from 1 by more than 20%.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from take_turns import Version, keep_pages, speedup

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PLANTED = REPOSITORY / "demo-projects" / "planted"
TOLERANCE = 0.2
# Costs of only some iterations show in the mean, but not in the median.
MEASURED_BY_MEAN = {
    "iteration-varies",
    "loader-no-workers",
    "loader-workers-restarted",
    "padding-waste",
}
# Recompilation is over before anything is timed. It shows in the first iterations, except for the
# very first, in which both twins compile. The finding spreads the cost over the iterations that the
# agent saw.
FIRST_ITERATIONS_ONLY = {"recompilation"}
FIRST_ITERATIONS = 30
PROCESSES = 3
# Each twin nearly fills the GPU's memory, so the two cannot run side by side.
FILLS_GPU_MEMORY = {"recompute-candidates"}
# For shorter iterations, a profile contains times of warm iterations.
QUICK_MS = 5.0
# Smaller shares of an iteration need more processes to measure.
SMALL_SHARE = 0.05
# Timeout of one profile.
PROFILE_SECONDS = 300

Profile = dict[str, Any]


@dataclass(frozen=True)
class Round:
    """The reported cost and the actual savings, in milliseconds or bytes."""

    reported: float
    saved: float


@dataclass(frozen=True)
class Comparison:
    """One round of a pair: both profiles, the reported cost and the actual savings."""

    faulty: Profile
    clean: Profile
    time: Round
    size: Round


class Runner:
    """Profiles projects."""

    def __init__(self, binary: str, python: str, iterations: int, device: str) -> None:
        self._binary = binary
        self._python = python
        self._iterations = iterations
        self._device = device

    def profile(self, project: Path) -> Profile:
        """Profiles a project. Returns its cost with findings, and the recording's manifest."""
        command = [self._binary, "profile", str(project / "train.py")]
        command += ["--device", self._device, "--json", "-", "--python", self._python]
        if has_processes(project.parent):
            command += ["--iterations", str(self._iterations)]
        with tempfile.TemporaryDirectory() as folder:
            folders = {"RIDGELINE_CACHE_DIR": folder, "RIDGELINE_STATE_DIR": folder}
            process = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env={**os.environ, **folders},
                timeout=PROFILE_SECONDS,
            )
            if process.returncode != 0:
                raise RuntimeError(f"{project} could not be profiled: {process.stderr[-3000:]}")
            result: Profile = json.loads(process.stdout)
            if not isinstance(result.get("findings"), list):
                raise RuntimeError(f"{project} has no findings: {result['notes']}")
            # With several ranks, the first rank's manifest is higher in the tree than the others'.
            manifest = min(Path(folder).rglob("manifest.json"), key=lambda path: len(path.parts))
            result["manifest"] = json.loads(manifest.read_text())
        return result

    def saved_share(self, folder: Path, *, mean: bool, quick: bool, small: bool) -> float:
        """Returns the share of an iteration that the clean twin saves. Quick iterations need longer
        to warm up after the other twin's turn, as at the start of a profile.
        """
        turn = {"iterations": 20, "dropped": 8} if quick else {"iterations": 6, "dropped": 1}
        # The memory layout of a process makes it about 1% faster or slower.
        precision = {"rounds": 8, "processes": PROCESSES} if small else {"rounds": 6}
        found = speedup(
            self._python,
            folder / "faulty" / "train.py",
            folder / "clean" / "train.py",
            arguments=[],
            warmup=3,
            **precision,
            **turn,
            reduce_turn=statistics.fmean if mean else statistics.median,
        )
        return 1 - 1 / float(found["speedup"])

    def first_iterations_ms(self, project: Path) -> float:
        """Returns the time of a new process's iterations except the first: the median over several
        processes.
        """
        times = []
        for _ in range(PROCESSES):
            version = Version(self._python, project / "train.py", 1, [])
            try:
                times.append(sum(version.turn(FIRST_ITERATIONS)[1:]) / 1e6)
            finally:
                version.close()
        return statistics.median(times)


def pairs(device: str) -> list[Path]:
    """Returns the folders of the pairs that show their fault on the device."""
    folders = [folder for folder in PLANTED.iterdir() if (folder / "faulty").is_dir()]
    return sorted(folder for folder in folders if needs_gpu(folder) == (device != "cpu"))


def needs_gpu(folder: Path) -> bool:
    """Whether a pair's fault only shows on a GPU, that is, both twins use one if available."""
    return "torch.cuda.is_available()" in (folder / "clean" / "train.py").read_text()


def has_processes(folder: Path) -> bool:
    """Whether a pair uses several processes, so that the CPU time of one is not enough."""
    text = (folder / "clean" / "train.py").read_text()
    return "torch.distributed" in text or "num_workers" in text


def iteration_ms(rule: str, profile: Profile) -> float:
    if rule in MEASURED_BY_MEAN:
        return statistics.fmean(profile["iteration"]["timed_ms"])
    return float(profile["iteration"]["time_ms"])


def reported(rule: str, profile: Profile, key: str) -> float:
    return sum(finding[key] or 0.0 for finding in profile["findings"] if finding["rule"] == rule)


def compare(rule: str, folder: Path, runner: Runner, *, clean_first: bool) -> Comparison:
    """Profiles both twins, and measures the clean one's savings."""
    twins = ["clean", "faulty"] if clean_first else ["faulty", "clean"]
    profiles = {twin: runner.profile(folder / twin) for twin in twins}
    faulty, clean = profiles["faulty"], profiles["clean"]
    faulty_ms = iteration_ms(rule, faulty)
    reported_ms = reported(rule, faulty, "time_ms")
    if has_processes(folder) or rule in FILLS_GPU_MEMORY:
        saved_ms = faulty_ms - iteration_ms(rule, clean)
    elif rule not in FIRST_ITERATIONS_ONLY:
        saved_ms = faulty_ms * runner.saved_share(
            folder,
            mean=rule in MEASURED_BY_MEAN,
            quick=faulty_ms < QUICK_MS,
            small=reported_ms < SMALL_SHARE * faulty_ms,
        )
    else:
        first_ms = {twin: runner.first_iterations_ms(folder / twin) for twin in twins}
        saved_ms = first_ms["faulty"] - first_ms["clean"]
        reported_ms *= faulty["manifest"]["iterations"]["seen"]
    peaks = [profile["memory"]["peak_bytes"] for profile in (faulty, clean)]
    size = Round(reported(rule, faulty, "bytes"), peaks[0] - peaks[1])
    return Comparison(faulty, clean, Round(reported_ms, saved_ms), size)


def measure(
    rule: str, folder: Path, runner: Runner, rounds: int
) -> tuple[list[Round], list[Round], float, set[str]]:
    """Returns the rounds of time and of memory, the reported share of the iteration, and other
    findings.
    """
    times: list[Round] = []
    sizes: list[Round] = []
    shares: list[float] = []
    others: set[str] = set()
    for number in range(rounds):
        comparison = compare(rule, folder, runner, clean_first=number % 2 == 1)
        others |= {
            found["rule"] for found in comparison.faulty["findings"] if found["rule"] != rule
        }
        others |= {f"{found['rule']} (clean)" for found in comparison.clean["findings"]}
        shares.append(
            reported(rule, comparison.faulty, "time_ms") / iteration_ms(rule, comparison.faulty)
        )
        times.append(comparison.time)
        sizes.append(comparison.size)
    return times, sizes, statistics.median(shares), others


def ratios(rounds: list[Round]) -> list[float]:
    """Returns the sorted ratios of reported cost to actual savings, where there are savings."""
    return sorted(each.reported / each.saved for each in rounds if each.saved > 0)


def row(rule: str, unit: str, rounds: list[Round], share: str, others: set[str]) -> bool:
    """Prints a row. Returns whether the reported cost is close to the savings."""
    sorted_ratios = ratios(rounds)
    cost = statistics.median(each.reported for each in rounds)
    saved = statistics.median(each.saved for each in rounds)
    ratio = statistics.median(sorted_ratios) if sorted_ratios else 0.0
    is_close = abs(ratio - 1) <= TOLERANCE
    ratio_range = f"{sorted_ratios[0]:.2f}-{sorted_ratios[-1]:.2f}" if sorted_ratios else "-"
    cells = [rule, f"{cost:,.2f} {unit}", f"{saved:,.2f} {unit}", share]
    cells += [f"{ratio:.2f}", ratio_range, "yes" if is_close else "NO", ", ".join(sorted(others))]
    print(f"| {' | '.join(cells)} |", flush=True)
    return is_close


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target" / "release" / "ridgeline"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="the device, as for `ridgeline profile`")
    # Workers prefetch batches. These must be used up before the loop's waiting time is typical.
    parser.add_argument("--iterations", type=int, default=40)
    args = parser.parse_args()
    if args.device == "cpu":
        os.environ["OMP_NUM_THREADS"] = "1"
        keep_pages()
        os.environ["TURNS_BY_PROCESSOR_TIME"] = "1"
    runner = Runner(args.binary, args.python, args.iterations, args.device)

    print(
        "| rule | reported | saved by the clean twin | share of the iteration | reported/saved "
        "| range | within 20% | other findings |\n|---|---|---|---|---|---|---|---|"
    )
    all_close = True
    for folder in pairs(args.device):
        rule = folder.name
        if args.rules and rule not in args.rules:
            continue
        times, sizes, share, others = measure(rule, folder, runner, args.rounds)
        has_time = any(each.reported > 0 for each in times)
        has_bytes = any(each.reported > 0 for each in sizes)
        if has_time:
            all_close &= row(rule, "ms", times, f"{share:.0%}", others)
        if has_bytes:
            all_close &= row(rule, "bytes", sizes, "", others)
        if not has_time and not has_bytes:
            saved = statistics.median(each.saved for each in times)
            names = ", ".join(sorted(others))
            print(f"| {rule} | no cost | {saved:,.2f} ms | | | | | {names} |", flush=True)
    sys.exit(0 if all_close else 1)


if __name__ == "__main__":
    main()
