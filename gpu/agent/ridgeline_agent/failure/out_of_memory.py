"""The contents of a GPU's memory when an allocation failed: `failure.memory` of the manifest.

The CUDA allocator calls an observer before it raises, while everything is still allocated. The
allocator's history (`torch.cuda.memory`) stores the Python stack of each live block, and so the
line that allocated it. It takes about 0.3 µs per allocation, so it is on until the timing begins.
Most programs that run out of memory do so in their first two iterations.

A program that catches the error and continues is not affected: the observer keeps no tensor alive.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from ..program.batch import samples_in
from ..program.memory import MemoryWatch, other_tensors, storage_of, tensors_in
from ..program.modules import ModuleTable
from ..program.sources import Sources
from ..system import threads
from .exception import bytes_in, cuda_request, out_of_memory_in

_MAX_LINES = 20
# Freed blocks that a kernel on another stream may still use (`record_stream`).
_AWAITING = ("active_awaiting_free", "active_pending_free")
_OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\]")
_BACKWARD = re.compile(r"[/\\]torch[/\\](?:autograd[/\\].*|_tensor\.py):(?:_engine_run_)?backward$")
_MODULE = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py:_call_impl$")
# In the messages of the caching allocator and cudaMallocAsync.
_OWN = re.compile(r"this process has (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB) memory in use")
_DEVICE = re.compile(r"[Dd]evice (\d+)")
_ALLOCATED = re.compile(r"Currently allocated +: (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB)")
_FREE = re.compile(r"Free \(according to CUDA\): (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB)")

Line = tuple[int, int]
Frames = list[dict[str, Any]]


class _Observation:
    """The allocator's state when it ran out of memory."""

    def __init__(
        self, device: int, requested: int, total: int, free: int, has_history: bool
    ) -> None:
        self.has_history = has_history
        self.device = device
        self.requested = requested
        self.total = total
        self.free = free
        self.phase = _phase_of(_stack_of(sys._getframe()), threads.is_of_autograd())
        self.segments = [
            segment for segment in torch.cuda.memory_snapshot() if segment["device"] == device
        ]


