"""A CUDA device that a program finds although there may be none.

To torch's C++ code every tensor of an estimate is on the CPU, so no driver or context is needed.
Their addresses (estimate/arena.py) determine which of them the program sees on the device. This
module patches Python accordingly: `tensor.device`, `.to("cuda")`, `torch.cuda`, and torch's own
Python code that depends on the device.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.utils import _foreach_utils

from ..arena import Arena
from . import claimed_autocast, claimed_kernels

_CPU, _CUDA = torch.device("cpu"), torch.device("cuda", 0)

# The target GPU is unknown when a program is estimated. These are an A100's.
_CAPABILITY = (8, 0)
_MULTIPROCESSORS = 108
_MEMORY_BYTES = 80 * 2**30


def install(arena: Arena) -> None:
    """From now on, the program finds one CUDA device."""
    _patch_tensors(arena)
    _patch_device_queries(arena)
    _patch_constructors()
    _patch_torch_internals()
    claimed_autocast.install()
    claimed_kernels.install(arena)


def _patch_tensors(arena: Arena) -> None:
    tensor: Any = torch.Tensor
    to, cuda, on_device = tensor.to, tensor.cuda, arena.on_device

    def device(self: Any) -> torch.device:
        return _CUDA if on_device(self) else own_device(self)

    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            other = args[0]
            args = (other.device, other.dtype, *args[1:])
        try:
            target, dtype, non_blocking, layout = torch._C._nn._parse_to(*args, **kwargs)
        except (RuntimeError, TypeError):
            return to(self, *args, **kwargs)
        copy = bool(kwargs.get("copy"))
        if target is None or (target.type == "cuda") == on_device(self):
            return to(self, dtype=dtype or self.dtype, memory_format=_format(layout), copy=copy)
        if not self.is_floating_point() and not self.is_complex():
            dtype = dtype or self.dtype
        return torch.ops.aten._to_copy(
            self, dtype=dtype, device=target, non_blocking=non_blocking, memory_format=layout
        )

    own_device = _getter("device")
    tensor.device = property(device)
    tensor.is_cuda = property(on_device)
    tensor.is_cpu = property(lambda self: device(self).type == "cpu")
    tensor.get_device = lambda self: 0 if on_device(self) else -1
    tensor.to = functools.wraps(to)(moved)
    tensor.cuda = functools.wraps(cuda)(
        lambda self, device=None, non_blocking=False, **_: moved(self, _CUDA)
    )
    tensor.cpu = lambda self, **_: moved(self, _CPU)
    tensor.pin_memory = lambda self, *_: self
    tensor.is_pinned = lambda self, *_: False
    tensor.record_stream = lambda self, *_: None
    numpy = tensor.numpy

    def as_numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if on_device(self) and not kwargs.get("force"):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        return numpy(self, *args, **kwargs)

    tensor.numpy = as_numpy


def _getter(name: str) -> Callable[[Any], Any]:
    getter: Callable[[Any], Any] = torch._C.TensorBase.__dict__[name].__get__
    return getter


def _format(layout: Any) -> Any:
    return torch.preserve_format if layout is None else layout


class _InertObject:
    """A stream, event or context of a device that does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = _CUDA

    def __enter__(self) -> _InertObject:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def query(self) -> bool:
        """All work is done."""
        return True

    def is_capturing(self) -> bool:
        """No graph is being captured."""
        return False

    def elapsed_time(self, _: object) -> float:
        """Milliseconds between two events; not 0, because programs divide by it."""
        return 1.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self


