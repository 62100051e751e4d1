"""CUDA memory: the peak replayed from the trace matches the allocator's peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import torch

from recording import Recording, record

# Does not initialize CUDA, which forked processes could not use afterwards.
GPUS = torch.cuda.device_count()
pytestmark = pytest.mark.skipif(GPUS == 0, reason="needs a GPU, real or simulated")

MODEL = """
import torch
from torch import nn
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
"""


def replayed_peak(recording: Recording) -> int:
    """The peak of the measured iteration, from the allocator total after each event."""
    trace, manifest = recording.trace(), recording.manifest
    begin, end = manifest["iterations"]["profiled"][manifest["iterations"]["measured"]]
    base = int(trace.get("baseTimeNanoseconds", 0))
    index = int(manifest["memory"]["device"].partition(":")[2])
    peak = int(manifest["memory"]["allocated_bytes"])
    for event in trace["traceEvents"]:
        if event.get("name") == "[memory]" and begin <= base + event["ts"] * 1000 <= end:
            arguments = event["args"]
            if (arguments["Device Type"], arguments["Device Id"]) == (1, index):
                peak = max(peak, int(arguments["Total Allocated"]))
    return peak


def record_complete(program: str) -> Recording:
    """Records a program that must complete without notes."""
    recording = record(program)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["notes"] == []
    return recording


def by_kind(recording: Recording) -> Counter[str]:
    """Bytes allocated before the step, by kind."""
    kinds: Counter[str] = Counter()
    for entry in recording.manifest["memory"]["baseline"]:
        kinds[entry["kind"]] += entry["bytes"]
    return kinds


def test_peak_matches_allocator() -> None:
    recording = record_complete(
        MODEL
        + """
for _ in range(20):
    x = torch.randn(256, 512, device="cuda")
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
    )
    memory = recording.manifest["memory"]
    assert memory["device"] == "cuda:0"
    assert replayed_peak(recording) == memory["max_allocated_bytes"]
    kinds = by_kind(recording)
    weights = 4 * (512 * 512 + 512) * 4
    assert (kinds["weight"], kinds["gradient"]) == (weights, weights)
    # AdamW's step counters are on the CPU.
    assert kinds["optimizer_state"] == 2 * weights


def test_program_that_resets_peak_and_empties_cache() -> None:
    recording = record_complete(
        MODEL
        + """
for _ in range(20):
    x = torch.randn(256, 512, device="cuda")
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    optimizer.step()
    print("allocated", torch.cuda.memory_allocated(), flush=True)
"""
    )
    allocated = int(recording.printed.rpartition("allocated ")[2].split()[0])
    activations = 3 * 256 * 512 * 4
    assert replayed_peak(recording) >= allocated + activations


def test_allocations_of_other_threads_are_counted() -> None:
    recording = record_complete(
        MODEL
        + """
import queue, threading
batches = queue.Queue(maxsize=1)
side = torch.cuda.Stream()
def load():
    for _ in range(40):
        with torch.cuda.stream(side):
            batches.put((torch.randn(2048, 512, device="cuda"), side.record_event()))
threading.Thread(target=load, daemon=True).start()
for _ in range(20):
    x, event = batches.get()
    torch.cuda.current_stream().wait_event(event)
    x.record_stream(torch.cuda.current_stream())
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
    )
    peak = recording.manifest["memory"]["max_allocated_bytes"]
    # A batch allocated between two events of this thread is only seen at the second event.
    assert peak - 2048 * 512 * 4 <= replayed_peak(recording) <= peak


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs, real or simulated")
def test_tensors_of_another_gpu_are_not_counted() -> None:
    recording = record("""
        import torch
        from torch import nn
        small = nn.Linear(512, 512).to("cuda:0")
        large = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).to("cuda:1")
        parameters = [*small.parameters(), *large.parameters()]
        optimizer = torch.optim.AdamW(parameters)
        for _ in range(20):
            x = torch.randn(256, 512, device="cuda:0")
            optimizer.zero_grad()
            large(small(x).to("cuda:1")).sum().backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    note = "memory is that of cuda:1, which uses most; the program also uses cuda:0"
    assert recording.manifest["notes"] == [note]
    memory = recording.manifest["memory"]
    assert memory["device"] == "cuda:1"
    assert replayed_peak(recording) == memory["max_allocated_bytes"]
    assert by_kind(recording)["weight"] == 4 * (512 * 512 + 512) * 4


