"""Calls of a model whose results no backward pass used: `observed.evaluations` of the manifest.

A call counts only if that is certain: its results belong to no graph, or the graph was freed before
a backward pass reached any part of it. A line is not reported if another call from it was used or
is unclear: if training and validation share a function that calls the model, the validation line is
the one that calls this function.
"""

from __future__ import annotations

import itertools
import types
import weakref
from typing import Any

import torch
from torch import nn

from ...program.modules import ModuleTable, has_parameters, tree_of
from ...program.sources import Sources
from ..transforms import is_transformed
from .graph_marks import BackwardPasses, MarkedCall

_MAX_CALLS = 2000
_MAX_EVALUATIONS = 64
_MAX_FUNCTIONS = 10_000
# The line that calls the model, and its callers.
_MAX_LINES = 8
_MODES_DIFFER = (nn.modules.batchnorm._NormBase, nn.RNNBase, nn.MultiheadAttention)

Place = tuple[int, int]


class _Call(MarkedCall):
    def __init__(
        self, passes: BackwardPasses, module: nn.Module, lines: list[Place], training: bool
    ) -> None:
        super().__init__(passes)
        self.module = weakref.ref(module)
        # Innermost line first.
        self.lines = lines
        self.in_training_mode = training
        self.returned = False

    @property
    def is_evaluation(self) -> bool:
        if not self.returned or self.is_unclear or self.used_by:
            return False
        return self.graph_is_gone if self.has_graph else self.tensors > 0


class Evaluations:
    """Inspects outermost module calls, one at a time."""

    def __init__(self, sources: Sources, passes: BackwardPasses) -> None:
        self._sources = sources
        self._passes = passes
        self._calls: list[_Call] = []
        self._open: _Call | None = None
        # By object ID: the module, and its layers that behave differently in training mode.
        self._layers: dict[int, tuple[weakref.ref[nn.Module], list[weakref.ref[nn.Module]]]] = {}

    def entered(self, module: nn.Module, frame: types.FrameType | None) -> None:
        """An outermost call of a module begins."""
        self._open = None
        if len(self._calls) >= _MAX_CALLS or not has_parameters(module):
            return
        lines = list(itertools.islice(self._sources.user_lines(frame), _MAX_LINES))
        if not lines or is_transformed() or _is_within_function(frame):
            return
        self._open = _Call(self._passes, module, lines, self._in_training_mode(module))
        self._calls.append(self._open)

    def gave(self, module: nn.Module, output: Any) -> None:
        """The module, or one inside of it, returned."""
        call = self._open
        if call is None:
            return
        is_its_own = call.module() is module
        call.mark(output, is_its_own)
        call.returned |= is_its_own

    def left(self) -> None:
        """The outermost call ended."""
        self._open = None

    def forget(self) -> None:
        """Discards all observations."""
        self._calls.clear()
        self._open = None

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """Returns `observed.evaluations` for the manifest."""
        used = {line for call in self._calls if not call.is_evaluation for line in call.lines}
        calls: dict[tuple[Place, int], list[_Call]] = {}
        for call in self._calls:
            module = call.module()
            index = None if module is None else table.index_of(module)
            place = next((line for line in call.lines if line not in used), None)
            if index is not None and place is not None:
                calls.setdefault((place, index), []).append(call)
        return [
            {
                "at": {"file": file, "line": line},
                "module": index,
                "calls": len(calls_there),
                "with_gradients": any(call.has_graph for call in calls_there),
                "in_training_mode": any(call.in_training_mode for call in calls_there),
            }
            for ((file, line), index), calls_there in calls.items()
        ][:_MAX_EVALUATIONS]

    def _in_training_mode(self, module: nn.Module) -> bool:
        if not module.training:
            return False
        known = self._layers.get(id(module))
        if known is None or known[0]() is not module:
            layers = [weakref.ref(layer) for layer in tree_of(module) if _modes_differ(layer)]
            known = self._layers[id(module)] = (weakref.ref(module), layers)
        return any(layer.training for found in known[1] if (layer := found()) is not None)


def _modes_differ(layer: nn.Module) -> bool:
    """Whether a layer behaves differently in training and in evaluation mode."""
    if isinstance(layer, _MODES_DIFFER):
        # For a normalization layer: whether it tracks statistics.
        keeps = getattr(layer, "track_running_stats", False)
        return bool(keeps) or float(getattr(layer, "dropout", 0.0) or 0.0) > 0
    if "Drop" in type(layer).__name__:
        # Most libraries' DropPath has `drop_prob`.
        drop_rate = getattr(layer, "p", None) or getattr(layer, "drop_prob", None)
        return isinstance(drop_rate, (int, float)) and drop_rate > 0
    return _drops_by_function(layer)


def _drops_by_function(layer: nn.Module) -> bool:
    """Whether `forward` has `F.dropout(…, training=self.training)` with a rate above 0."""
    # A scripted module's class has no forward.
    forward = getattr(type(layer), "forward", None)
    names = getattr(getattr(forward, "__code__", None), "co_names", ())
    if "training" not in names or not any("dropout" in name for name in names):
        return False
    rates = [value for name, value in vars(layer).items() if "drop" in name.lower()]
    numbers = [value for value in rates if isinstance(value, (int, float))]
    return not numbers or any(value > 0 for value in numbers)


def _is_within_function(frame: types.FrameType | None) -> bool:
    """Whether a custom autograd function makes this call. Checkpointing, for example, computes the
    results again in the backward pass.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward":
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if isinstance(first, torch.autograd.function.FunctionCtx):
                return True
            # A function with `setup_context` has no context argument to detect it by.
            if not isinstance(first, nn.Module) and code in _forwards(torch.autograd.Function):
                return True
        frame = frame.f_back
    return False


def _forwards(kind: Any) -> set[object]:
    """Returns the code of `forward` of all subclasses of this function."""
    codes, pending = set(), [kind]
    for one in pending:
        pending.extend(type.__subclasses__(one)[:_MAX_FUNCTIONS])
        codes.add(getattr(getattr(one, "forward", None), "__code__", None))
        if len(pending) > _MAX_FUNCTIONS:
            break
    return codes
