"""Addresses for tensors that hold nothing.

A hollow tensor is a plain CPU tensor over memory that nobody has written to. Such memory takes no
room: the system gives a page when it is first written, and operators on hollow tensors are not
computed. So a program that runs on hollow tensors has true shapes, types, strides, views and
autograd graphs, and reads zeros where it insists on reading.

Addresses are never used twice, so that an address names a storage for as long as the program runs.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import torch

# Small enough for the 47 bits of an address space, and more than any model takes in an iteration.
_SIZES = tuple(1 << bits for bits in (44, 42, 40, 38, 36, 34))
# What torch's CPU allocator aligns to, and the blocks that CUDA's caching allocator gives out.
_ALIGNMENT = 512

_PLAIN: Any = torch.Tensor.__torch_dispatch__


class ArenaFull(MemoryError):
    """The addresses ran out."""


class StorageRef(weakref.ref):  # type: ignore[type-arg]
    """Tells of the end of a storage."""

    __slots__ = ("address",)
    address: int


class Arena:
    """Two ranges of addresses: one for tensors on the CPU, one for those on the claimed device."""

    def __init__(self) -> None:
        self._memory, size = _reserve()
        self.low = int(torch.frombuffer(self._memory, dtype=torch.uint8, count=1).data_ptr())
        self.high = self.low + size
        self.middle = self.low + size // 2
        # Not 0, which would be the address of the arena's own first byte.
        self._next = {False: _ALIGNMENT, True: size // 2 + _ALIGNMENT}
        self._end = {False: size // 2, True: size}
        # Every storage that is alive, by address: its size, and what tells of its end.
        self.alive: dict[int, tuple[int, StorageRef]] = {}
        # Told of each storage's birth and end: address and bytes, negative at its end.
        self.listener: Callable[[int, int], None] | None = None

    def tensor(
        self,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        dtype: torch.dtype,
        on_device: bool = False,
    ) -> torch.Tensor:
        """A new hollow tensor."""
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
        """Keeps account of a tensor that has memory of its own."""
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
    """Where the tensor's data is; 0 where it has no memory of its own."""
    if type(tensor).__torch_dispatch__ is not _PLAIN:
        # One that wraps others, or FakeTensorMode's.
        return 0
    try:
        return int(tensor.data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def _reserve() -> tuple[mmap.mmap, int]:
    # Linux would otherwise refuse what is larger than the machine's memory.
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
