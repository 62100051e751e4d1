"""Peak memory of an iteration, and what holds it (docs/op-list.md, `memory`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..patches.hooks import BACKWARD, DATA, OPTIMIZER
from ..program.memory import MemoryWatch

# Block sizes of CUDA's caching allocator are multiples of this (`kMinBlockSize`).
_CUDA_BLOCK = 512

# The address of an operator's transient memory.
_TRANSIENT_ADDRESS = -1

# Phase, stack and module of an operator.
Place = tuple[int, int, int]


class MemoryEvents:
    """Allocations and frees during one iteration, and the memory that existed before it."""

    def __init__(self, is_counted: Callable[[int], bool], on_cuda: bool) -> None:
        self._is_counted = is_counted
        self._round = _CUDA_BLOCK if on_cuda else 1
        self._baseline: dict[int, dict[str, Any]] = {}
        # Address, bytes (negative for a free), and the next operator.
        self._events: list[tuple[int, int, int]] = []

    def begin(self, watch: MemoryWatch, alive: dict[int, tuple[int, Any]]) -> None:
        """Begins the iteration. Unnamed live memory belongs to a graph or a list."""
        for entry in watch.baseline:
            self._baseline[entry["ptr"]] = entry
        # A copy, because a garbage collection may free storages meanwhile.
        for address, (size, _) in alive.copy().items():
            if self._is_counted(address) and address not in self._baseline:
                self._baseline[address] = {"bytes": size, "kind": "other", "module": None}

    def add(self, address: int, size: int, operator: int) -> None:
        """A storage was allocated or freed."""
        if self._is_counted(address):
            self._events.append((address, size, operator))

    def transient(self, size: int, operator: int) -> None:
        """An operator uses this many bytes until it ends."""
        if size > 0:
            self._events.append((_TRANSIENT_ADDRESS, size, operator))
            self._events.append((_TRANSIENT_ADDRESS, -size, operator))

    def json(self, watch: MemoryWatch, places: Callable[[int], Place]) -> dict[str, Any]:
        """Returns `memory` of docs/op-list.md."""
        alive = {
            address: (self._rounded(entry["bytes"]), -1)
            for address, entry in self._baseline.items()
        }
        kept = ("weight", "buffer", "optimizer_state")
        baseline = sum(
            self._rounded(entry["bytes"])
            for entry in self._baseline.values()
            if entry["kind"] in kept
        )
        now = peak = sum(size for size, _ in alive.values())
        at_peak, peak_operator, peak_event = dict(alive), None, -1
        for index, (address, size, operator) in enumerate(self._events):
            if size > 0:
                alive[address] = (self._rounded(size), operator)
                now += self._rounded(size)
                if now > peak:
                    peak, peak_operator, peak_event = now, operator, index
            elif address in alive:
                now -= alive.pop(address)[0]
        # Replayed up to the peak, because copying at every new maximum would take quadratic time.
        if peak_event >= 0:
            at_peak = self._alive_after(peak_event)
        freed_in = self._freed_in(places)
        held: dict[tuple[str, int, int], int] = {}
        for address, (size, operator) in at_peak.items():
            key = self._holder(address, operator, watch, places, freed_in)
            held[key] = held.get(key, 0) + size
        return {
            "peak_bytes": peak,
            "peak_op": peak_operator,
            "at_peak": [[size, *key] for key, size in held.items()],
            "baseline_bytes": baseline,
        }

    def _rounded(self, size: int) -> int:
        return size + -size % self._round

    def _alive_after(self, last: int) -> dict[int, tuple[int, int]]:
        alive = {
            address: (self._rounded(entry["bytes"]), -1)
            for address, entry in self._baseline.items()
        }
        for address, size, operator in self._events[: last + 1]:
            if size > 0:
                alive[address] = (self._rounded(size), operator)
            else:
                alive.pop(address, None)
        return alive

    def _freed_in(self, places: Callable[[int], Place]) -> dict[int, int]:
        """Returns the phase in which each storage was freed."""
        return {
            address: places(operator)[0] for address, size, operator in self._events if size < 0
        }

    def _holder(
        self,
        address: int,
        operator: int,
        watch: MemoryWatch,
        places: Callable[[int], Place],
        freed_in: dict[int, int],
    ) -> tuple[str, int, int]:
        """Returns kind, stack and module of a storage."""
        entry = self._baseline.get(address)
        if operator < 0 and entry is not None:
            module = entry["module"]
            return entry["kind"], -1, -1 if module is None else module
        phase, stack, module = places(operator)
        if address == _TRANSIENT_ADDRESS:
            return "temporary", stack, module
        freed = freed_in.get(address)
        if address in watch.gradients:
            owner = watch.gradients[address]["module"]
            return "gradient", stack, module if owner is None else owner
        if address in watch.batch or phase == DATA:
            kind = "batch"
        elif phase == OPTIMIZER:
            kind = "temporary" if freed == OPTIMIZER else "optimizer_state"
        elif phase == BACKWARD:
            kind = "temporary"
        else:
            kind = "activation" if freed is None or freed == BACKWARD else "temporary"
        return kind, stack, module
