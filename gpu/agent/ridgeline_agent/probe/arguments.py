"""The arguments of a probed operator: tensors of the recorded shapes and types, and the other
arguments as recorded.
"""

from __future__ import annotations

import math
from typing import Any

import torch

SAME, BFLOAT16, FLOAT16, CHANNELS_LAST = "same", "bfloat16", "float16", "channels_last"

_NARROW = {BFLOAT16: torch.bfloat16, FLOAT16: torch.float16}
# The statistics and weights of normalization layers stay in float32 when their input becomes
# narrow.
_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm")
# Within (0, 1), so that logarithms, roots and probabilities are defined, and away from 0, so that
# no product becomes denormal, which is slow on a CPU.
_MIN_VALUE, _MAX_VALUE = 0.05, 0.95
# The maximum alignment that any kernel requires.
_ALIGNED_BYTES = 16
# Numbers without JSON representation, as the profiler writes them.
_NOT_FINITE = ("inf", "-inf", "nan")


class ArgumentMismatchError(Exception):
    """The recorded arguments do not match this operator. The message has the reason."""


class Call:
    """An overload of an operator with its arguments, ready to be called."""

    def __init__(
        self, overload: Any, args: list[Any], named: dict[str, Any], offset: int = 0
    ) -> None:
        self.overload = overload
        self.args = args
        self.named = named
        # Offset of copies from the start of their memory, in bytes.
        self._offset = offset

    def __call__(self) -> Any:
        return self.overload(*self.args, **self.named)

    @property
    def writes(self) -> bool:
        """Whether it changes its arguments."""
        return bool(self.overload._schema.is_mutable)

    def tensors(self) -> list[torch.Tensor]:
        """Returns all tensor arguments."""
        return _tensors([*self.args, *self.named.values()])

    def copy(self) -> Call:
        """Returns the same call on copies of the tensors."""
        return self._copy(self._offset)

    def minimally_aligned(self) -> Call:
        """Returns the same call on tensors that are aligned to only 16 bytes.

        PyTorch caches the plan that cuDNN chose for a convolution for the lifetime of the process:
        by shapes and tensor alignment, but not by `cudnn.benchmark`. Kernels read 16 bytes at once,
        so nothing else changes.
        """
        return self._copy(_ALIGNED_BYTES)

    def _copy(self, offset: int) -> Call:
        args = [_copied(arg, offset) for arg in self.args]
        named = {key: _copied(arg, offset) for key, arg in self.named.items()}
        return Call(self.overload, args, named, offset)

    def fill_from(self, other: Call) -> None:
        """Copies the values of another call's tensors."""
        for ours, theirs in zip(self.tensors(), other.tensors()):
            ours.copy_(theirs)

    def changed(self, variant: str) -> Call | None:
        """Returns the call in this variant, or None if that changes none of its tensors."""
        name = str(self.overload._schema.name)
        largest = max((tuple(t.shape) for t in self.tensors()), key=math.prod, default=())
        is_norm = any(norm in name for norm in _NORMS)

        def change(tensor: torch.Tensor) -> torch.Tensor:
            if variant == CHANNELS_LAST:
                is_image = tensor.dim() == 4 and tensor.is_floating_point()
                return tensor.contiguous(memory_format=torch.channels_last) if is_image else tensor
            if tensor.dtype is not torch.float32 or (is_norm and tuple(tensor.shape) != largest):
                return tensor
            return tensor.to(_NARROW[variant])

        args = [_each(arg, change) for arg in self.args]
        named = {key: _each(arg, change) for key, arg in self.named.items()}
        changed = Call(self.overload, args, named)
        pairs = zip(changed.tensors(), self.tensors())
        return changed if any(one is not other for one, other in pairs) else None


def calls_of(operator: dict[str, Any], device: torch.device, most_bytes: int) -> list[Call]:
    """Returns the possible calls of a recorded operator, most likely first, because a trace does
    not contain overloads. Raises ArgumentMismatchError if there is none.
    """
    name = operator.get("name")
    inputs = operator.get("inputs")
    if not isinstance(name, str) or not isinstance(inputs, list):
        raise ArgumentMismatchError("it has no name or no inputs")
    found = []
    for overload in _overloads(name):
        try:
            bound = _bound(overload, inputs, operator.get("named"))
        except ArgumentMismatchError:
            continue
        if _bytes([*bound[0], *bound[1].values()]) > most_bytes:
            raise ArgumentMismatchError("its tensors are too large to allocate together")
        found.append((overload, bound))
    if not found:
        raise ArgumentMismatchError("no overload matches the recorded arguments")
    make = _TensorFactory(name, inputs, device)
    return [
        Call(overload, [make(arg) for arg in args], {key: make(arg) for key, arg in named.items()})
        for overload, (args, named) in found
    ]


def _overloads(name: str) -> list[Any]:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    if namespace != "aten":
        raise ArgumentMismatchError("it is not a PyTorch operator")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        raise ArgumentMismatchError("this PyTorch version does not have it")
    names = [overload] if overload else [one for one in packet.overloads() if "out" not in one]
    return [getattr(packet, one) for one in names if hasattr(packet, one)]


class _TensorDescription:
    """A tensor to be created."""

    def __init__(self, described: dict[str, Any]) -> None:
        shape, strides = described.get("s"), described.get("d")
        dtype = getattr(torch, str(described.get("t") or "float32"), None)
        if not isinstance(dtype, torch.dtype) or not _whole_numbers(shape):
            raise ArgumentMismatchError("a tensor has no shape or an unknown dtype")
        self.dtype = dtype
        self.shape: list[int] = list(shape or ())
        fits = _whole_numbers(strides) and len(strides or ()) == len(self.shape)
        self.strides: list[int] | None = list(strides) if fits and strides is not None else None

    def bytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)