class OutOfMemoryWatch:
    """Observes the CUDA allocator of this process."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._pid = os.getpid()
        self._record: Any = None
        self._wants_history = True
        self._has_history = False
        # There is only one history, and the program's own use of it takes precedence.
        self._is_programs = False
        self._batch_size: int | None = None
        self._has_loader = False
        self._last: _Observation | None = None
        # Only the caching allocator has observers and a history.
        self._is_supported = True
        self._problem: Exception | None = None

    def install(self) -> None:
        """Call it before any user code runs. Nothing here initializes CUDA."""
        memory: Any = torch.cuda.memory
        self._record = getattr(memory, "_record_memory_history", None)
        if self._record is not None:
            memory._record_memory_history = self._program_records(self._record)
        if hasattr(torch._C, "_cuda_attach_out_of_memory_observer"):
            torch.cuda._lazy_call(self._initialized)

    def _program_records(self, original: Any) -> Any:
        @functools.wraps(original)
        def record(*args: Any, **kwargs: Any) -> Any:
            self.stop_history()
            self._is_programs = True
            return original(*args, **kwargs)

        return record

    def _initialized(self) -> None:
        """CUDA was initialized. An error here would appear as the program's."""
        if os.getpid() != self._pid:
            return
        try:
            torch._C._cuda_attach_out_of_memory_observer(self._ran_out)  # type: ignore[attr-defined]
            if self._wants_history:
                self._start_history()
        except RuntimeError:
            self._is_supported = False

    def start_history(self) -> None:
        """Starts recording the line that allocates each block."""
        self._wants_history = True
        if torch.cuda.is_initialized() and self._is_supported:
            self._start_history()

    def _start_history(self) -> None:
        if self._record is None or self._is_programs or self._has_history:
            return
        self._record("state", context="state", stacks="python", max_entries=1)
        self._has_history = True

    def stop_history(self) -> None:
        """Stops recording, because the timing begins. The lines of live blocks stay known."""
        self._wants_history = False
        if self._has_history:
            self._has_history = False
            self._record(None)

    def loaded(self, loader: Any, batch: object) -> None:
        """A data loader returned a batch."""
        self._has_loader = True
        samples = samples_in(loader, batch)
        self._batch_size = self._batch_size if samples is None else samples.size

    def given(self, inputs: object) -> None:
        """An outermost module is called with these inputs."""
        if self._has_loader:
            return
        first = next((tensor for tensor in tensors_in(inputs) if tensor.dim() > 1), None)
        if first is not None and first.grad_fn is None:
            self._batch_size = int(first.shape[0])

    def _ran_out(self, device: int, requested: int, total: int, free: int) -> None:
        """The allocator has released what it could, and is about to raise. It holds no lock."""
        if os.getpid() != self._pid:
            return
        try:
            has_history = self._has_history or self._is_programs
            self._last = _Observation(device, requested, total, free, has_history)
        except Exception as error:
            # The program's own error must be raised, not this one.
            self._last, self._problem = None, error

    def json(
        self,
        error: BaseException,
        table: ModuleTable,
        optimizers: list[torch.optim.Optimizer],
        others_go_backward: bool,
    ) -> dict[str, Any] | None:
        """Returns `failure.memory` if this error is the last one that was observed.

        Call it where the exception is caught: live tensors (weights, gradients, states) still have
        the addresses that they had when memory ran out.
        """
        cause = out_of_memory_in(error)
        message = "" if cause is None else str(cause)
        if cause is None or not torch.cuda.is_initialized() or "DefaultCPUAllocator" in message:
            return None
        seen = self._last
        if seen is None or not _is_of(message, seen.requested):
            return self._unobserved(message, table, optimizers, others_go_backward)
        device = torch.device("cuda", seen.device)
        kinds = self._kinds(device, table, optimizers, others_go_backward)
        known = {address: kind for address, _, kind in kinds}
        held = _BlockTotals(self._sources, known, seen.has_history)
        for segment in seen.segments:
            held.add(segment)
        own = bytes_in(_OWN, message)
        return {
            "device": str(device),
            "requested_bytes": seen.requested,
            "capacity_bytes": torch.cuda.get_device_properties(device).total_memory,
            # Less than the capacity if the program set a memory fraction.
            "limit_bytes": seen.total,
            "free_bytes": seen.free,
            "process_bytes": own,
            "reserved_bytes": sum(segment["total_size"] for segment in seen.segments),
            "allocated_bytes": held.total,
            "graph_pool_bytes": sum(
                segment["total_size"] for segment in seen.segments if _is_of_graph(segment)
            ),
            "expandable_segments": any(
                segment.get("is_expandable", False) for segment in seen.segments
            ),
            "phase": seen.phase,
            "batch_size": self._batch_size,
            "held": held.json(),
        }

    def _unobserved(self, message: str, *about: Any) -> dict[str, Any]:
        """Returns what is known without the observer: with another allocator than the caching one,
        or if a CUDA library allocates by itself.
        """
        if self._problem is not None:
            raise self._problem
        device = torch.device("cuda", int((_DEVICE.search(message) or ["", "0"])[1]))
        held: dict[str, int] = {}
        for _, size, kind in self._kinds(device, *about):
            held[kind] = held.get(kind, 0) + size
        allocated = bytes_in(_ALLOCATED, message)
        if allocated is not None and allocated > sum(held.values()):
            held["unattributed"] = allocated - sum(held.values())
        kinds = sorted(held, key=lambda kind: -held[kind])
        return {
            "device": str(device),
            "requested_bytes": cuda_request(message),
            "capacity_bytes": torch.cuda.get_device_properties(device).total_memory,
            "free_bytes": bytes_in(_FREE, message),
            "allocated_bytes": allocated,
            "batch_size": self._batch_size,
            "held": [{"kind": kind, "bytes": held[kind], "lines": []} for kind in kinds],
        }

    def _kinds(
        self,
        device: torch.device,
        table: ModuleTable,
        optimizers: list[torch.optim.Optimizer],
        others_go_backward: bool,
    ) -> Iterator[tuple[int, int, str]]:
        """Yields address, bytes and kind of each storage that is reachable from Python."""
        watch = MemoryWatch(device)
        watch.others_go_backward = others_go_backward
        watch.begin(table, optimizers, ())
        named = {entry["ptr"] for entry in watch.baseline if entry["kind"] != "other"}
        for entry in watch.baseline:
            if entry["kind"] != "other":
                yield entry["ptr"], entry["bytes"], entry["kind"]
        for tensor in other_tensors():
            storage = storage_of(tensor, device)
            if storage is None or storage[0] in named:
                continue
            named.add(storage[0])
            is_batch = tensor.dim() > 0 and tensor.shape[0] == self._batch_size
            kind = "batch" if is_batch else "other"
            yield (*storage, "activation" if tensor.grad_fn is not None else kind)


