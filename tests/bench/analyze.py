"""Compares `ridgeline analyze` with HTA and TraceLens on real traces: time, peak memory, and
scaling.

    python tests/bench/analyze.py [--traces FOLDER] [--tracelens CHECKOUT] [--no-large]

Requires `cargo build --release` and the sample traces. HTA and TraceLens are installed into a
separate environment in the user's cache. Their time excludes their imports; Ridgeline's is that of
the whole process, which reads the trace, summarizes it and writes the JSON. All values are the best
of three runs; peak memory is that of the process. The other tools perform the most similar task:
HTA reads the trace and computes the kernel and temporal breakdowns; TraceLens builds its tree, the
GPU timeline and the table of kernel launchers.

At the end, a trace of 1 GB, made by repeating a trace, shows whether time and memory scale
linearly. In one version, the repetitions follow each other, as in a trace of a long run. In
another, all of them happen at the same time, which no profiler writes. The last test is millions of
events without arguments.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# On PyPI, `TraceLens` is an unrelated project.
TRACELENS = "git+https://github.com/AMD-AGI/TraceLens"
TRACELENS_NEEDS = ["pandas", "tqdm", "openpyxl", "orjson"]
REPEAT = 3

HTA_PROGRAM = """
import sys, time
from hta.trace_analysis import TraceAnalysis
start, cpu = time.perf_counter(), time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_temporal_breakdown(visualize=False)
print("seconds", time.perf_counter() - start, time.process_time() - cpu)
"""

TRACELENS_PROGRAM = """
import sys, time
from TraceLens import TreePerfAnalyzer
start, cpu = time.perf_counter(), time.process_time()
analyzer = TreePerfAnalyzer.from_file(sys.argv[1])
analyzer.get_df_gpu_timeline()
analyzer.get_df_kernel_launchers_summary(analyzer.get_df_kernel_launchers())
print("seconds", time.perf_counter() - start, time.process_time() - cpu)
"""


@dataclass
class Cost:
    """The best values of several runs. On a busy machine, CPU time is more meaningful than wall
    time.
    """

    seconds: float
    cpu_seconds: float
    megabytes: float


def run(command: list[str], environment: dict[str, str] | None = None) -> tuple[Cost, str]:
    """Runs a command to completion. Returns its wall time, peak memory and output."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} exited with {process.returncode}:\n{text[-2000:]}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), text


def best(costs: list[Cost]) -> Cost:
    return Cost(
        min(cost.seconds for cost in costs),
        min(cost.cpu_seconds for cost in costs),
        min(cost.megabytes for cost in costs),
    )


def ridgeline_cost(binary: Path, trace: Path) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(binary), "analyze", str(trace), "--json", str(Path(folder, "out.json"))]
        return best([run(command)[0] for _ in range(REPEAT)])


def other_tool_cost(python: Path, program: str, trace: Path, module_path: str | None) -> Cost:
    environment = dict(os.environ)
    if module_path:
        environment["PYTHONPATH"] = module_path
    costs = []
    for _ in range(REPEAT):
        cost, text = run([str(python), "-c", program, str(trace)], environment)
        line = next(line for line in text.splitlines() if line.startswith("seconds"))
        seconds, cpu_seconds = line.split()[1:]
        costs.append(Cost(float(seconds), float(cpu_seconds), cost.megabytes))
    return best(costs)


def install(python: Path, packages: list[str]) -> str | None:
    """Installs packages. Returns an error message, or None."""
    command = [str(python), "-m", "pip", "install", "--quiet", *packages]
    result = subprocess.run(command, capture_output=True, text=True)
    return None if result.returncode == 0 else result.stderr.strip().splitlines()[-1]


def other_tools_python() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "ridgeline-bench"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return python


def compare(binary: Path, traces: list[Path], tracelens: str | None) -> None:
    python = other_tools_python()
    other_tools: list[tuple[str, str, str | None]] = []
    error = install(python, ["HolisticTraceAnalysis"])
    if error is None:
        other_tools.append(("HTA", HTA_PROGRAM, None))
    else:
        print(f"HTA is skipped, because it cannot be installed: {error}")
    error = install(python, TRACELENS_NEEDS if tracelens else [TRACELENS])
    if error is None:
        other_tools.append(("TraceLens", TRACELENS_PROGRAM, tracelens))
    else:
        print(f"TraceLens is skipped, because it cannot be installed: {error}")

    print("| trace | ridgeline |", " | ".join(f"{name} | ratio" for name, *_ in other_tools), "|")
    print("|---|---|" + "---|---|" * len(other_tools))
    for trace in traces:
        own_cost = ridgeline_cost(binary, trace)
        cells = [trace.name.removesuffix(".json.gz"), show(own_cost)]
        for name, program, module_path in other_tools:
            try:
                cost = other_tool_cost(python, program, trace, module_path)
            except (RuntimeError, StopIteration) as error:
                last = str(error).strip().splitlines()[-1] if str(error) else "no time printed"
                cells += [f"{name} fails", last]
                continue
            cells += [show(cost), ratio(cost, own_cost)]
        print("|", " | ".join(cells), "|", flush=True)