def _bound(overload: Any, inputs: list[Any], named: Any) -> tuple[list[Any], dict[str, Any]]:
    """Returns positional and named arguments, with tensors as `_TensorDescription`."""
    arguments = overload._schema.arguments
    if len(inputs) > len(arguments):
        raise ArgumentMismatchError("it takes fewer arguments")
    given = named if isinstance(named, dict) else {}
    by_position: list[Any] = []
    by_name: dict[str, Any] = {}
    for index, argument in enumerate(arguments):
        value = inputs[index] if index < len(inputs) else None
        value = given.get(argument.name) if value is None else value
        kind = str(argument.type)
        if value is not None:
            converted = _converted(kind, value)
        elif argument.has_default_value():
            converted = argument.default_value
        elif kind.startswith("Optional["):
            converted = None
        else:
            raise ArgumentMismatchError(f"{argument.name} is missing")
        if argument.kwarg_only:
            by_name[argument.name] = converted
        else:
            by_position.append(converted)
    return by_position, by_name


def _converted(kind: str, value: Any) -> Any:
    """Converts a recorded value to an argument of this schema type."""
    while kind.startswith("Optional["):
        kind = kind[len("Optional[") : -1]
    if isinstance(value, str) and value in _NOT_FINITE and kind in ("float", "number", "Scalar"):
        return float(value)
    if kind.startswith("List["):
        inner = kind[len("List[") : -1]
        values = value if isinstance(value, list) else [value]
        if "Tensor" in inner and any(one is None for one in values):
            return [None if one is None else _converted(inner, one) for one in values]
        return [_converted(inner, one) for one in values]
    if kind == "Tensor":
        if isinstance(value, dict):
            return _TensorDescription(value)
    elif kind == "bool":
        if isinstance(value, (bool, int)):
            return bool(value)
    elif kind in ("int", "SymInt"):
        if isinstance(value, (int, float)) and float(value).is_integer():
            return int(value)
    elif kind == "float":
        if isinstance(value, (int, float)):
            return float(value)
    elif kind in ("number", "Scalar"):
        if isinstance(value, (bool, int, float)):
            return value
    elif kind == "str" and isinstance(value, str):
        return value
    raise ArgumentMismatchError(f"{value} is not a {kind}")


class _TensorFactory:
    """Creates tensors. Integers are indices into another tensor, and must be in its bounds."""

    def __init__(self, name: str, inputs: list[Any], device: torch.device) -> None:
        self._device = device
        self._end = _end_of_indices(name.partition("::")[2].partition(".")[0], inputs)

    def __call__(self, arg: Any) -> Any:
        if isinstance(arg, list):
            return [self(one) for one in arg]
        return self._tensor(arg) if isinstance(arg, _TensorDescription) else arg

    def _tensor(self, described: _TensorDescription) -> torch.Tensor:
        shape, dtype = described.shape, described.dtype
        if described.strides is None:
            tensor = torch.empty(shape, dtype=dtype, device=self._device)
        else:
            tensor = torch.empty_strided(shape, described.strides, dtype=dtype, device=self._device)
        if dtype.is_floating_point or dtype.is_complex:
            values = torch.empty(shape, device=self._device).uniform_(_MIN_VALUE, _MAX_VALUE)
            return tensor.copy_(values)
        if dtype is torch.bool:
            return tensor.fill_(True)
        return tensor.copy_(torch.randint(self._end, tuple(shape), device=self._device))


def _end_of_indices(name: str, inputs: list[Any]) -> int:
    """Returns the upper bound of indices. For unknown operators, 0 is always valid."""

    def shape(index: int) -> list[int]:
        given = inputs[index] if index < len(inputs) else None
        found = given.get("s") if isinstance(given, dict) else None
        return found if _whole_numbers(found) and found else [1]

    if name in ("embedding", "embedding_bag", "_embedding_bag"):
        return max(shape(0)[0], 1)
    if name in ("embedding_dense_backward", "embedding_backward"):
        rows = inputs[2] if len(inputs) > 2 else None
        return int(rows) if isinstance(rows, (int, float)) and 1 <= rows < 2**62 else 1
    if name in ("cross_entropy_loss", "nll_loss", "nll_loss_forward", "nll_loss_nd", "nll_loss2d"):
        classes = shape(0)
        return max(classes[1] if len(classes) > 1 else classes[0], 1)
    if name in ("nll_loss_backward", "nll_loss2d_backward"):
        classes = shape(1)
        return max(classes[1] if len(classes) > 1 else classes[0], 1)
    if name == "max_pool2d_with_indices_backward":
        return max(math.prod(shape(0)[-2:]), 1)
    return 1


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 2**48 for one in value)


def _bytes(args: list[Any]) -> int:
    flat = [part for arg in args for part in (arg if isinstance(arg, list) else [arg])]
    return sum(part.bytes() for part in flat if isinstance(part, _TensorDescription))


def _tensors(args: list[Any]) -> list[torch.Tensor]:
    flat = [part for arg in args for part in (arg if isinstance(arg, list) else [arg])]
    return [part for part in flat if isinstance(part, torch.Tensor)]


def _each(arg: Any, change: Any) -> Any:
    if isinstance(arg, list):
        return [_each(one, change) for one in arg]
    return change(arg) if isinstance(arg, torch.Tensor) else arg


def _copied(arg: Any, offset: int) -> Any:
    return _each(arg, lambda tensor: _placed(tensor.clone(), offset))


def _placed(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """Returns the tensor, or if there is an offset, a copy of it in other memory."""
    elements = offset // tensor.element_size()
    if elements == 0:
        return tensor
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()) if size > 0)
    memory = torch.empty(elements + reach + 1, dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(tensor.shape, tensor.stride(), elements).copy_(tensor)
