"""Observes the losses of backward passes, and the gradients before optimizer steps.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Protocol

import torch
from torch.optim import optimizer as optim

from ...patches.replacements import replace


class Observer(Protocol):
    """Receives the values. None of these methods may raise."""

    def went_backward(self, loss: float | None) -> None:
        """An outermost backward pass has completed. `loss` is None if it cannot be read."""

    def will_step(self, gradient_norm: float | None) -> None:
        """An optimizer is about to make a step."""


class _Passes(threading.local):
    """The number of backward passes in progress on this thread."""

    open = 0


class _Scaled:
    """The loss that a gradient scaler scaled last."""

    def __init__(self) -> None:
        self._loss: Any = lambda: None
        self._scale = 1.0

    def remember(self, loss: object, scale: float) -> None:
        if isinstance(loss, torch.Tensor):
            self._loss, self._scale = weakref.ref(loss), scale

    def scale_of(self, loss: object) -> float:
        return self._scale if self._loss() is loss else 1.0


def install(observer: Observer) -> None:
    """Installs the hooks for the rest of the process."""
    passes, scaled = _Passes(), _Scaled()
    _wrap_backward(observer, torch.Tensor, passes, scaled)
    _wrap_backward(observer, torch.autograd, passes, scaled)
    _wrap_scale(scaled)

    def will_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        observer.will_step(_gradient_norm(optimizer))

    optim.register_optimizer_step_pre_hook(will_step)


def _wrap_backward(observer: Observer, owner: Any, passes: _Passes, scaled: _Scaled) -> None:
    original = owner.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        passes.open += 1
        try:
            result = original(*args, **kwargs)
        finally:
            passes.open -= 1
        if passes.open == 0:
            roots = args[0] if args else kwargs.get("tensors")
            observer.went_backward(_loss(roots, scaled))
        return result

    replace(owner, "backward", backward)


def _wrap_scale(scaled: _Scaled) -> None:
    original: Any = torch.amp.GradScaler.scale

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        scaled.remember(result, self.get_scale() if self.is_enabled() else 1.0)
        return result

    replace(torch.amp.GradScaler, "scale", scale)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _loss(roots: Any, scaled: _Scaled) -> float | None:
    try:
        tensors = [roots] if isinstance(roots, torch.Tensor) else list(roots)
        return sum(float(one.detach().double().sum()) / scaled.scale_of(one) for one in tensors)
    except Exception:  # Subclasses of tensors may refuse anything.
        return None


@torch.no_grad()  # type: ignore[untyped-decorator]
def _gradient_norm(optimizer: Any) -> float | None:
    try:
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        gradients = [one.grad.detach() for one in parameters if one.grad is not None]
        dense = [one.coalesce().values() if one.is_sparse else one for one in gradients]
        square = sum(float(torch.linalg.vector_norm(one.float())) ** 2 for one in dense)
        # A fused optimizer divides by the gradient scaler's scale itself.
        scale = getattr(optimizer, "grad_scale", None)
        return float(square**0.5) / (1.0 if scale is None else float(scale))
    except Exception:  # Subclasses of tensors may refuse anything.
        return None