def show(cost: Cost) -> str:
    return f"{cost.seconds:.3f} s ({cost.cpu_seconds:.3f} s CPU), {cost.megabytes:.0f} MB"


def ratio(other: Cost, own: Cost) -> str:
    time, cpu = other.seconds / own.seconds, other.cpu_seconds / own.cpu_seconds
    return f"{time:.0f}x ({cpu:.0f}x CPU), memory {other.megabytes / own.megabytes:.1f}x"


# Larger than any correlation id. A repetition's steps are also shifted by less than a thousand
# seconds.
SHIFT = 1_000_000_000
NUMBERS = re.compile(rb'("(?:ts|correlation|External id)": )(\d+)')


def write_repeated(trace: Path, times: int, file: Path, one_after_another: bool) -> None:
    """Writes a trace that repeats the events of another trace."""
    text = gzip.decompress(trace.read_bytes())
    start = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    end = text.rindex(b"]")
    with file.open("wb") as output:
        output.write(text[:start])
        events = text[start:end]
        for index in range(times):
            shift = index * SHIFT * one_after_another

            def shifted(found: re.Match[bytes], shift: int = shift) -> bytes:
                return found[1] + str(int(found[2]) + shift).encode()

            output.write(b"," * (index > 0))
            output.write(NUMBERS.sub(shifted, events) if shift else events)
        output.write(text[end:])


def write_plain(events: int, file: Path) -> None:
    """Writes operators without arguments, one after the other."""
    names = ["aten::add", "aten::mul", "aten::mm", "aten::relu", "aten::copy_", "aten::sum"]
    with file.open("w") as output:
        output.write('{"schemaVersion":1,"traceEvents":[')
        for index in range(events):
            output.write("," * (index > 0))
            name = names[index % len(names)]
            times = f'"pid":1,"tid":1,"ts":{5 * index},"dur":3'
            output.write(f'{{"ph":"X","cat":"cpu_op","name":"{name}",{times}}}')
        output.write("]}")


def growth(binary: Path, trace: Path, gigabytes: float) -> None:
    with gzip.open(trace) as events:
        size = events.seek(0, os.SEEK_END)
    max_times = max(1, round(gigabytes * 1e9 / size))
    print(f"\n{trace.name} repeated, as plain JSON:")
    print("| times | JSON | ridgeline | CPU per MB |\n|---|---|---|---|")
    counts = sorted({1, max(1, max_times // 4), max(1, max_times // 2), max_times})
    for times in counts:
        measure_growth(binary, f"{times}", write_repeated, trace, times, True)
    measure_growth(
        binary, f"{max_times}, at the same time", write_repeated, trace, max_times, False
    )
    for millions in (1, 15):
        events = round(millions * 1e6 * min(1.0, gigabytes))
        measure_growth(binary, f"{events} plain events", write_plain, events)


def measure_growth(binary: Path, what: str, write: Callable[..., None], *arguments: object) -> None:
    """Writes a trace, and prints the cost of reading it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        # A fork of a large process would count that process's memory in its peak, so a new process
        # is spawned.
        context = multiprocessing.get_context("spawn")
        index = 1 if write is write_plain else 2
        arguments = (*arguments[:index], file, *arguments[index:])
        writer = context.Process(target=write, args=arguments)
        writer.start()
        writer.join()
        megabytes = file.stat().st_size / 1e6
        cost = ridgeline_cost(binary, file)
        per_megabyte = 1000 * cost.cpu_seconds / megabytes
        print(f"| {what} | {megabytes:.0f} MB | {show(cost)} | {per_megabyte:.2f} ms |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared = Path(os.environ.get("RIDGELINE_SHARED", ROOT.parent / "shared"))
    parser.add_argument("--traces", type=Path, default=shared / "traces")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--binary", type=Path, default=target / "release" / "ridgeline")
    parser.add_argument("--tracelens", help="a local checkout of TraceLens")
    parser.add_argument("--only", help="traces whose name contains this")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-large", action="store_true")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    arguments = parser.parse_args()

    name_filter = arguments.only or ""
    traces = sorted(t for t in arguments.traces.glob("*.json.gz") if name_filter in t.name)
    if not traces:
        sys.exit(f"no traces in {arguments.traces}")
    if not arguments.binary.exists():
        sys.exit(f"{arguments.binary} does not exist: run `cargo build --release`")
    if not arguments.no_peers:
        compare(arguments.binary, traces, arguments.tracelens)
    if not arguments.no_large:
        largest = max(traces, key=lambda trace: trace.stat().st_size)
        growth(arguments.binary, largest, arguments.gigabytes)


if __name__ == "__main__":
    main()