def _patch_device_queries(arena: Arena) -> None:
    def allocated_bytes(*_: Any, **__: Any) -> int:
        return sum(size for at, (size, _) in arena.alive.items() if at >= arena.middle)

    properties = types.SimpleNamespace(
        name="CUDA device", major=_CAPABILITY[0], minor=_CAPABILITY[1],
        total_memory=_MEMORY_BYTES, multi_processor_count=_MULTIPROCESSORS, warp_size=32,
        is_integrated=False, is_multi_gpu_board=False, max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536, shared_memory_per_block=49152, L2_cache_size=40 * 2**20,
        gcnArchName="", uuid="",
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
        "is_bf16_supported": True, "is_tf32_supported": True, "get_device_name": properties.name,
        "get_device_capability": _CAPABILITY, "get_device_properties": properties,
        "get_arch_list": ["sm_80"], "can_device_access_peer": False, "initial_seed": 0,
        "mem_get_info": (_MEMORY_BYTES, _MEMORY_BYTES), "memory_summary": "",
        "memory_snapshot": [], "list_gpu_processes": "", "utilization": 0, "temperature": 0,
        "power_draw": 0, "clock_rate": 0, "memory_usage": 0,
        "is_current_stream_capturing": False, "_exchange_device": 0,
        "_maybe_exchange_device": 0, "_is_in_bad_fork": False,
    }  # fmt: skip
    ignored = (
        "init", "_lazy_init", "_lazy_call", "synchronize", "set_device", "ipc_collect",
        "empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated",
        "reset_max_memory_cached", "reset_accumulated_memory_stats", "set_stream", "manual_seed",
        "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
        "set_per_process_memory_fraction", "set_sync_debug_mode", "_sleep",
    )  # fmt: skip
    functions: dict[str, Any] = {name: _constant(value) for name, value in answers.items()}
    functions.update({name: _constant(None) for name in ignored})
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved",
                 "max_memory_reserved", "memory_cached", "max_memory_cached"):  # fmt: skip
        functions[name] = allocated_bytes
    functions["memory_stats"] = lambda *_: collections.defaultdict(int)
    functions["get_rng_state"] = lambda *_: torch.get_rng_state()
    functions["get_rng_state_all"] = lambda: [torch.get_rng_state()]
    # Code to be captured runs once, uncaptured.
    functions["make_graphed_callables"] = lambda callables, *_, **__: callables
    for name in ("Stream", "ExternalStream", "Event", "StreamContext", "device", "device_of",
                 "CUDAGraph", "graph"):  # fmt: skip
        functions[name] = _InertObject
    for name in ("current_stream", "default_stream", "stream"):
        functions[name] = _InertObject
    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
        for name, function in functions.items():
            if hasattr(module, name):
                setattr(module, name, function)
    _patch_nvtx(torch.cuda.nvtx)
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:
        accelerator.is_available = _constant(True)
        accelerator.device_count = _constant(1)
        accelerator.current_accelerator = _constant(torch.device("cuda"))
        accelerator.current_device_index = accelerator.current_device_idx = _constant(0)
        for name in (
            "synchronize",
            "empty_cache",
            "set_stream",
            "set_device_index",
            "set_device_idx",
        ):
            setattr(accelerator, name, _constant(None))
        accelerator.current_stream = _InertObject
    torch.backends.cuda.is_built = _constant(True)
    torch.backends.cudnn.is_available = _constant(True)


def _patch_nvtx(module: Any) -> None:
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(module, name, _constant(None))
    module.range = _InertObject


def _constant(value: Any) -> Any:
    return lambda *_, **__: value


def _patch_constructors() -> None:
    """Patches constructors from a program's own numbers, for which C++ would query the device."""

    def created(function: Any, device: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        wants_gradient = kwargs.pop("requires_grad", False)
        tensor = function(*args, **{**kwargs, "device": _CPU})
        if torch.device(device).type != "cpu":
            tensor = tensor.to(device)
        return tensor.requires_grad_() if wants_gradient else tensor

    for name in ("tensor", "as_tensor", "asarray"):
        function = getattr(torch, name)

        def from_data(data: Any, *args: Any, function: Any = function, **kwargs: Any) -> Any:
            device = kwargs.get("device") or torch.get_default_device()
            if isinstance(data, torch.Tensor) and kwargs.get("device") is None:
                return function(data, *args, **kwargs)
            return created(function, device, (data, *args), kwargs)

        setattr(torch, name, functools.wraps(function)(from_data))
    new_tensor = torch.Tensor.new_tensor

    def new_from_data(self: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        return created(new_tensor, kwargs.get("device") or self.device, (self, data, *args), kwargs)

    torch.Tensor.new_tensor = new_from_data  # type: ignore[method-assign,assignment]


def _patch_torch_internals() -> None:
    """Patches torch's Python code that queries C++ for a device, or creates objects of one."""

    class Generator(torch._C.Generator):  # type: ignore[misc]
        def __new__(cls, device: Any = None) -> Any:
            return torch._C.Generator.__new__(cls, "cpu")

    torch.Generator = Generator  # type: ignore[misc]
    grouped = _foreach_utils._group_tensors_by_device_and_dtype

    def by_claimed_device(lists: Any, with_indices: bool = False) -> Any:
        def groups() -> Iterator[Any]:
            for (_, dtype), value in grouped(lists, with_indices).items():
                yield (value[0][0][0].device, dtype), value

        return dict(groups())

    for module in (_foreach_utils, optimizer, clip_grad):
        if hasattr(module, "_group_tensors_by_device_and_dtype"):
            setattr(module, "_group_tensors_by_device_and_dtype", by_claimed_device)  # noqa: B010
