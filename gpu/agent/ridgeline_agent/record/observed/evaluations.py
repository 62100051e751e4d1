"""Calls of a model whose results no backward pass used: `observed.evaluations` of the manifest.

A call counts where that is certain. Its results belong to no graph, or the graph was freed and no
backward pass had come through any part of it. Nothing is said of a line from which another call was
used, or cannot be told: where training and validation share a function that calls the model, what
validates is the line that calls this function.
"""

from __future__ import annotations

import itertools
import types
import weakref
from typing import Any

import torch
from torch import nn

from ...program.modules import ModuleTable
from ...program.sources import Sources
from ..transforms import is_transformed
from .graph_marks import BackwardPasses, MarkedCall

_MOST_CALLS = 2000
_MOST_EVALUATIONS = 64
_MOST_FUNCTIONS = 10_000
# The line that calls the model, and those that lead to it.
_MOST_LINES = 8
_MODES_DIFFER = (nn.modules.batchnorm._NormBase, nn.RNNBase, nn.MultiheadAttention)

Place = tuple[int, int]


class _Call(MarkedCall):
    def __init__(
        self, passes: BackwardPasses, module: nn.Module, lines: list[Place], training: bool
    ) -> None:
        super().__init__(passes)
        self.module = weakref.ref(module)
        # Innermost first.
        self.lines = lines
        self.in_training_mode = training
        self.returned = False

    @property
    def is_evaluation(self) -> bool:
        if not self.returned or self.is_unclear or self.used_by:
            return False
        return self.graph_is_gone if self.has_graph else self.tensors > 0


class Evaluations:
    """Looks at outermost module calls, one at a time."""

    def __init__(self, sources: Sources, passes: BackwardPasses) -> None:
        self._sources = sources
        self._passes = passes
        self._calls: list[_Call] = []
        self._open: _Call | None = None
        # By identity: the module, and those within it for which the mode makes a difference.
        self._layers: dict[int, tuple[weakref.ref[nn.Module], list[weakref.ref[nn.Module]]]] = {}

    def entered(self, module: nn.Module, frame: types.FrameType | None) -> None:
        """An outermost call of a module begins."""
        self._open = None
        if len(self._calls) >= _MOST_CALLS or next(module.parameters(), None) is None:
            return
        lines = list(itertools.islice(self._sources.user_lines(frame), _MOST_LINES))
        if not lines or is_transformed() or _is_within_function(frame):
            return
        self._open = _Call(self._passes, module, lines, self._in_training_mode(module))
        self._calls.append(self._open)

    def gave(self, module: nn.Module, output: Any) -> None:
        """The module, or one within it, returned."""
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
        """What was seen counts for nothing."""
        self._calls.clear()
        self._open = None

    def json(self, table: ModuleTable) -> list[dict[str, object]]:
        """`observed.evaluations` of the manifest."""
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
                "calls": len(same),
                "with_gradients": any(call.has_graph for call in same),
                "in_training_mode": any(call.in_training_mode for call in same),
            }
            for ((file, line), index), same in calls.items()
        ][:_MOST_EVALUATIONS]

    def _in_training_mode(self, module: nn.Module) -> bool:
        if not module.training:
            return False
        known = self._layers.get(id(module))
        if known is None or known[0]() is not module:
            layers = [weakref.ref(layer) for layer in module.modules() if _modes_differ(layer)]
            known = self._layers[id(module)] = (weakref.ref(module), layers)
        return any(layer.training for found in known[1] if (layer := found()) is not None)


def _modes_differ(layer: nn.Module) -> bool:
    """Whether a layer does something else in training than in evaluation."""
    if isinstance(layer, _MODES_DIFFER):
        # Of a normalization: whether it keeps statistics.
        keeps = getattr(layer, "track_running_stats", False)
        return bool(keeps) or float(getattr(layer, "dropout", 0.0) or 0.0) > 0
    if "Drop" in type(layer).__name__:
        # `drop_prob` is what DropPath has in most libraries.
        share = getattr(layer, "p", None) or getattr(layer, "drop_prob", None)
        return isinstance(share, (int, float)) and share > 0
    return _drops_by_function(layer)


def _drops_by_function(layer: nn.Module) -> bool:
    """Whether `forward` has `F.dropout(…, training=self.training)`, with a share above 0."""
    # A scripted module's class has none.
    forward = getattr(type(layer), "forward", None)
    names = getattr(getattr(forward, "__code__", None), "co_names", ())
    if "training" not in names or not any("dropout" in name for name in names):
        return False
    shares = [value for name, value in vars(layer).items() if "drop" in name.lower()]
    numbers = [value for value in shares if isinstance(value, (int, float))]
    return not numbers or any(value > 0 for value in numbers)


def _is_within_function(frame: types.FrameType | None) -> bool:
    """Whether a custom function of autograd makes this call: checkpoints, for one, compute the
    results again in the backward pass.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "forward":
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if isinstance(first, torch.autograd.function.FunctionCtx):
                return True
            # One that keeps what it needs in `setup_context` has no context to be told by.
            if not isinstance(first, nn.Module) and code in _forwards(torch.autograd.Function):
                return True
        frame = frame.f_back
    return False


def _forwards(kind: Any) -> set[object]:
    """The code of `forward` of all functions that are derived from this one."""
    codes, waiting = set(), [kind]
    for one in waiting:
        waiting.extend(type.__subclasses__(one)[:_MOST_FUNCTIONS])
        codes.add(getattr(getattr(one, "forward", None), "__code__", None))
        if len(waiting) > _MOST_FUNCTIONS:
            break
    return codes
