"""Records the operators that run on fake tensors: `signatures` and columns of docs/op-list.md. The
owner of the recorder provides their locations in the user's program.
"""

from __future__ import annotations

from collections.abc import Callable
from json import dumps, loads
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

FORWARD = 1
BACKWARD = 2
OPTIMIZER = 3
OTHER = 4

MAX_OPERATORS = 200_000
MAX_SIGNATURES = 20_000

# Longer lists of tensors (foreach) or numbers do not change the estimated cost.
_MAX_ITEMS = 4_096

# Arguments for the placement of a result, rather than its computation.
PLACEMENT = frozenset({"device", "layout", "pin_memory", "non_blocking"})

# These launch no kernel, although their schema does not mark them as views.
_FREE = frozenset({"aten::_unsafe_view", "aten::lift_fresh", "aten::lift", "aten::is_pinned"})


class OperatorRecorder(TorchDispatchMode):
    """Records each operator that would run on the device while it is entered.

    Enter it after the fake tensor mode, so that it is dispatched first. `place` returns (stack,
    module) of the operator that is about to run, -1 for none.
    """

    def __init__(self, place: Callable[[], tuple[int, int]] | None = None) -> None:
        super().__init__()
        self.phase = FORWARD
        self.full = False
        self._place = place
        self._signatures: dict[str, int] = {}
        self._columns: dict[str, list[int]] = {
            name: [] for name in ("signature", "phase", "stack", "module")
        }
        self._free: dict[Any, bool] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        free = self._free.get(func)
        if free is None:
            free = self._free[func] = is_free(func)
        if free:
            return func(*args, **kwargs)
        # Before it runs, because in-place operators may change their arguments' shapes.
        given = [described(value) for value in args]
        named = {
            name: described(value)
            for name, value in kwargs.items()
            if name not in PLACEMENT and value is not None
        }
        result = func(*args, **kwargs)
        outputs = tensors_of(result)
        if computes(args) or computes(result):
            self._add(operator_name(func), given, named, outputs)
        return result

    def columns(self) -> dict[str, Any]:
        """Returns `signatures` and `ops` of docs/op-list.md."""
        return {
            "signatures": [loads(signature) for signature in self._signatures],
            "ops": self._columns,
        }

    def __len__(self) -> int:
        return len(self._columns["signature"])

    def _add(self, name: str, given: list[Any], named: dict[str, Any], outputs: list[Any]) -> None:
        signature: dict[str, Any] = {"op": name, "in": given}
        if named:
            signature["named"] = named
        signature["out"] = outputs
        key = dumps(signature, separators=(",", ":"))
        index = self._signatures.get(key, len(self._signatures))
        if len(self) >= MAX_OPERATORS or index >= MAX_SIGNATURES:
            self.full = True
            return
        self._signatures[key] = index
        stack, module = self._place() if self._place else (-1, -1)
        self._columns["signature"].append(index)
        self._columns["phase"].append(self.phase)
        self._columns["stack"].append(stack)
        self._columns["module"].append(module)


def operator_name(func: Any) -> str:
    """Returns the name, such as `aten::add.Tensor`, without a default overload."""
    name: str = func._schema.name
    overload: str = func._overloadname
    return name if overload in ("", "default") else f"{name}.{overload}"


def is_free(func: Any) -> bool:
    """Whether it moves no data: views, queries of a tensor, and profiler marks."""
    schema = func._schema
    if not schema.name.startswith("aten::"):
        # Operators of libraries compute; those of these namespaces do not.
        return schema.name.split("::")[0] in ("prim", "profiler")
    if schema.name in _FREE:
        return True
    # A view returns an alias of an argument that it does not write to.
    return any(
        result.alias_info is not None and not result.alias_info.is_write
        for result in schema.returns
    )


def described(value: Any) -> Any:
    """Returns an argument in the format of docs/op-list.md."""
    if isinstance(value, torch.Tensor):
        return described_tensor(value)
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value[:_MAX_ITEMS]]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        # JSON has no infinity or NaN.
        return value if value - value == 0 else str(value)
    if isinstance(value, torch.dtype):
        return type_name(value)
    return str(value)[:100]


def described_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """Returns type, shape, and strides if it is not contiguous."""
    described_as: dict[str, Any] = {"t": type_name(tensor.dtype), "s": list(tensor.shape)}
    if tensor.layout == torch.strided and not tensor.is_contiguous():
        described_as["d"] = list(tensor.stride())
    return described_as


def tensors_of(result: Any) -> list[Any]:
    """Returns the tensors of an operator's result, with lists flattened."""
    if isinstance(result, torch.Tensor):
        return [described_tensor(result)]
    if isinstance(result, (list, tuple)):
        return [tensor for item in result[:_MAX_ITEMS] for tensor in tensors_of(item)]
    return []


def computes(value: Any) -> bool:
    """Whether it contains an element. Without any, no kernel is launched."""
    if isinstance(value, torch.Tensor):
        return bool(value.numel() > 0)
    if isinstance(value, (list, tuple)):
        return any(computes(item) for item in value)
    return False


def type_name(dtype: torch.dtype) -> str:
    """Returns the type's name, such as `float16`."""
    return str(dtype).rpartition(".")[2]
