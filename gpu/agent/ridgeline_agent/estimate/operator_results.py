"""Infers an operator's result without running it: shapes, strides and types.

Uses torch's meta kernels. If an operator has none, FakeTensorMode is used, which has decompositions
and more operators, and is ten times slower. Callers cache results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

# cuDNN and oneDNN return channels last if either the input or the weight has it (`ConvUtils.h`:
# `cudnn_conv_suggest_memory_format`, `mkldnn_conv_use_channels_last`). Meta kernels cannot know
# that.
_CONVOLUTIONS = {"aten::convolution": slice(0, 2), "aten::convolution_backward": slice(1, 3)}
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class Unsupported(Exception):
    """The operator's result cannot be inferred."""


class NewTensor(NamedTuple):
    """A result that is a new tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    on_device: bool


class Argument(NamedTuple):
    """A result that is one of the arguments."""

    number: int


class Value(NamedTuple):
    """A result that is not a tensor."""

    value: Any


class OperatorResults:
    """Infers results."""

    def __init__(self) -> None:
        self._fake_mode: Any = None

    def of(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_device: bool) -> Any:
        """Returns NewTensor, Argument or Value, nested like the operator's result.

        Raises Unsupported, and the operator's own exception for invalid arguments.
        """
        try:
            result = _run(func, args, kwargs, torch.device("meta"), on_device)
        except (NotImplementedError, RuntimeError):
            # The meta device may lack the operator. Invalid shapes fail again below.
            pass
        else:
            which = _CONVOLUTIONS.get(func._schema.name)
            return result if which is None else _in_layout_of(args[which], result)
        if func.namespace == "c10d":
            # Older versions of torch (such as 2.8) have none of them for the meta device. An
            # estimate's process group touches no tensor, so real tensors cost nothing.
            return _run(func, args, kwargs, torch.device("cpu"), on_device)
        fake = self._fake_tensors()
        unknown = (
            NotImplementedError,
            fake.UnsupportedOperatorException,
            fake.DynamicOutputShapeException,
            fake.DataDependentOutputException,
        )
        try:
            with self._fake_mode:
                # Only on the CPU, because FakeTensorMode may run an operator on zeros on other
                # devices.
                return _run(func, args, kwargs, torch.device("cpu"), on_device)
        except unknown as error:
            raise Unsupported(str(error).split("\n")[0]) from None

    def _fake_tensors(self) -> Any:
        # Imported late, because most programs never need it.
        from torch._subclasses import fake_tensor

        if self._fake_mode is None:
            self._fake_mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
        return fake_tensor


def _in_layout_of(given: tuple[Any, ...], result: Any) -> Any:
    """Applies channels last to a convolution's result if its image or weight has it."""
    if not any(map(_has_channels_last, given)):
        return result
    if type(result) is NewTensor:
        return _with_channels_last(result)
    return tuple(_with_channels_last(part) if type(part) is NewTensor else part for part in result)


def _has_channels_last(tensor: Any) -> bool:
    layout = _CHANNELS_LAST.get(tensor.dim())
    if layout is None or tensor.is_contiguous():
        return False
    return bool(tensor.is_contiguous(memory_format=layout))


def _with_channels_last(made: NewTensor) -> NewTensor:
    layout = _CHANNELS_LAST.get(len(made.shape))
    if layout is None:
        return made
    meta = torch.empty(made.shape, device="meta", memory_format=layout)
    return made._replace(stride=meta.stride())


def _run(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: torch.device,
    on_device: bool,
) -> Any:
    """Runs the operator on tensors of the same shapes on another device."""
    stand_ins: dict[int, int] = {}
    kept: list[torch.Tensor] = []

    def stand_in(value: Any, index: int = -1) -> Any:
        if isinstance(value, torch.Tensor):
            tensor = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=device
            )
            stand_ins[id(tensor)] = index
            kept.append(tensor)
            return tensor
        if isinstance(value, (list, tuple)):
            return [stand_in(item) for item in value]
        return value

    given = [stand_in(value, index) for index, value in enumerate(args)]
    named = {name: stand_in(value) for name, value in kwargs.items()}
    _place_on(named, device)
    return _described(func(*given, **named), stand_ins, on_device)


def _place_on(named: dict[str, Any], device: torch.device) -> None:
    """Placement arguments decide nothing else, and a generator belongs to a device."""
    if named.get("device") is not None:
        named["device"] = device
    if named.get("pin_memory"):
        named["pin_memory"] = False
    if named.get("generator") is not None:
        named["generator"] = None


def _described(result: Any, stand_ins: dict[int, int], on_device: bool) -> Any:
    if isinstance(result, torch.Tensor):
        index = stand_ins.get(id(result), -1)
        if index >= 0:
            return Argument(index)
        if result.layout is not torch.strided:
            raise Unsupported(f"unsupported layout of a result: {result.layout}")
        return NewTensor(tuple(result.shape), result.stride(), result.dtype, on_device)
    if isinstance(result, (list, tuple)):
        return tuple(_described(item, stand_ins, on_device) for item in result)
    return Value(result)
