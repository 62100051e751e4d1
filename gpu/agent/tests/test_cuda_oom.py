"""CUDA out-of-memory failures report the allocated memory by kind and by line.

The programs limit themselves to a fraction of the GPU's memory, so that they run on any GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recording import Recording, record

# Does not initialize CUDA, which forked processes could not use afterwards.
pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() == 0, reason="needs a GPU, real or simulated"
)

MIB = 2**20


def record_limited(mebibytes: int, program: str) -> Recording:
    """Records a program with a limit on its GPU memory."""
    limit = f"""
        import torch
        from torch import nn
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction({mebibytes} * 2**20 / total)
    """
    return record(limit + program)


def memory_at_failure(recording: Recording) -> dict[str, Any]:
    """Returns `failure.memory` after checking that its totals are consistent."""
    assert recording.outcome == "failed", recording.printed
    assert recording.manifest["notes"] == []
    failure = recording.manifest["failure"]
    assert failure["kind"] == "memory"
    memory: dict[str, Any] = failure["memory"]
    assert sum(kind["bytes"] for kind in memory["held"]) == memory["allocated_bytes"]
    for kind in memory["held"]:
        assert sum(line["bytes"] for line in kind["lines"]) <= kind["bytes"]
    return memory


def by_kind(memory: dict[str, Any]) -> dict[str, int]:
    """MiB by kind, without kinds below 1 MiB."""
    return {kind["kind"]: kind["bytes"] // MIB for kind in memory["held"] if kind["bytes"] >= MIB}


def lines_of(memory: dict[str, Any], kind: str) -> dict[int, int]:
    """MiB of one kind by line, without lines below 1 MiB."""
    lines = next(entry for entry in memory["held"] if entry["kind"] == kind)["lines"]
    return {line["line"]: line["bytes"] // MIB for line in lines if line["bytes"] >= MIB}


def test_oom_in_forward() -> None:
    recording = record_limited(
        300,
        """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.up = nn.Linear(1024, 4096, bias=False)     # 16 MiB
                self.down = nn.Linear(4096, 1024, bias=False)   # 16 MiB
            def forward(self, x):
                h = torch.relu(self.up(x))          # saves 64 MiB
                return self.down(h)
        model = nn.Sequential(*[Block() for _ in range(4)]).cuda()    # the model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            x = torch.randn(4096, 1024, device="cuda")    # the batch
            optimizer.zero_grad()
            model(x).sum().backward()    # an iteration
            optimizer.step()
    """,
    )
    memory = memory_at_failure(recording)
    assert (memory["phase"], memory["batch_size"], memory["device"]) == ("forward", 4096, "cuda:0")
    assert memory["requested_bytes"] == 64 * MIB
    assert by_kind(memory)["weight"] == 128
    assert by_kind(memory)["batch"] == 16
    assert lines_of(memory, "weight") == {recording.line_of("# the model"): 128}
    assert lines_of(memory, "batch") == {recording.line_of("# the batch"): 16}
    assert lines_of(memory, "activation")[recording.line_of("# saves 64 MiB")] >= 64
    frames = recording.manifest["failure"]["frames"]
    assert [frame["line"] for frame in frames] == [
        recording.line_of("# an iteration"),
        recording.line_of("# saves 64 MiB"),
    ]


def test_oom_in_backward() -> None:
    recording = record_limited(
        1000,
        """
        model = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(6)]).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            x = torch.randn(2048, 2048, device="cuda")
            optimizer.zero_grad()
            y = model(x).sum()    # the forward pass
            torch.cuda.empty_cache()
            limit = torch.cuda.memory_reserved() + 2**23
            torch.cuda.set_per_process_memory_fraction(limit / total)
            y.backward()    # the backward pass
            optimizer.step()
    """,
    )
    memory = memory_at_failure(recording)
    kinds = by_kind(memory)
    assert memory["phase"] == "backward"
    assert memory["limit_bytes"] < memory["capacity_bytes"]
    # Each layer saves its input. The input of the first layer is the batch.
    assert (kinds["weight"], kinds["batch"]) == (96, 16)
    assert lines_of(memory, "activation")[recording.line_of("# the forward pass")] >= 80
    frames = recording.manifest["failure"]["frames"]
    assert frames[-1]["line"] == recording.line_of("# the backward pass")


def test_oom_in_first_optimizer_step() -> None:
    recording = record_limited(
        300,
        """
        model = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(6)]).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(20):
            x = torch.randn(8, 2048, device="cuda")
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()    # the step
    """,
    )
    memory = memory_at_failure(recording)
    kinds = by_kind(memory)
    assert memory["phase"] == "optimizer"
    assert (kinds["weight"], kinds["gradient"]) == (96, 96)
    assert kinds["optimizer_state"] >= 64
    assert list(lines_of(memory, "optimizer_state")) == [recording.line_of("# the step")]
    assert recording.manifest["failure"]["frames"][-1]["line"] == recording.line_of("# the step")


def test_oom_in_model_to_device() -> None:
    recording = record_limited(
        100,
        """
        model = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(8)])
        model.to("cuda")    # to the GPU
    """,
    )
    memory = memory_at_failure(recording)
    assert (memory["phase"], memory["batch_size"]) == (None, None)
    assert by_kind(memory) == {"weight": 96}
    frames = recording.manifest["failure"]["frames"]
    assert frames[-1]["line"] == recording.line_of("# to the GPU")


def test_oom_with_side_stream() -> None:
    recording = record_limited(
        200,
        """
        model = nn.Linear(1024, 1024, bias=False).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        side = torch.cuda.Stream()
        batches = []
        for _ in range(50):
            with torch.cuda.stream(side):
                x = torch.randn(8192, 1024, device="cuda")    # prefetched
            torch.cuda.current_stream().wait_stream(side)
            batches.append(x)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    """,
    )
    memory = memory_at_failure(recording)
    assert memory["batch_size"] == 8192
    assert by_kind(memory)["batch"] >= 64
    assert recording.line_of("# prefetched") in lines_of(memory, "batch")


def test_program_that_catches_oom_completes() -> None:
    recording = record_limited(
        300,
        """
        model = nn.Linear(1024, 1024, bias=False).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def step(batch):
            x = torch.randn(batch, 1024, device="cuda")
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        batch, caught = 65536, []
        for _ in range(20):
            try:
                step(batch)
            except torch.OutOfMemoryError:
                batch //= 2
                optimizer.zero_grad()
                caught.append(torch.cuda.memory_allocated())
            if len(caught) > 2 and any(allocated > 5 * 2**20 for allocated in caught):
                raise RuntimeError(f"memory was not released: {caught}")
    """,
    )
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["failure"] is None


def test_other_exception_after_caught_oom() -> None:
    recording = record_limited(
        100,
        """
        try:
            torch.empty(2**30, device="cuda")
        except torch.OutOfMemoryError:
            raise ValueError("another")
    """,
    )
    failure = recording.manifest["failure"]
    assert (failure["kind"], failure["memory"]) == ("exception", None)


def test_exception_raised_from_oom() -> None:
    recording = record_limited(
        100,
        """
        table = torch.empty(16 * 2**20, dtype=torch.uint8, device="cuda")    # the table
        try:
            torch.empty(2**30, device="cuda")
        except torch.OutOfMemoryError as error:
            raise RuntimeError("the cache does not fit") from error
    """,
    )
    memory = memory_at_failure(recording)
    assert memory["requested_bytes"] == 2**32
    assert recording.manifest["failure"]["requested_bytes"] == 2**32
    assert lines_of(memory, "other") == {recording.line_of("# the table"): 16}


def test_memory_history_of_program_is_preserved() -> None:
    recording = record_limited(
        300,
        """
        torch.cuda.memory._record_memory_history(max_entries=1000)
        model = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(6)]).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(20):
            x = torch.randn(8, 2048, device="cuda")    # the batch
            optimizer.zero_grad()
            try:
                model(x).sum().backward()
                optimizer.step()    # the step
            except torch.OutOfMemoryError:
                trace = torch.cuda.memory._snapshot()["device_traces"][0]
                actions = sorted({entry["action"] for entry in trace})
                print("traced", *actions, len(trace) > 20, flush=True)
                raise
    """,
    )
    memory = memory_at_failure(recording)
    assert list(lines_of(memory, "optimizer_state")) == [recording.line_of("# the step")]
    traced = recording.printed.partition("traced ")[2].splitlines()[0].split()
    assert {"alloc", "oom", "True"} <= set(traced)


def test_memory_history_is_off_during_timed_iterations() -> None:
    recording = record("""
        import torch
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def has_history(tensor):
            address = tensor.untyped_storage().data_ptr()
            for segment in torch.cuda.memory_snapshot():
                for block in segment["blocks"]:
                    if block["address"] == address:
                        return bool(block.get("frames"))
        for _ in range(20):
            x = torch.randn(8, 8, device="cuda")
            print("history", has_history(x), flush=True)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    history = [line.split()[1] for line in recording.printed.splitlines() if "history" in line]
    warm_up = history.index("False")
    assert warm_up >= 1
    assert set(history[:warm_up]) == {"True"}
    assert set(history[warm_up:]) == {"False"}
