"""Locks, shared values and shared tensors of `multiprocessing` without /dev/shm, which the sandbox
protects from an estimate (sandbox/confinement.py). They work between forked processes.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import torch

# At least the size of `sem_t` on every system.
_SEMAPHORE_BYTES = 64


def install() -> None:
    """From now on, none of them needs a file."""
    torch.Tensor.share_memory_ = _unchanged
    torch.UntypedStorage.share_memory_ = _unchanged
    try:
        import multiprocessing.heap
        import multiprocessing.synchronize

        native: Any = multiprocessing.synchronize._multiprocessing  # type: ignore[attr-defined]
        native.SemLock = _without_name(native.SemLock)
    except (ImportError, AttributeError):
        return  # A system without them.
    # Without candidates, the heap uses the folder for temporary files.
    heap: Any = multiprocessing.heap
    heap.Arena._dir_candidates = []


def _unchanged(shared: Any) -> Any:
    return shared


def _without_name(semaphore: Any) -> Any:
    """Returns a class whose semaphores are not files in /dev/shm but in memory that a forked
    process shares. Its objects are of the original class: Python 3.9 and 3.10 allocate objects of a
    subclass without the header that the garbage collector expects, which corrupts memory.
    """
    libc = ctypes.CDLL(None)
    semaphores: list[mmap.mmap] = []

    class SemLock(semaphore):  # type: ignore[misc]
        def __new__(cls, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> Any:
            place = mmap.mmap(-1, _SEMAPHORE_BYTES)
            semaphores.append(place)  # Kept for the lifetime of the process.
            at = ctypes.addressof(ctypes.c_char.from_buffer(place))
            if libc.sem_init(ctypes.c_void_p(at), 1, ctypes.c_uint(value)) != 0:
                return semaphore(kind, value, maxvalue, name, unlink)
            return semaphore._rebuild(at, kind, maxvalue, None)

    return SemLock
