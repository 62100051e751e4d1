"""The contents of memory at the start of the measured iteration, by storage."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import allocator
from .modules import ModuleTable, variables_holding

# The maximum number of objects that are scanned for otherwise unreachable tensors. Scanning a heap
# of this size takes about 20 ms.
_MAX_HEAP_OBJECTS = 1_000_000
_MAX_NESTING = 8
_MAX_TENSORS = 10_000


def storage_of(tensor: torch.Tensor, device: torch.device) -> tuple[int, int] | None:
    """Returns `(pointer, bytes)` of the tensor's storage, or None if it has none on the device."""
    if tensor.device.type != device.type or tensor.layout is not torch.strided:
        return None
    if device.index is not None and tensor.device.index != device.index:
        return None
    try:
        storage = _with_memory(tensor).untyped_storage()
        pointer, size = storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):
        # Fake, meta and wrapper tensors have no memory.
        return None
    return (pointer, size) if pointer and size else None


def _with_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor with the data. For a wrapper, such as this rank's part of a DTensor
    (FSDP2, tensor parallelism), the largest inner tensor.
    """
    for _ in range(_MAX_NESTING):
        if type(tensor) is torch.Tensor or not is_traceable_wrapper_subclass(tensor):
            break
        names, _ = tensor.__tensor_flatten__()
        parts = [getattr(tensor, name) for name in names]
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        if not tensors:
            break
        tensor = max(tensors, key=lambda part: part.numel() * part.element_size())
    return tensor


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yields the tensors in a batch: in nested lists, tuples, mappings and objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < _MAX_NESTING:
        items: Iterable[Any] = ()
        if isinstance(value, Mapping):
            items = value.values()
        elif isinstance(value, (list, tuple)):
            items = value
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            # A dataclass, or a batch of a graph library.
            items = vars(value).values()
        for item in items:
            yield from tensors_in(item, depth + 1)


# A weak reference to a tensor, and its entry in the baseline.
_WeakEntry = tuple["weakref.ref[torch.Tensor]", dict[str, Any]]


class MemoryWatch:
    """Collects `memory` of the manifest for the measured iteration."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.baseline: list[dict[str, Any]] = []
        self.gradients: dict[int, dict[str, Any]] = {}
        self.batch: dict[int, int] = {}
        self.max_allocated: int | None = None
        self.allocated: int | None = None
        # Set if other threads run backward passes. Torch does not protect `.grad` against that:
        # reading one while another thread set it crashed the process.
        self.others_go_backward = False
        # None of these keeps a tensor alive. Each parameter has its owner, and whether an optimizer
        # of the training loop updates it.
        self._parameters: list[tuple[weakref.ref[torch.Tensor], int | None, bool]] = []
        # Weights without a module: of optimizers, and those trained without an optimizer.
        self._loose: list[_WeakEntry] = []
        self._by_hand: list[_WeakEntry] = []
        # By address, with the storage at that address.
        self._others: dict[int, tuple[StorageWeakRef, dict[str, Any]]] = {}

    def begin(
        self, table: ModuleTable, optimizers: list[torch.optim.Optimizer], provided: object
    ) -> None:
        """Records the baseline. Call it between iterations, when no operator runs.

        `provided` are the inputs of a provider's iterations.
        """
        on_cuda = self.device.type == "cuda"
        blocks = allocator.block_sizes() if on_cuda else {}
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

        owners: dict[int, int | None] = {}
        stepped = {
            id(parameter)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

        def add_weight(parameter: torch.Tensor, owner: int | None, name: str | None) -> bool:
            """Returns whether it is new and takes memory."""
            if id(parameter) in owners:
                return False
            owners[id(parameter)] = owner
            self._parameters.append((weakref.ref(parameter), owner, id(parameter) in stepped))
            before = len(self.baseline)
            add(parameter, "weight", owner, name)
            return len(self.baseline) > before

        for module, name, parameter in table.parameters():
            add_weight(parameter, module, name)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if add_weight(parameter, None, None):
                        self._loose.append((weakref.ref(parameter), self.baseline[-1]))
        self.loaded(provided)
        add(provided, "batch", None, None)
        tensors = other_tensors()
        for tensor in tensors:
            # Trained without an optimizer. If an iteration creates such tensors itself (an input
            # whose gradient is requested), `went_backward` corrects the one of the previous
            # iteration.
            if tensor.is_leaf and tensor.requires_grad and add_weight(tensor, None, None):
                self._by_hand.append((weakref.ref(tensor), self.baseline[-1]))
        for module, name, buffer in table.buffers():
            add(buffer, "buffer", module, name)
        for owner, gradient in self._gradients():
            add(gradient, "gradient", owner, None)
        for optimizer in optimizers:
            for parameter, state in list(optimizer.state.items()):
                add(state, "optimizer_state", owners.get(id(parameter)), None)
        for tensor in tensors:
            before = len(self.baseline)
            add(tensor, "other", None, None)
            for entry in self.baseline[before:]:
                self._others[entry["ptr"]] = (StorageWeakRef(tensor.untyped_storage()), entry)
        if on_cuda:
            self.allocated = allocator.allocated_bytes(self.device)
            allocator.reset_peak(self.device)

    def went_backward(self) -> None:
        """Records the gradients after a backward pass."""
        for weight, entry in self._by_hand:
            if weight() is None:
                entry["kind"] = "other"
        for owner, gradient in self._gradients():
            storage = storage_of(gradient, self.device)
            if storage is not None:
                self.gradients[storage[0]] = {
                    "ptr": storage[0],
                    "bytes": storage[1],
                    "module": owner,
                }

    def _gradients(self) -> Iterator[tuple[int | None, torch.Tensor]]:
        """Yields each existing gradient with the module that owns its parameter."""
        for reference, owner, is_stepped in self._parameters:
            if self.others_go_backward and not is_stepped:
                continue
            parameter = reference()
            gradient = None if parameter is None else parameter.grad
            if gradient is not None:
                yield owner, gradient

    def loaded(self, batch: object) -> None:
        """Records the storages of a batch."""
        for count, tensor in enumerate(tensors_in(batch)):
            storage = storage_of(tensor, self.device)
            if storage is not None:
                self.batch[storage[0]] = storage[1]
            if count == _MAX_TENSORS:
                break

    def given(self, inputs: object) -> None:
        """Records the storages of an outermost module's inputs that were not computed by other
        operators.
        """
        parts = [part for part in tensors_in(inputs) if part.grad_fn is None]
        self.loaded(parts)
        for part in parts:
            storage = storage_of(part, self.device)
            held, entry = self._others.get(storage[0] if storage else 0, (None, None))
            # Still the same storage: a tensor that the program keeps and passes to its model in
            # every iteration.
            if held is not None and entry is not None and not held.expired():
                entry["kind"] = "batch"

    def end(self) -> None:
        """Ends the measured iteration."""
        if self.device.type == "cuda":
            self.max_allocated = allocator.max_allocated_bytes(self.device)

    def is_unknown(self) -> bool:
        """Whether the GPU's allocator does not report allocations."""
        return self.device.type == "cuda" and self.max_allocated is None

    def name_weights(self, frame: types.FrameType | None) -> None:
        """Names weights without a module after the variables around `frame`.

        Call it after the iteration, because reading a frame's variables may keep their values
        alive.
        """
        weights = [(weight(), entry) for weight, entry in self._loose + self._by_hand]
        entries = {id(weight): entry for weight, entry in weights if weight is not None}
        for identity, name in variables_holding(set(entries), frame).items():
            entries[identity]["name"] = name

    def json(self, capacity_bytes: object) -> dict[str, Any]:
        """Returns `memory` for the manifest."""
        return {
            "device": str(self.device),
            "baseline": self.baseline,
            "gradients": list(self.gradients.values()),
            "batch": [{"ptr": ptr, "bytes": size} for ptr, size in self.batch.items()],
            "allocated_bytes": self.allocated,
            "max_allocated_bytes": self.max_allocated,
            "capacity_bytes": capacity_bytes,
        }


def other_tensors() -> list[torch.Tensor]:
    """Returns all tensors that the garbage collector tracks, unless the heap is too large."""
    # Not a generator: under `sys.settrace`, Python before 3.11 keeps a copy of its variables in its
    # frame, and the frame is one of these objects, so all of them would stay alive.
    objects = gc.get_objects()
    found: list[torch.Tensor] = []
    if len(objects) > _MAX_HEAP_OBJECTS:
        return found
    tensor_types: dict[type, bool] = {}
    for item in objects:
        kind = type(item)
        is_tensor = tensor_types.get(kind)
        if is_tensor is None:
            # By type, because `isinstance` would call `__class__` of lazy objects.
            is_tensor = tensor_types[kind] = issubclass(kind, torch.Tensor) and not issubclass(
                kind, FakeTensor
            )
        if is_tensor:
            found.append(item)
    return found
