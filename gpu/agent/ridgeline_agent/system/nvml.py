"""NVML, the library that reports a GPU's state.

It comes with NVIDIA's driver. It is called through ctypes, because the program's Python need not
have a binding for it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch

SUCCESS = 0
_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")


def loaded() -> Any:
    """Returns the library, or None if it is not installed."""
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Gpu(NamedTuple):
    """NVML's handles for the device that torch uses."""

    library: Any
    # The device that torch uses: the GPU, or one MIG instance of it. Memory and processes belong to
    # it.
    device: Any
    # The whole GPU. Clocks, power and energy belong to it; NVML does not report them for an
    # instance.
    whole: Any

    @property
    def is_instance(self) -> bool:
        """Whether torch uses a MIG instance, so other processes may use the rest of the GPU."""
        return self.device is not self.whole


class Unavailable(NamedTuple):
    """NVML cannot report on a device."""

    # The reason: a clause without a full stop.
    why: str


def find(device: torch.device) -> Gpu | Unavailable:
    """Finds torch's device in NVML."""
    if device.type != "cuda" or torch.version.hip:
        return Unavailable("it is not an NVIDIA GPU")
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        return Unavailable("this torch does not report the GPU's UUID")
    library = loaded()
    if library is None:
        return Unavailable(f"NVML ({_LIBRARIES[0]}) is not installed")
    return by_uuid(library, str(uuid))


def by_uuid(library: Any, uuid: str) -> Gpu | Unavailable:
    """Returns the device with this UUID, a GPU or a MIG instance. Torch reports UUIDs without
    prefix.
    """
    try:
        if (error_code := library.nvmlInit_v2()) != SUCCESS:
            return Unavailable(f"NVML failed to initialize (error {error_code})")
        for prefix in ("GPU-", "MIG-"):
            found = ctypes.c_void_p()
            name = (prefix + uuid).encode()
            if library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(found)) != SUCCESS:
                continue
            if prefix == "GPU-":
                return Gpu(library, found, found)
            return _instance(library, found)
    except AttributeError as error:
        return Unavailable(f"this NVML is too old: {error}")
    return Unavailable("NVML does not know this GPU")


def _instance(library: Any, instance: Any) -> Gpu | Unavailable:
    whole = ctypes.c_void_p()
    parent_of = library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle
    if (error_code := parent_of(instance, ctypes.byref(whole))) != SUCCESS:
        return Unavailable(
            f"NVML does not report the GPU of this MIG instance (error {error_code})"
        )
    return Gpu(library, instance, whole)
