"""Makes torch independent of values that are unknown in an estimate: weights are not initialized,
and no optimizer step is skipped because of overflowing gradients.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    """From now on, neither depends on values."""
    _skip_weight_init()
    _never_skip_steps()


def _skip_weight_init() -> None:
    """Makes `torch.nn.init` leave weights unchanged."""
    for name, function in list(vars(torch.nn.init).items()):
        if name.endswith("_") and not name.startswith("_") and callable(function):
            setattr(torch.nn.init, name, _unchanged)


def _unchanged(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


def _never_skip_steps() -> None:
    """Makes gradient scalers always step. Overflowing gradients, which make them skip a step, are
    rare.
    """
    scaler: Any = torch.amp.GradScaler

    def step(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        for found in state["found_inf_per_device"].values():
            found.item()
        return optimizer.step(*args, **kwargs)

    scaler._maybe_opt_step = step
