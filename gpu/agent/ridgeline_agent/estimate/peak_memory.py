"""How much memory is held at most in an iteration, and by what (docs/op-list.md, `memory`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..patches.hooks import BACKWARD, DATA, OPTIMIZER
from ..program.memory import MemoryWatch

# CUDA's caching allocator gives out multiples of this (`kMinBlockSize`).
_CUDA_BLOCK = 512

# Stands for the address of what an operator holds in passing.
_NOWHERE = -1

# What is known of an operator: phase, stack and module.
Place = tuple[int, int, int]


class MemoryEvents:
    """What is taken and given back during one iteration, on top of what was there before."""

    def __init__(self, counts: Callable[[int], bool], on_cuda: bool) -> None:
        self._counts = counts
        self._round = _CUDA_BLOCK if on_cuda else 1
        self._baseline: dict[int, dict[str, Any]] = {}
        # Address, bytes (negative where they are given back), and the operator that was next.
        self._events: list[tuple[int, int, int]] = []

    def begin(self, watch: MemoryWatch, alive: dict[int, tuple[int, Any]]) -> None:
        """The iteration begins. What is alive and named by nobody is held by a graph or a list."""
        for entry in watch.baseline:
            self._baseline[entry["ptr"]] = entry
        # A copy: a collection of garbage ends storages meanwhile.
        for address, (size, _) in alive.copy().items():
            if self._counts(address) and address not in self._baseline:
                self._baseline[address] = {"bytes": size, "kind": "other", "module": None}

    def add(self, address: int, size: int, operator: int) -> None:
        """A storage was made or has ended."""
        if self._counts(address):
            self._events.append((address, size, operator))

    def in_passing(self, size: int, operator: int) -> None:
        """An operator holds so many bytes until it ends."""
        if size > 0:
            self._events.append((_NOWHERE, size, operator))
            self._events.append((_NOWHERE, -size, operator))

    def json(self, watch: MemoryWatch, places: Callable[[int], Place]) -> dict[str, Any]:
        """`memory` of docs/op-list.md."""
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
        # Replayed once more up to the peak: to copy at every new height would take the square.
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
        """The phase in which each storage was given back."""
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
        """Kind, stack and module."""
        entry = self._baseline.get(address)
        if operator < 0 and entry is not None:
            module = entry["module"]
            return entry["kind"], -1, -1 if module is None else module
        phase, stack, module = places(operator)
        if address == _NOWHERE:
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
