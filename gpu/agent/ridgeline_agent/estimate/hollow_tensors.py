"""Runs a program's operators without computing them, on hollow tensors (arena.py).

Views are real views, autograd is torch's own, and each operator that would compute returns hollow
results with the right shapes. Small tensors with known values are computed anyway: lengths, masks
and indices control what a program does next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from . import workspaces
from .arena import Arena
from .gradient_sums import InPlaceSums
from .operator_recorder import is_free, operator_name
from .operator_results import Argument, NewTensor, OperatorResults, Unsupported, Value
from .patches.guesses import Guesses

# The maximum number of elements for which known values are computed; the second limit applies where
# values are not read.
_MAX_COMPUTED = 4096
_MAX_COMPUTED_UNREAD = 1
_MAX_ELEMENTS = 1 << 62

# Slow even on small tensors, because a library must be initialized.
_HEAVY = ("conv", "mm", "addmm", "bmm", "rnn", "lstm", "gru", "linalg", "attention", "fft")

# These change a tensor's metadata, not its contents.
_NATIVE = frozenset(
    {
        "set_",
        "resize_",
        "resize_as_",
        "_resize_output_",
        "record_stream",
        # A sparse tensor consists of other tensors and computes nothing yet.
        "_sparse_coo_tensor_with_dims_and_tensors",
        "_sparse_coo_tensor_with_dims",
    }
)

_ADD: Any = torch.ops.aten.add.Tensor
_PACK = "aten::_pack_padded_sequence"
_READ = "aten::_local_scalar_dense"
# Operators whose result is usually true, for example whether all numbers are finite.
_LIKELY = frozenset({"aten::all", "aten::isfinite", "aten::ne.Scalar", "aten::mul.Tensor"})

_PLAIN: Any = torch.Tensor.__torch_dispatch__


class OutOfReach(BaseException):
    """The program cannot continue after an unknown operator.

    A BaseException, so that no `except Exception` of the user catches it.
    """


class _NotStridedError(RuntimeError):
    """An argument is sparse, or has another layout without strides."""


class _Plan(NamedTuple):
    """How to handle an operator, according to its schema."""

    name: str
    is_native: bool  # moves no data, or must change the tensor itself
    written: tuple[int, ...] | None  # indices of the returned arguments, if it allocates nothing
    is_heavy: bool
    has_results: bool
    by_value: bool  # its result depends on values


Observer = Callable[[Any, Any, Any, Any, Any], None]


class HollowMode(TorchDispatchMode):  # type: ignore[misc]
    """Replaces operators with hollow results while it is entered."""

    def __init__(self, claim: torch.device, arena: Arena, guesses: Guesses) -> None:
        super().__init__()
        self._arena = arena
        self._guesses = guesses
        self._claims_device = claim.type != "cpu"
        self._results = OperatorResults()
        self._plans: dict[Any, _Plan] = {}
        self._known: dict[Any, _Known] = {}
        # Storages of real tensors with outdated contents, because a write was skipped.
        self._stale: set[int] = set()
        # Addresses of hollow booleans that are probably true.
        self._likely: set[int] = set()
        # Set in backward passes and optimizer steps, where values are not read.
        self.ignores_values = False
        # Called for each operator that computes, with its key, and for each that is free.
        self.observer: Observer | None = None
        self.on_free: Callable[[], None] | None = None
        # Whether autograd's engine itself adds now, rather than a backward formula.
        self.accumulates: Callable[[], bool] | None = None
        self._in_place = InPlaceSums()
        self.unsupported: Callable[[str, str], None] = lambda name, message: None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch would wrap the method below, at a cost for every operator. Nothing is compiled here.
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = _plan(func)
        if kwargs is None:
            kwargs = {}
        if plan.is_native:
            if self.on_free is not None:
                self.on_free()
            return func(*args, **kwargs)
        for kind in types:
            if kind.__torch_dispatch__ is not _PLAIN:
                # A subclass decomposes its operators; the parts are dispatched here again.
                return NotImplemented
        try:
            key = (func, *map(self._key, args), *kwargs, *map(self._key, kwargs.values()))
        except RuntimeError:
            # Operators on a sparse tensor are computed; its parts are few. A parameter of a lazy
            # module has no shape yet.
            return func(*args, **kwargs)
        if func is _ADD and self.accumulates is not None and self.accumulates():
            sum_ = self._in_place.of(args)
            if sum_ is not None:
                func, key = torch.ops.aten.add_.Tensor, (torch.ops.aten.add_.Tensor, *key[1:])
                if self.observer is not None:
                    self.observer(func, key, args, kwargs, sum_)
                return sum_
        if plan.written is not None:
            result = self._write(func, plan, args, kwargs)
        else:
            result = self._create(func, plan, key, args, kwargs)
        if self.observer is not None:
            self.observer(func, key, args, kwargs, result)
        return result

    def measure_sums(self) -> None:
        """Calibrates in-place gradient sums. Call it before the mode is entered."""
        self._in_place.measure()

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Returns a hollow CPU tensor, for callers outside of the mode."""
        with no_dispatch():
            return self._arena.tensor(shape, torch.empty(shape, device="meta").stride(), dtype)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor has the values that the program would compute."""
        return self._all_known((tensor,), _MAX_ELEMENTS)

    def _key(self, value: Any) -> Any:
        """Returns the properties of an argument that determine results."""
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter or isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                raise _NotStridedError
            if self._claims_device:
                return value.shape, value.stride(), value.dtype, self._arena.on_device(value)
            return value.shape, value.stride(), value.dtype
        if kind is list or kind is tuple:
            return tuple(map(self._key, value))
        if kind is torch.Generator:
            return None
        # 1, 1.0 and True are equal, but promote types differently.
        return kind, value

    def _write(self, func: Any, plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handles an operator that writes to its arguments and allocates nothing."""
        if self._may_compute(plan, args, kwargs):
            return func(*args, **kwargs)
        self._mark_stale(args)
        if not plan.has_results:
            return None
        arguments = func._schema.arguments
        written = []
        for index in plan.written or ():
            value = args[index] if index < len(args) else kwargs[arguments[index].name]
            written.append(value)
        return written[0] if len(written) == 1 else tuple(written)

    def _mark_stale(self, values: Any) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                if not self._arena.holds(value):
                    self._stale.add(_storage_address(value))
            elif isinstance(value, (list, tuple)):
                self._mark_stale(value)

    def _create(
        self, func: Any, plan: _Plan, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Handles an operator that returns a new value."""
        if plan.name == _READ:
            if self._may_compute(plan, args, kwargs):
                return func(*args, **kwargs)
            likely = _storage_address(args[0]) in self._likely
            return self._guesses.scalar(args[0], likely)
        if plan.name == _PACK:
            return self._packed(*args)
        known = self._known.get(key)
        if known is None:
            if (plan.by_value or _has_mask(args)) and self._may_compute(plan, args, kwargs):
                return self._computed(func, args, kwargs)
            known = self._known[key] = self._infer(func, plan, args, kwargs)
        if (
            known.elements <= _MAX_COMPUTED
            and not known.on_device
            and self._may_compute(plan, args, kwargs)
        ):
            return self._computed(func, args, kwargs)
        result = known.result
        if type(result) is not NewTensor:
            return self._instantiate(result, args)
        tensor = self._arena.tensor(*result)
        if result.dtype is torch.bool and plan.name in _LIKELY:
            self._likely.add(tensor.data_ptr())
        return tensor

    def _packed(self, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
        """C++ reads the batch sizes of packed sequences, so they must be real."""
        sizes = self._guesses.batch_sizes(x, lengths, batch_first)
        shape = (sum(sizes), *x.shape[2:])
        packed = torch.empty(shape, dtype=x.dtype, device="meta")
        tensor = self._arena.tensor(shape, packed.stride(), x.dtype, self._arena.on_device(x))
        return tensor, torch.tensor(sizes, dtype=torch.int64)

    def _instantiate(self, result: Any, args: tuple[Any, ...]) -> Any:
        if type(result) is NewTensor:
            return self._arena.tensor(*result)
        if type(result) is Argument:
            # Not the argument itself, because autograd would treat its own input as a result.
            return torch.ops.aten.alias.default(args[result.number])
        if type(result) is Value:
            return result.value
        return tuple(self._instantiate(part, args) for part in result)

    def _computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._arena.watch(tensor)
        return result

    def _may_compute(self, plan: _Plan, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether all values are known, and few enough to compute them quickly."""
        if plan.is_heavy:
            return False
        most = _MAX_COMPUTED_UNREAD if self.ignores_values else _MAX_COMPUTED
        return self._all_known(args, most) and self._all_known(kwargs.values(), most)

    def _all_known(self, values: Any, most: int) -> bool:
        for value in values:
            if isinstance(value, torch.Tensor):
                if value.numel() > most or self._arena.holds(value):
                    return False
                if self._stale and _storage_address(value) in self._stale:
                    return False
            elif isinstance(value, (list, tuple)):
                if not self._all_known(value, most):
                    return False
            elif isinstance(value, torch.device) and value.type != "cpu":
                return False
        return True

    def _infer(
        self, func: Any, plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Known:
        on_device = self._claims_device and self._is_result_on_device(args, kwargs)
        guess = self._guesses.result(plan.name, args, kwargs)
        if guess is not None:
            return _known(_placed(guess, on_device), on_device)
        args = tuple(self._without_masks(value) for value in args)
        try:
            result = self._results.of(func, args, kwargs, on_device)
            return _known(workspaces.with_workspace(plan.name, args, result), on_device)
        except Unsupported as error:
            self.unsupported(plan.name, str(error))
            return _known(_placed(_like_first(func, args), on_device), on_device)

    def _without_masks(self, value: Any) -> Any:
        """Replaces masks by indices, one for each dimension of a mask."""
        if not isinstance(value, (list, tuple)):
            return value
        plain: list[Any] = []
        for item in value:
            if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
                self._guesses.mark("the number of true elements in a mask is unknown; assumed all")
                index = torch.empty(item.numel(), dtype=torch.int64, device="meta")
                plain += [index] * item.dim()
            else:
                plain.append(item)
        return plain

    def _is_result_on_device(self, args: Any, kwargs: dict[str, Any]) -> bool:
        wanted = kwargs.get("device")
        if wanted is not None:
            return bool(wanted.type != "cpu")
        return self._any_on_device(args) or self._any_on_device(kwargs.values())

    def _any_on_device(self, values: Any) -> bool:
        for value in values:
            if isinstance(value, torch.Tensor):
                if self._arena.on_device(value):
                    return True
            elif isinstance(value, (list, tuple)) and self._any_on_device(value):
                return True
        return False


def _plan(func: Any) -> _Plan:
    schema = func._schema
    name = operator_name(func)
    short_name = schema.name.partition("::")[2]
    written: tuple[int, ...] | None = None
    aliases = {
        alias: index
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for alias in argument.alias_info.before_set
    }
    if aliases and all(result.alias_info is not None for result in schema.returns):
        written = tuple(
            aliases[alias] for result in schema.returns for alias in result.alias_info.before_set
        )
    tags = {str(tag).rpartition(".")[2] for tag in func.tags}
    return _Plan(
        name,
        is_native=is_free(func) or "inplace_view" in tags or short_name in _NATIVE,
        written=written,
        is_heavy=any(part in short_name for part in _HEAVY),
        has_results=bool(schema.returns),
        by_value=bool(tags & {"dynamic_output_shape", "data_dependent_output"}),
    )


class _Known(NamedTuple):
    """An operator's result for one kind of arguments."""

    result: Any
    elements: int
    on_device: bool


def _placed(result: Any, on_device: bool) -> Any:
    if type(result) is NewTensor:
        return result._replace(on_device=on_device)
    return tuple(_placed(part, on_device) for part in result)


def _known(result: Any, on_device: bool) -> _Known:
    return _Known(result, _elements(result), on_device)


def _elements(result: Any) -> int:
    if type(result) is NewTensor:
        count = 1
        for size in result.shape:
            count *= size
        return count
    if type(result) in (Argument, Value):
        return 0
    return sum(map(_elements, result))


def _has_mask(args: tuple[Any, ...]) -> bool:
    return any(
        isinstance(item, torch.Tensor) and item.dtype is torch.bool
        for value in args
        if isinstance(value, (list, tuple))
        for item in value
    )


def _like_first(func: Any, args: tuple[Any, ...]) -> Any:
    """Fallback: assumes that each result is like the first tensor argument."""
    for value in args:
        if isinstance(value, torch.Tensor):
            like = NewTensor(tuple(value.shape), value.stride(), value.dtype, False)
            results = tuple(like for _ in func._schema.returns)
            return results[0] if len(results) == 1 else results
    raise OutOfReach(f"the result of {operator_name(func)} is unknown")


def _storage_address(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0
