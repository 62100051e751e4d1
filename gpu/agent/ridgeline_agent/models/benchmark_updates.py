"""How NVIDIA's PyTorch examples update weights, as far as memory traffic matters: which operators
process which tensors, not with which numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn


class Stepper(Protocol):
    """Updates the parameters: a PyTorch optimizer, or a simplified one."""

    def step(self) -> object: ...


Parameters = list[nn.Parameter]
Update = Callable[[Parameters], Stepper]


def momentum(parameters: Parameters) -> Stepper:
    """SGD with momentum."""
    stepper: Stepper = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)
    return stepper


def fused_adam(parameters: Parameters) -> Stepper:
    """Apex's `FusedAdam`: one kernel over many tensors."""
    stepper: Stepper = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    return stepper


def fused_adam_clipped(parameters: Parameters) -> Stepper:
    """The same, after clipping the gradients' norm."""
    return _Clipped(parameters, fused_adam(parameters))


def adam_clipped(parameters: Parameters) -> Stepper:
    """`torch.optim.Adam` of that time: tensor by tensor, operator by operator."""
    return _Clipped(parameters, _Adam(parameters))


def lamb_clipped(parameters: Parameters) -> Stepper:
    """LAMB (You et al., 2020) in TorchScript, which fuses its Adam part."""
    return _Clipped(parameters, _Lamb(parameters))


def with_master_weights(update: Update) -> Update:
    """Updates FP32 master weights, and copies them back to the weights (Apex's O2)."""
    return lambda parameters: _Masters(parameters, update)


def _gradients(parameters: Parameters) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


class _Clipped:
    def __init__(self, parameters: Parameters, inner: Stepper) -> None:
        self._parameters, self._inner = parameters, inner

    def step(self) -> None:
        gradients = _gradients(self._parameters)
        torch._foreach_norm(gradients)
        torch._foreach_mul_(gradients, 0.5)
        self._inner.step()


class _Adam:
    """PyTorch's own Adam reads values of tensors, which fake ones do not have."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._moments = [
            (torch.empty_like(parameter), torch.empty_like(parameter)) for parameter in parameters
        ]

    def step(self) -> None:
        for parameter, (first, second) in zip(self._parameters, self._moments):
            if parameter.grad is not None:
                first.mul_(0.9).add_(parameter.grad, alpha=0.1)
                second.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                root = (second.sqrt() / 0.5).add_(1e-8)
                parameter.addcdiv_(first, root, value=-1e-3)


class _Lamb:
    def __init__(self, parameters: Parameters) -> None:
        self._parameters, self._adam = parameters, fused_adam(parameters)

    def step(self) -> None:
        self._adam.step()
        # The norms of the update and of the weights determine the step size.
        steps = _gradients(self._parameters)
        torch._foreach_norm(steps)
        torch._foreach_norm(self._parameters)
        torch._foreach_add_(self._parameters, steps)


class _Masters:
    def __init__(self, parameters: Parameters, update: Update) -> None:
        self._parameters = parameters
        self._masters = [nn.Parameter(parameter.detach().float()) for parameter in parameters]
        for master in self._masters:
            master.grad = torch.empty_like(master)
        self._inner = update(self._masters)

    def step(self) -> None:
        torch._foreach_copy_(_gradients(self._masters), _gradients(self._parameters))
        self._inner.step()
        torch._foreach_copy_(self._parameters, self._masters)
