"""Programs that only call their model: evaluation, inference, and token-by-token text generation.

Generation is detected only if the calls clearly show it: one module is called without gradients on
integers, and each call has one token more than the previous one, or only the newest token if a KV
cache stores the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from .finder import BACKWARD, MODULE, OPTIMIZER, IterationFinder

# Later calls may all have as many tokens as the model accepts.
_MAX_CALLS = 64
_MIN_STEPS = 4
# Shorter texts cannot be distinguished from inputs of varying length.
_STEPS_OF_A_TEXT = 16


class ForwardOnly:
    """Watches the inputs of outermost modules until a stronger signal determines the iterations."""

    def __init__(self, finder: IterationFinder) -> None:
        self._finder = finder
        # Whether a loader returned batches. If so, batches are counted instead.
        self.has_loader = False
        # By module: sequences and tokens of each call, or None for other inputs.
        self._calls: dict[int, list[tuple[int, int] | None]] = {}

    def given(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost module is called."""
        calls = self._calls.get(id(module))
        if calls is None:
            if len(self._calls) >= _MAX_CALLS:
                return
            calls = self._calls[id(module)] = []
        if len(calls) < _MAX_CALLS:
            calls.append(None if torch.is_grad_enabled() else _tokens((*args, *kwargs.values())))

    def note(self) -> str | None:
        """Returns a note for the user about the iterations, or None if the program trains."""
        if not self._is_forward_only():
            return None
        if self._sequences() is not None:
            return "generation: an iteration is one forward pass, which produces one token"
        passes = self._finder.signals_per_iteration
        count = "one forward pass" if passes == 1 else f"{passes} forward passes"
        waited = self._finder.seconds_waited
        if waited is not None:
            return (
                f"not training: no optimizer step within {waited:g} s of the first forward pass, "
                f"so an iteration is {count}. A higher time limit (`--seconds`) waits longer for "
                "training"
            )
        return f"forward only: the program runs no backward pass, so an iteration is {count}"

    def with_unit(self, batch: dict[str, object] | None) -> dict[str, object] | None:
        """Returns `batch` for the manifest, with a unit if that is not samples."""
        sequences = self._sequences()
        if batch is None or batch.get("from") != "input" or sequences is None:
            return batch
        return {**batch, "size": sequences, "unit": "token"}

    def _is_forward_only(self) -> bool:
        seen = self._finder.seen
        return self._finder.found_by == MODULE and not seen[BACKWARD] and not seen[OPTIMIZER]

    def _sequences(self) -> int | None:
        """Returns how many sequences get a token in each iteration, or None if it does not generate
        text.
        """
        if (
            self.has_loader
            or not self._is_forward_only()
            or self._finder.signals_per_iteration != 1
        ):
            return None
        return _sequences(max(self._calls.values(), key=len, default=[]))


def _sequences(calls: list[tuple[int, int] | None]) -> int | None:
    steps = beginnings = 0
    for before, now in zip(calls, calls[1:]):
        if before is None or now is None or before[0] != now[0]:
            return None
        is_step = now[1] in (1, before[1] + 1)
        # The model's context may be full.
        is_full = now[1] == before[1] and steps > 0
        steps += is_step
        beginnings += not is_step and not is_full
    last = calls[-1] if calls else None
    if last is None or steps < _MIN_STEPS or beginnings > steps // _STEPS_OF_A_TEXT:
        return None
    return last[0]


def _tokens(values: Iterable[object]) -> tuple[int, int] | None:
    """Returns sequences and tokens per sequence of the first tensor argument."""
    for value in values:
        if isinstance(value, torch.Tensor):
            is_whole = value.dtype in (torch.int32, torch.int64) and value.dim() == 2
            return (int(value.shape[0]), int(value.shape[1])) if is_whole else None
    return None
