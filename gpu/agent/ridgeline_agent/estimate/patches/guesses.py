"""Guesses for values that a program reads but that are unknown.

A guess is reported only if it decides something: a branch, a shape, an index. Numbers that are read
to be printed or summed up are not.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from ..operator_results import NewTensor

_MAX_MARKS = 50
_Mark = Callable[[str], None]


class Guesses:
    """Provides guesses, and records the lines where a guess decided something."""

    def __init__(self, place: Callable[[types.FrameType], tuple[int, int] | None]) -> None:
        self._place = place
        # File and line, and what was guessed there.
        self._marks: dict[tuple[int, int, str], None] = {}
        self._is_known: Callable[[torch.Tensor], bool] = lambda _: False
        self._values: Any = torch.Tensor.tolist
        # Set in library code, where reading a value does not decide anything for the user.
        self.quiet = False

    def mark(self, what: str) -> None:
        """Records that a guess decides something here."""
        if self.quiet or len(self._marks) >= _MAX_MARKS:
            return
        place = self._place(sys._getframe(1))
        if place is not None:
            self._marks[(*place, what)] = None

    def json(self) -> list[dict[str, Any]]:
        """Returns `guessed` of docs/op-list.md."""
        return [{"file": file, "line": line, "what": what} for file, line, what in self._marks]

    def result(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns an operator's result that depends on values, or None for other operators."""
        known = _BY_VALUE.get(name.partition(".")[0])
        if known is None:
            return None
        if known not in _WITHOUT_META:
            self.mark("the number of elements selected by tensor values is unknown; assumed all")
        return known(*args, **kwargs)

    def batch_sizes(self, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> list[int]:
        """Returns how many sequences of a padded batch are active at each step. Unknown lengths are
        assumed to be the maximum.
        """
        batch, length = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
        if not self._is_known(lengths):
            self.mark("sequence lengths are unknown; all assumed to be the maximum")
            return [batch] * length
        known = [int(one) for one in self._values(lengths)]
        return [sum(one > step for one in known) for step in range(max(known, default=0))]

    def scalar(self, tensor: torch.Tensor, is_likely: bool) -> Any:
        """Returns the value of a one-element tensor. `is_likely` says whether true is the expected
        value: it is for "are all of them finite", but not for "is any of them".
        """
        if tensor.dtype is torch.bool:
            taken = "true" if is_likely else "false"
            self.mark(f"control flow depends on a tensor value; assumed {taken}")
            return is_likely
        if tensor.dtype.is_complex:
            return complex(1.0)
        return 1.0 if tensor.dtype.is_floating_point else 1

    def number(self, value: Any) -> Any:
        """Wraps a guessed number so that it reports when it decides something."""
        if type(value) is float:
            return GuessedFloat.of(value, self)
        return GuessedInt.of(value, self) if type(value) is int else value

    def install(self, is_known: Callable[[torch.Tensor], bool]) -> None:
        """Makes `Tensor.item` and `tolist` return guessed numbers. `is_known` says whether a
        tensor's values are known.
        """
        self._is_known = is_known
        tensor: Any = torch.Tensor
        item, tolist, decide, index = (
            tensor.item,
            tensor.tolist,
            tensor.__bool__,
            tensor.__index__,
        )

        def item_or_guess(self_: Any) -> Any:
            return item(self_) if is_known(self_) else self.number(item(self_))

        def list_or_guess(self_: Any) -> Any:
            if self_.dim() == 0:
                return item_or_guess(self_)
            if not is_known(self_):
                self.mark("a list of tensor values is unknown; assumed zeros")
            return tolist(self_)

        def decided(self_: Any) -> bool:
            if self_.dtype is not torch.bool and not is_known(self_):
                self.mark("control flow depends on a tensor value; assumed 1")
            return bool(decide(self_))

        def as_index(self_: Any) -> int:
            if not is_known(self_):
                self.mark("an index or a size depends on a tensor value; assumed 1")
            return int(index(self_))

        tensor.item, tensor.tolist = item_or_guess, list_or_guess
        tensor.__bool__, tensor.__index__ = decided, as_index


def _deciding(method: str, base: type) -> Any:
    original = getattr(base, method)

    def decide(self: Any, *others: Any) -> Any:
        self.guesses.mark("control flow depends on a number read from a tensor; assumed 1")
        return original(self, *others)

    return decide


def _carrying(method: str, base: type) -> Any:
    original = getattr(base, method)

    def carry(self: Any, *others: Any) -> Any:
        result = original(self, *others)
        return self.guesses.number(result) if type(result) in (int, float) else result

    return carry


_DECIDING = ("__bool__", "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
_CARRYING = (
    "__add__",
    "__radd__",
    "__sub__",
    "__rsub__",
    "__mul__",
    "__rmul__",
    "__truediv__",
    "__rtruediv__",
    "__neg__",
)


class GuessedFloat(float):
    """A guess. Numbers computed from it are guesses too."""

    guesses: Guesses

    @classmethod
    def of(cls, value: float, guesses: Guesses) -> GuessedFloat:
        """Wraps a value as a guess."""
        number = cls(value)
        number.guesses = guesses
        return number

    __hash__ = float.__hash__

    def __reduce__(self) -> Any:
        return float, (float(self),)


class GuessedInt(int):
    """A guess. Numbers computed from it are guesses too."""

    guesses: Guesses

    @classmethod
    def of(cls, value: int, guesses: Guesses) -> GuessedInt:
        """Wraps a value as a guess."""
        number = cls(value)
        number.guesses = guesses
        return number

    def __index__(self) -> int:
        self.guesses.mark("a size depends on a number read from a tensor; assumed 1")
        return int.__index__(self)

    __hash__ = int.__hash__

    def __reduce__(self) -> Any:
        return int, (int.__index__(self),)


for _base, _kind in ((float, GuessedFloat), (int, GuessedInt)):
    for _name in _DECIDING:
        setattr(_kind, _name, _deciding(_name, _base))
    for _name in _CARRYING:
        setattr(_kind, _name, _carrying(_name, _base))


def _tensor(shape: tuple[int, ...], dtype: torch.dtype) -> NewTensor:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return NewTensor(shape, tuple(strides), dtype, False)


def _nonzero(x: torch.Tensor) -> Any:
    return _tensor((x.numel(), x.dim()), torch.int64)


def _selected(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return _tensor((x.numel(),), x.dtype)


def _unique(x: torch.Tensor, *_: Any, **__: Any) -> Any:
    counts = _tensor((x.numel(),), torch.int64)
    return _tensor((x.numel(),), x.dtype), _tensor(tuple(x.shape), torch.int64), counts


def _repeated(repeats: torch.Tensor, output_size: int | None = None) -> Any:
    return _tensor((repeats.numel() if output_size is None else output_size,), torch.int64)


def _counted(x: torch.Tensor, weights: Any = None, minlength: int = 0) -> Any:
    return _tensor((max(minlength, 1),), torch.int64 if weights is None else torch.float64)


def _like(tensor: torch.Tensor) -> Any:
    return NewTensor(tuple(tensor.shape), tensor.stride(), tensor.dtype, False)


def _ctc_loss(log_probabilities: torch.Tensor, targets: torch.Tensor, *_: Any, **__: Any) -> Any:
    """Returns one loss per sequence, and what the backward pass needs: states for the targets, with
    blanks between and around them.
    """
    length, batch = log_probabilities.shape[:2]
    states = 2 * targets.shape[-1] + 1
    kind = log_probabilities.dtype
    return _tensor((batch,), kind), _tensor((batch, length, states), kind)


def _ctc_gradient(_: torch.Tensor, log_probabilities: torch.Tensor, *__: Any) -> Any:
    return _like(log_probabilities)


def _cudnn_gradients(x: Any, weights: Any, *rest: Any) -> Any:
    """Returns the gradients of a recurrent layer. torch has no meta kernel for it."""
    state, cell = rest[2], rest[3]
    return (
        _like(x),
        _like(state),
        _like(state if cell is None else cell),
        tuple(map(_like, weights)),
    )


# Results that do not depend on values, but for which torch has no meta kernel.
_WITHOUT_META = (_cudnn_gradients, _ctc_loss, _ctc_gradient)

_BY_VALUE: dict[str, Any] = {
    "aten::nonzero": _nonzero,
    "aten::masked_select": _selected,
    "aten::_unique2": _unique,
    "aten::_unique": lambda x, *_: _unique(x)[:2],
    "aten::unique_consecutive": _unique,
    "aten::repeat_interleave": _repeated,
    "aten::bincount": _counted,
    "aten::_cudnn_rnn_backward": _cudnn_gradients,
    "aten::_ctc_loss": _ctc_loss,
    "aten::_ctc_loss_backward": _ctc_gradient,
}
