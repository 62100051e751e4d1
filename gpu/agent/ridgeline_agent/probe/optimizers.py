"""Times an optimizer step in each of PyTorch's implementations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch

from .arguments import ArgumentMismatchError
from .timing import side_by_side, time_calls

VARIANTS: dict[str, dict[str, bool]] = {
    "for-loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
# Parameters and gradients once, and for each variant up to two states and temporary memory.
_COPIES = 2 + 3 * len(VARIANTS)


class Step:
    """A variant of an optimizer step."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, sweep: torch.Tensor | None, device: torch.device
    ) -> None:
        self._optimizer = optimizer
        self._sweep = sweep
        self._device = device

    def warm_up(self) -> None:
        """Runs two steps. The first one creates the state."""
        for _ in range(2):
            self._optimizer.step()

    def block(self) -> float:
        """Returns nanoseconds per step. In training, a forward and a backward pass go through the
        caches between two steps; here, one write over as much memory.
        """
        if self._sweep is not None:
            self._sweep.add_(1)
        return time_calls(lambda _: self._optimizer.step(), 1, self._device)


def probe_optimizer(
    request: Any,
    device: torch.device,
    memory_bytes: int,
    rotate_bytes: float,
    until: float,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Returns its type, and nanoseconds per step by variant; null if not available."""
    if not isinstance(request, dict):
        return {}
    requested = request.get("variants")
    wanted = [one for one in VARIANTS if isinstance(requested, list) and one in requested]
    name = str(request.get("type"))
    answer: dict[str, Any] = {"type": name, **dict.fromkeys(wanted)}
    try:
        kind = _class(name)
        parameters = _parameters(request, device, memory_bytes)
    except (ArgumentMismatchError, RuntimeError) as error:
        note(f"the optimizer {name} was not timed: {error}")
        return answer
    options = request.get("options")
    parameters_of_class = inspect.signature(kind).parameters
    given = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in (options.items() if isinstance(options, dict) else ())
        if key in parameters_of_class and key not in ("params", "foreach", "fused", "capturable")
    }
    sweep = torch.zeros(int(rotate_bytes) // 4, device=device) if rotate_bytes >= 4 else None
    steps: dict[str, Step] = {}
    for variant in wanted:
        flags = {
            key: value for key, value in VARIANTS[variant].items() if key in parameters_of_class
        }
        if not any(flags.values()) and variant != "for-loop":
            note(f"{name} has no variant {variant}")
            continue
        try:
            step = Step(kind(parameters, **{**given, **flags}), sweep, device)
            step.warm_up()
            steps[variant] = step
        except Exception as error:
            text = (str(error).splitlines() or [""])[0][:200]
            note(f"{name} cannot run as {variant}: {type(error).__name__}: {text}")
    times, error_message = side_by_side({name: step.block for name, step in steps.items()}, until)
    if error_message is not None:
        note(f"{name} failed while timed: {error_message}")
    answer.update(times)
    return answer


def _class(name: str) -> Any:
    kind = getattr(torch.optim, name, None)
    if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
        raise ArgumentMismatchError("it is not a PyTorch optimizer")
    if kind is torch.optim.Optimizer or name in ("LBFGS", "SparseAdam"):
        raise ArgumentMismatchError("its step needs more than gradients")
    return kind


def _parameters(request: dict[str, Any], device: torch.device, memory_bytes: int) -> list[Any]:
    shapes = request.get("shapes")
    dtype = getattr(torch, str(request.get("dtype") or "float32"), None)
    if not isinstance(shapes, list) or not isinstance(dtype, torch.dtype) or not shapes:
        raise ArgumentMismatchError("its parameters are unknown")
    for shape in shapes:
        if not isinstance(shape, list) or not all(
            type(size) is int and size >= 0 for size in shape
        ):
            raise ArgumentMismatchError("its parameters are unknown")
    elements = sum(math.prod(shape) for shape in shapes)
    if elements * torch.empty(0, dtype=dtype).element_size() * _COPIES > memory_bytes:
        raise ArgumentMismatchError("its parameters are too large to allocate several times")
    parameters = []
    for shape in shapes:
        parameter = torch.nn.Parameter(torch.rand(shape, device=device).to(dtype))
        parameter.grad = torch.rand(shape, device=device).to(dtype)
        parameters.append(parameter)
    return parameters
