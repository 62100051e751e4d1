"""Addresses for tensors without data.

A hollow tensor is a plain CPU tensor over memory that was never written. Such memory takes no
space, because the system allocates a page when it is first written, and operators on hollow tensors
are not computed. So a program on hollow tensors has real shapes, types, strides, views and autograd
graphs, and gets zeros where it insists on reading values.

Addresses are never reused, so an address identifies a storage for the lifetime of the program.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import torch

# Small enough for a 47-bit address space, and more than any model needs in an iteration.
_SIZES = tuple(1 << bits for bits in (44, 42, 40, 38, 36, 34))
# The alignment of torch's CPU allocator, and the block size of CUDA's caching allocator.
_ALIGNMENT = 512

_PLAIN: Any = torch.Tensor.__torch_dispatch__


class ArenaFull(MemoryError):
    """The address space is exhausted."""


class StorageRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that reports when a storage is freed."""

    __slots__ = ("address",)
    address: int


class Arena:
    """Two address ranges: one for tensors on the CPU, one for those on the claimed device."""

    def __init__(self) -> None:
        self._memory, size = _reserve()
        self.low = int(torch.frombuffer(self._memory, dtype=torch.uint8, count=1).data_ptr())
        self.high = self.low + size
        self.middle = self.low + size // 2
        # Not 0, which would be the address of the arena's first byte.
        self._next = {False: _ALIGNMENT, True: size // 2 + _ALIGNMENT}
        self._end = {False: size // 2, True: size}
        # All live storages by address: size, and the reference that reports its end.
        self.alive: dict[int, tuple[int, StorageRef]] = {}
        # Called when a storage is allocated or freed, with address and bytes, which are negative at
        # its end.
        self.listener: Callable[[int, int], None] | None = None

    def tensor(
        self,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        dtype: torch.dtype,
        on_device: bool = False,
    ) -> torch.Tensor:
        """Returns a new hollow tensor."""
        count = 1
        for size, step in zip(shape, stride):
            if size == 0:
                return torch.empty_strided(shape, stride, dtype=dtype)
            count += (size - 1) * step
        size = count * dtype.itemsize
        at = self._next[on_device]
        following = at + size + -size % _ALIGNMENT
        if following > self._end[on_device]:
            raise ArenaFull("the tensors exceed any address space")
        self._next[on_device] = following
        tensor = torch.frombuffer(self._memory, dtype=dtype, count=count, offset=at)
        tensor.as_strided_(shape, stride)
        self._watch(tensor, self.low + at, size)
        return tensor

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is hollow."""
        return self.low <= address_of(tensor) < self.high

    def on_device(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is on the claimed device."""
        return self.middle <= address_of(tensor) < self.high

    def watch(self, tensor: torch.Tensor) -> None:
        """Starts tracking a tensor with real memory."""
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in self.alive:
                self._watch(tensor, storage.data_ptr(), storage.nbytes())

    def _watch(self, tensor: torch.Tensor, address: int, size: int) -> None:
        reference = StorageRef(tensor.untyped_storage(), self._ended)
        reference.address = address
        self.alive[address] = (size, reference)
        if self.listener is not None:
            self.listener(address, size)

    def _ended(self, reference: Any) -> None:
        size, _ = self.alive.pop(reference.address)
        if self.listener is not None:
            self.listener(reference.address, -size)


def address_of(tensor: torch.Tensor) -> int:
    """Returns the address of the tensor's data; 0 if it has no memory."""
    if type(tensor).__torch_dispatch__ is not _PLAIN:
        # A wrapper subclass, or a tensor of FakeTensorMode.
        return 0
    try:
        return int(tensor.data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def _reserve() -> tuple[mmap.mmap, int]:
    # Otherwise Linux rejects sizes larger than the machine's memory.
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)
    for size in _SIZES:
        try:
            if hasattr(mmap, "MAP_ANONYMOUS"):
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
                return mmap.mmap(-1, size, flags=flags), size
            return mmap.mmap(-1, size), size
        except (OSError, ValueError, OverflowError):
            continue
    raise ArenaFull(f"the system has no {math.ceil(_SIZES[-1] / 2**30)} GiB of address space")
