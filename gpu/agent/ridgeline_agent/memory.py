"""What is in memory when the measured iteration begins, by storage."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from .modules import ModuleTable

# The most that is looked through in a search for tensors that nothing else names. A heap of this
# size takes some 20 ms.
_LARGEST_HEAP = 1_000_000
_DEEPEST_NESTING = 8
_MOST_TENSORS = 10_000


def storage_of(tensor: torch.Tensor, device: torch.device) -> tuple[int, int] | None:
    """`(pointer, bytes)` of the tensor's storage, or None where it has none on the device."""
    if tensor.device.type != device.type or tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        pointer, size = storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):
        # Fake, meta and wrapper tensors have no memory of their own.
        return None
    return (pointer, size) if pointer and size else None


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in a batch as people build them: nested lists, tuples, mappings, objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < _DEEPEST_NESTING:
        items: Iterable[Any] = ()
        if isinstance(value, Mapping):
            items = value.values()
        elif isinstance(value, (list, tuple)):
            items = value
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            # A dataclass, or the batch of a graph library.
            items = vars(value).values()
        for item in items:
            yield from tensors_in(item, depth + 1)


class MemoryWatch:
    """Collects `memory` of the manifest around the measured iteration."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.baseline: list[dict[str, object]] = []
        self.gradients: dict[int, dict[str, object]] = {}
        self.batch: dict[int, int] = {}
        self.max_allocated: int | None = None
        self.allocated: int | None = None
        self._parameters: list[tuple[torch.Tensor, int | None]] = []

    def begin(self, table: ModuleTable, optimizers: list[torch.optim.Optimizer]) -> None:
        """Takes the baseline. Call it between iterations, when no operator runs."""
        blocks = self._cuda_blocks()
        taken: set[int] = set()

        def add(tensor: object, kind: str, module: int | None, name: str | None) -> None:
            for part in tensors_in(tensor):
                storage = storage_of(part, self.device)
                if storage is None or storage[0] in taken:
                    continue
                taken.add(storage[0])
                self.baseline.append(
                    {
                        "ptr": storage[0],
                        "bytes": blocks.get(storage[0], storage[1]),
                        "kind": kind,
                        "module": module,
                        "name": name,
                    }
                )

        for module, name, parameter in table.parameters():
            add(parameter, "weight", module, name)
            self._parameters.append((parameter, module))
        known = {id(parameter) for parameter, _ in self._parameters}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    # One that belongs to no module.
                    if id(parameter) not in known:
                        known.add(id(parameter))
                        add(parameter, "weight", None, None)
                        self._parameters.append((parameter, None))
        for module, name, buffer in table.buffers():
            add(buffer, "buffer", module, name)
        for parameter, owner in self._parameters:
            if parameter.grad is not None:
                add(parameter.grad, "gradient", owner, None)
        owners = {id(parameter): module for parameter, module in self._parameters}
        for optimizer in optimizers:
            for parameter, state in list(optimizer.state.items()):
                add(state, "optimizer_state", owners.get(id(parameter)), None)
        for tensor in _other_tensors():
            add(tensor, "other", None, None)
            if tensor.grad_fn is None and tensor.is_leaf and tensor.grad is not None:
                add(tensor.grad, "gradient", None, None)
        if self.device.type == "cuda":
            self.allocated = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)

    def went_backward(self) -> None:
        """Takes the gradients as they stand after a backward pass."""
        for parameter, owner in self._parameters:
            gradient = parameter.grad
            if gradient is not None:
                storage = storage_of(gradient, self.device)
                if storage is not None:
                    self.gradients[storage[0]] = {
                        "ptr": storage[0],
                        "bytes": storage[1],
                        "module": owner,
                    }

    def loaded(self, batch: object) -> None:
        """Takes the storages of a batch."""
        for count, tensor in enumerate(tensors_in(batch)):
            storage = storage_of(tensor, self.device)
            if storage is not None:
                self.batch[storage[0]] = storage[1]
            if count == _MOST_TENSORS:
                break

    def given(self, inputs: object) -> None:
        """Takes the storages of what an outermost module was given, where nothing computed it."""
        self.loaded([part for part in tensors_in(inputs) if part.grad_fn is None])

    def end(self) -> None:
        """The measured iteration is over."""
        if self.device.type == "cuda":
            self.max_allocated = torch.cuda.max_memory_allocated(self.device)

    def json(self, capacity_bytes: object) -> dict[str, object]:
        """`memory` of the manifest."""
        return {
            "device": str(self.device),
            "baseline": self.baseline,
            "gradients": list(self.gradients.values()),
            "batch": [{"ptr": ptr, "bytes": size} for ptr, size in self.batch.items()],
            "allocated_bytes": self.allocated,
            "max_allocated_bytes": self.max_allocated,
            "capacity_bytes": capacity_bytes,
        }

    def _cuda_blocks(self) -> dict[int, int]:
        """The size of each block that the CUDA allocator has given out, which rounds sizes up."""
        if self.device.type != "cuda":
            return {}
        blocks = {}
        for segment in torch.cuda.memory_snapshot():
            address = segment["address"]
            for block in segment["blocks"]:
                blocks[address] = block["size"]
                address += block["size"]
        return blocks


def _other_tensors() -> Iterator[torch.Tensor]:
    """Every tensor that the garbage collector knows, on heaps that are small enough to look at."""
    objects = gc.get_objects()
    if len(objects) > _LARGEST_HEAP:
        return
    tensor_types: dict[type, bool] = {}
    for item in objects:
        kind = type(item)
        is_tensor = tensor_types.get(kind)
        if is_tensor is None:
            # By type, because `isinstance` would run the `__class__` of lazy objects.
            is_tensor = tensor_types[kind] = issubclass(kind, torch.Tensor)
        if is_tensor:
            yield item
