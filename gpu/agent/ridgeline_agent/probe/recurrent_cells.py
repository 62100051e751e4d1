"""Times a recurrent cell in a loop over a sequence, and the layer that processes it in one call,
each with its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .arguments import ArgumentMismatchError
from .timing import side_by_side, time_calls

CELL, LAYER = "cell", "layer"
VARIANTS = (CELL, LAYER)
_KINDS: dict[str, tuple[Any, Any, dict[str, str]]] = {
    "LSTM": (nn.LSTMCell, nn.LSTM, {}),
    "GRU": (nn.GRUCell, nn.GRU, {}),
    "RNN_TANH": (nn.RNNCell, nn.RNN, {"nonlinearity": "tanh"}),
    "RNN_RELU": (nn.RNNCell, nn.RNN, {"nonlinearity": "relu"}),
}
# State sizes that a step stores for the backward pass: gates before and after their activation.
_STORED_STATES = 16


def probe_cell(
    request: Any,
    device: torch.device,
    memory_bytes: int,
    _rotate_bytes: float,
    until: float,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Returns its type, and nanoseconds of both; null if it cannot be run."""
    if not isinstance(request, dict):
        return {}
    name = str(request.get("type"))
    answer: dict[str, Any] = {"type": name, **dict.fromkeys(VARIANTS)}
    try:
        with torch.enable_grad():
            sequence = _Sequence(request, device, memory_bytes)
            ways = {CELL: sequence.by_cell, LAYER: sequence.by_layer}
            for way in ways.values():
                way()
            blocks = {key: _block(way, device) for key, way in ways.items()}
            times, error_message = side_by_side(blocks, until)
    except (ArgumentMismatchError, RuntimeError) as error:
        note(f"the cell {name} was not timed: {error}")
        return answer
    if error_message is not None:
        note(f"the cell {name} failed while timed: {error_message}")
    answer.update(times)
    return answer


def _block(way: Callable[[], object], device: torch.device) -> Callable[[], float]:
    return lambda: time_calls(lambda _: way(), 1, device)


class _Sequence:
    def __init__(self, request: dict[str, Any], device: torch.device, memory_bytes: int) -> None:
        kind = _KINDS.get(str(request.get("type")))
        sizes = [request.get(key) for key in ("steps", "batch", "input", "hidden")]
        if kind is None or not all(type(size) is int and 0 < size < 2**31 for size in sizes):
            raise ArgumentMismatchError("its sizes are unknown")
        steps, batch, width, hidden = (int(size or 0) for size in sizes)
        kept = steps * batch * (width + _STORED_STATES * hidden)
        weights = 4 * hidden * (width + hidden)
        if (2 * kept + 6 * weights) * 4 > memory_bytes:
            raise ArgumentMismatchError("its tensors are too large to allocate together")
        cell, layer, options = kind
        bias = request.get("bias") is not False
        self._cell = cell(width, hidden, bias=bias, device=device, **options)
        self._layer = layer(width, hidden, bias=bias, device=device, **options)
        self._inputs = torch.rand(steps, batch, width, device=device)
        self._state = torch.zeros(batch, hidden, device=device)

    def by_cell(self) -> None:
        """Runs the cell step by step, like a loop in a program."""
        is_lstm = isinstance(self._cell, nn.LSTMCell)
        state = (self._state, self._state) if is_lstm else self._state
        outputs = []
        for step in range(len(self._inputs)):
            state = self._cell(self._inputs[step], state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        _backward(torch.stack(outputs), self._cell)

    def by_layer(self) -> None:
        """Runs the layer on the whole sequence."""
        output, _ = self._layer(self._inputs)
        _backward(output, self._layer)


def _backward(output: torch.Tensor, module: nn.Module) -> None:
    torch.autograd.grad(output.sum(), tuple(module.parameters()))
