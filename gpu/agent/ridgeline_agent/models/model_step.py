"""One step of a model on fake tensors: the operators that a benchmark of it would run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..estimate.fake_device import FusedAttention, cuda_autocast
from ..estimate.operator_recorder import BACKWARD, OPTIMIZER, OTHER, OperatorRecorder
from .benchmark_updates import Stepper, Update
from .fake_backward import run_backward

_CUDA = torch.device("cuda", 0)

# The assumed result where a tensor's value decides something, because there are no values.
_GUESS = 1

# Smaller tensors are computed, because a model's constructor may read them (drop rates of layers).
_LARGE_ELEMENTS = 16_384


class _NoValues(TorchDispatchMode):
    """Leaves large tensors unwritten while a model is created: their values do not matter, and
    memory that is never written takes no space.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else None
        is_large = isinstance(target, torch.Tensor) and target.numel() > _LARGE_ELEMENTS
        if is_large and func._schema.is_mutable and func._schema.name.endswith("_"):
            return target
        return func(*args, **kwargs)


class _Guess(TorchDispatchMode):
    """Returns a guess where a program reads a tensor's value."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return torch.zeros((), dtype=args[0].dtype, device="cpu").item() + _GUESS
        return func(*args, **(kwargs or {}))


def create_without_values(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Creates a model without its weights' values."""
    with _NoValues():
        return make()


def record_step(
    model: torch.nn.Module,
    inputs: Callable[[torch.device], tuple[Any, ...]],
    *,
    loss: Callable[[Any], torch.Tensor] | None,
    optimizer: Update | None = None,
    autocast: torch.dtype | None = None,
    channels_last: bool = False,
    flash: bool = True,
    keeps_gradients: bool = False,
    loss_apart: bool = False,
) -> OperatorRecorder:
    """Runs one step and returns its operators.

    Without a `loss` it is inference: no gradients, and the model in `eval()` mode. `model` is
    changed: its tensors become fake ones. `keeps_gradients` means that `zero_grad()` fills them
    with zeros, as before torch 2.0, so the backward pass adds to them. With `loss_apart`, the loss
    has the phase *other*, because some benchmarks exclude it from their times.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    recorder = OperatorRecorder()
    with fake:
        _become_fake(model, channels_last)
        arguments = inputs(_CUDA)
        if channels_last:
            arguments = tuple(
                value.contiguous(memory_format=torch.channels_last)
                if isinstance(value, torch.Tensor) and value.dim() == 4
                else value
                for value in arguments
            )
        if loss is None:
            model.eval()
            with torch.no_grad(), _precision(autocast), FusedAttention(flash), recorder, _Guess():
                model(*arguments)
            return recorder
        model.train()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        stepper = optimizer(parameters) if optimizer is not None else None
        _simulate_first_step(parameters, stepper, keeps_gradients)
        with recorder, _Guess():
            with _precision(autocast), FusedAttention(flash):
                output = model(*arguments)
                recorder.phase = OTHER if loss_apart else recorder.phase
                value = loss(output)
            recorder.phase = BACKWARD
            run_backward(value)
            recorder.phase = OPTIMIZER
            if stepper is not None:
                with torch.no_grad():
                    stepper.step()
    return recorder


@contextlib.contextmanager
def _precision(autocast: torch.dtype | None) -> Iterator[None]:
    if autocast is None:
        yield
    else:
        with cuda_autocast(autocast):
            yield


def _simulate_first_step(
    parameters: list[torch.nn.Parameter],
    stepper: Stepper | None,
    keeps_gradients: bool,
) -> None:
    """Simulates a first step, which creates the optimizer's state and gradients."""
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    if stepper is not None:
        with torch.no_grad():
            stepper.step()
    if not keeps_gradients:
        for parameter in parameters:
            parameter.grad = None


def _become_fake(model: torch.nn.Module, channels_last: bool) -> None:
    """Replaces each parameter and buffer by a fake tensor on the device."""
    seen: dict[int, torch.Tensor] = {}

    def fake_of(real: torch.Tensor) -> torch.Tensor:
        known = seen.get(id(real))
        if known is not None:
            return known
        tensor = torch.empty_strided(
            tuple(real.shape), real.stride(), dtype=real.dtype, device=_CUDA
        )
        if channels_last and tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if isinstance(real, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, requires_grad=real.requires_grad)
        seen[id(real)] = tensor
        return tensor

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, real in list(tensors.items()):
                if real is not None:
                    tensors[name] = fake_of(real)  # type: ignore[assignment]
        for name, real in list(vars(module).items()):
            # Tensors that are neither; some models store their anchors and tables this way.
            if type(real) is torch.Tensor:
                setattr(module, name, fake_of(real))
