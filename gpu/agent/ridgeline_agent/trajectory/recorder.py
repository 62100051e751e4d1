"""Records the losses and gradient norms of a program's first steps, to compare it with an edited
version. Both run from the same seed, so an edit that changes only the speed leads to the same
values, up to rounding.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from json import dump
from typing import Any

import torch
import torch._inductor.config

from ..program.random_state import seed_generators
from ..protocol.host import Host
from ..system.private_files import private
from .patches import loss_values

# Gradient accumulation has several backward passes for a step.
_MAX_LOSSES_PER_STEP = 16


class TrajectoryRecorder:
    """Ends the process after the requested number of optimizer steps."""

    def __init__(self, out: str, steps: int, host: Host) -> None:
        self._out = out
        self._steps = steps
        self._host = host
        self._process = os.getpid()
        self._losses: list[float | None] = []
        # The number of losses before a step, and the norm of its gradients.
        self._gradient_norms: list[tuple[int, float | None]] = []

    def install(self) -> None:
        """Seeds all generators and begins to observe."""
        seed_generators()
        # Compiled code has its own generator unless it is set to use torch's.
        torch._inductor.config.fallback_random = True
        loss_values.install(self)

    def provided(
        self, batch_size: int, inputs: object, iterations: tuple[Callable[..., Any], ...]
    ) -> None:
        """See entry.Provided."""

    def iteration_ended(self) -> None:
        """See entry.Provided."""

    def went_backward(self, loss: float | None) -> None:
        """See loss_values.Observer."""
        if self._is_here():
            self._losses.append(_finite(loss))
            if len(self._losses) >= _MAX_LOSSES_PER_STEP * self._steps:
                self._finish()

    def will_step(self, gradient_norm: float | None) -> None:
        """See loss_values.Observer."""
        if self._is_here():
            self._gradient_norms.append((len(self._losses), _finite(gradient_norm)))
            if len(self._gradient_norms) >= self._steps:
                self._finish()

    def ended(self) -> str:
        """The program ended before it made all steps."""
        self._write()
        return "complete"

    def failed(self, error: BaseException) -> None:
        """The program failed. Nothing is compared."""

    def _finish(self) -> None:
        try:
            self._write()
        except OSError as error:
            self._host.finish("exited", f"the losses could not be written: {error.strerror}")
        self._host.finish("complete")

    def _write(self) -> None:
        values = {"losses": self._losses, "gradient_norms": self._gradient_norms}
        with open(os.path.join(self._out, "trajectory.json"), "w", opener=private) as file:
            dump(values, file)

    def _is_here(self) -> bool:
        return os.getpid() == self._process


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