def test_memory_history_of_program_stays_usable(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.pickle"
    recording = record_complete(
        "import torch\ntorch.cuda.memory._record_memory_history(max_entries=10_000)\n"
        + MODEL
        + f"""
for step in range(20):
    x = torch.randn(256, 512, device="cuda")    # the batch
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    if step == 2:
        torch.cuda.memory._dump_snapshot({str(snapshot)!r})
"""
    )
    assert replayed_peak(recording) == recording.manifest["memory"]["max_allocated_bytes"]
    reader = f"""
        import pickle
        trace = pickle.load(open({str(snapshot)!r}, "rb"))["device_traces"][0]
        lines = [frame["line"] for entry in trace for frame in entry["frames"]
                 if frame["filename"].endswith("train.py")]
        print(len(trace), trace[0]["action"], lines.count({recording.line_of("# the batch")}))
    """
    command = [sys.executable, "-c", textwrap.dedent(reader)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    entries, first, batches = process.stdout.split()
    assert int(entries) > 50
    assert first == "segment_alloc"
    assert int(batches) >= 3


def record_with_environment(variables: dict[str, str], program: str, folder: Path) -> Recording:
    """Records in a separate process, whose environment variables select the allocator."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(program)
    request = f"""{{"id": 1, "out": "{folder}/out", "root": "{project}", "cwd": "{project}",
                    "entry": {{"kind": "script", "path": "{project}/train.py"}}}}"""
    recorder = str(Path(__file__).parent / "recording.py")
    process = subprocess.run(
        [sys.executable, recorder, request],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    recording = Recording(folder / "out", project, process.stdout + process.stderr)
    assert "finished complete" in recording.printed, recording.printed
    recording.manifest = json.loads((folder / "out/manifest.json").read_text())
    return recording


TRAINING = (
    MODEL
    + """
for _ in range(20):
    x = torch.randn(256, 512, device="cuda")
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
)


def test_expandable_segments(tmp_path: Path) -> None:
    variables = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    recording = record_with_environment(variables, TRAINING, tmp_path)
    assert replayed_peak(recording) == recording.manifest["memory"]["max_allocated_bytes"]
    assert recording.manifest["notes"] == []


def test_cuda_malloc_async(tmp_path: Path) -> None:
    variables = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    recording = record_with_environment(variables, TRAINING, tmp_path)
    memory = recording.manifest["memory"]
    assert memory["device"] == "cuda:0"
    weights = 4 * (512 * 512 + 512) * 4
    assert memory["max_allocated_bytes"] > memory["allocated_bytes"] >= 4 * weights
    assert by_kind(recording)["weight"] == weights


def test_memory_is_unknown_without_caching_allocator(tmp_path: Path) -> None:
    recording = record_with_environment({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, TRAINING, tmp_path)
    memory = recording.manifest["memory"]
    assert memory["device"] == "cuda:0"
    assert (memory["allocated_bytes"], memory["max_allocated_bytes"]) == (None, None)
    [note] = recording.manifest["notes"]
    assert note.startswith("memory is unknown: PyTorch's caching allocator is disabled")


PLUGGABLE = """
#include <cstddef>
extern "C" int cudaMalloc(void**, size_t);
extern "C" int cudaFree(void*);
extern "C" void* custom_malloc(size_t bytes, int, void*) {
    void* memory = nullptr;
    cudaMalloc(&memory, bytes);
    return memory;
}
extern "C" void custom_free(void* memory, size_t, int, void*) { cudaFree(memory); }
"""


def test_pluggable_allocator(tmp_path: Path) -> None:
    source, library = tmp_path / "allocator.cpp", tmp_path / "allocator.so"
    source.write_text(PLUGGABLE)
    compile_command = ["g++", "-shared", "-fPIC", str(source), "-o", str(library)]
    try:
        subprocess.run(compile_command, check=True, timeout=100)
    except FileNotFoundError:
        pytest.skip("needs g++")
    use_allocator = f"""
import torch
library = {str(library)!r}
allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "custom_malloc", "custom_free")
torch.cuda.memory.change_current_allocator(allocator)
"""
    recording = record(use_allocator + TRAINING)
    assert recording.outcome == "complete", recording.printed
    memory = recording.manifest["memory"]
    assert (memory["device"], memory["max_allocated_bytes"]) == ("cuda:0", None)
    [note] = recording.manifest["notes"]
    assert note.startswith("memory is unknown: the program uses a pluggable allocator")