class _BlockTotals:
    """Sums up blocks by kind and by the line that allocated them."""

    def __init__(self, sources: Sources, kinds: dict[int, str], has_history: bool) -> None:
        self._sources = sources
        self._has_history = has_history
        self._kinds = kinds
        self._bytes: dict[str, int] = {}
        self._lines: dict[str, dict[Line, int]] = {}
        self.total = 0

    def add(self, segment: dict[str, Any]) -> None:
        address = segment["address"]
        for block in segment["blocks"]:
            at, address = block.get("address", address), address + block["size"]
            is_awaiting = block["state"] in _AWAITING
            if block["state"] != "active_allocated" and not is_awaiting:
                continue
            frames: Frames = block.get("frames", [])
            known = self._kinds.get(at)
            kind = "awaiting_free" if is_awaiting else _kind_of(frames, known, self._has_history)
            self.total += block["size"]
            self._bytes[kind] = self._bytes.get(kind, 0) + block["size"]
            line = self._line(frames)
            if line is not None:
                lines = self._lines.setdefault(kind, {})
                lines[line] = lines.get(line, 0) + block["size"]

    def _line(self, frames: Frames) -> Line | None:
        """Returns the user's innermost line."""
        for frame in frames:
            file = self._sources.file(frame["filename"])
            if file is not None:
                return file, frame["line"]
        return None

    def json(self) -> list[dict[str, Any]]:
        """Returns the kinds, largest first."""
        kinds = sorted(self._bytes, key=lambda kind: -self._bytes[kind])
        return [
            {"kind": kind, "bytes": self._bytes[kind], "lines": self._lines_json(kind)}
            for kind in kinds
        ]

    def _lines_json(self, kind: str) -> list[dict[str, int]]:
        lines = self._lines.get(kind, {})
        largest = sorted(lines, key=lambda line: (-lines[line], line))[:_MAX_LINES]
        return [{"file": file, "line": line, "bytes": lines[file, line]} for file, line in largest]


def _kind_of(frames: Frames, known: str | None, has_history: bool) -> str:
    """Returns a block's kind, from the stack that allocated it and from Python's references.

    Only the graph references what autograd saves for the backward pass.
    """
    if known is not None and known != "other":
        return known
    # The engine's own threads run no Python, so their stacks are empty.
    is_engine = has_history and not frames and known is None
    phase = _phase_of([f"{frame['filename']}:{frame['name']}" for frame in frames], is_engine)
    if phase in ("backward", "optimizer"):
        return "temporary"
    return known if known is not None and phase is None else "activation"


def _phase_of(stack: list[str], is_engine: bool) -> str | None:
    """Returns the phase of an iteration of a stack; each frame is `file:function`."""
    if any(_OPTIMIZER.search(frame) for frame in stack):
        return "optimizer"
    if is_engine or any(_BACKWARD.search(frame) for frame in stack):
        return "backward"
    return "forward" if any(_MODULE.search(frame) for frame in stack) else None


def _stack_of(frame: types.FrameType | None) -> list[str]:
    stack = []
    while frame is not None:
        stack.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
        frame = frame.f_back
    return stack


def _is_of_graph(segment: dict[str, Any]) -> bool:
    """Whether the segment is in the private pool of a CUDA graph."""
    return tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)


def _is_of(message: str, requested: int) -> bool:
    """Whether the allocator's message, rounded to two decimals, is about this request."""
    reported = cuda_request(message)
    return reported is not None and abs(reported - requested) <= max(requested // 100, 1)
