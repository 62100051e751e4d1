"""An estimate in the process of the user's program: it runs on hollow tensors, which takes
milliseconds and computes nothing.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

# Meta kernels written in Python. The zygote imports them before it forks.
import torch._meta_registrations
import torch._subclasses.fake_tensor

from ..patches.overlay import Overlay
from ..protocol.host import Host
from ..protocol.spec import RunSpec
from .estimator import Estimator
from .patches import claimed_cuda, no_side_effects, unknown_values
from .patches.hollow_loaders import HollowLoaders

# The part of the time limit reserved for writing the list, before the supervisor ends the process.
_SECONDS_TO_WRITE = 1.0


def estimator_of(spec: RunSpec, host: Host, confined: bool) -> Estimator:
    """Prepares this process so that the program's operators and effects are only simulated, and
    returns the estimator. `confined`: the kernel prevents effects (sandbox/confinement.py).
    """
    # Operators on small tensors are computed, and more threads would only wait for each other.
    torch.set_num_threads(1)
    # Compiled functions run eagerly, because compiling them has no benefit here.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    torch._dynamo.config.disable = True
    unknown_values.install()
    # The validity of a distribution's parameters cannot be checked without values.
    torch.distributions.Distribution.set_default_validate_args(False)
    overlay = Overlay(spec.root, spec.overlay)
    estimator = Estimator(spec, host, overlay)
    estimator.install()
    estimator.guesses.install(estimator.mode.knows)
    if spec.claim != "cpu":
        claimed_cuda.install(estimator.arena)
    tensor = estimator.mode.tensor
    HollowLoaders(spec.batches, tensor, estimator.note).install()
    overlay.install()
    no_side_effects.install(spec.out, confined)
    _watch_time(spec, estimator)
    # Never exited: the process ends with the program.
    estimator.mode.__enter__()
    return estimator


def _watch_time(spec: RunSpec, estimator: Estimator) -> None:
    """Writes what ran when the time limit is almost reached: a loop that an edit made endless still
    has operators. The supervisor ends a program that runs none and blocks Python in C.
    """
    seconds = spec.limits.seconds
    if seconds is None or not hasattr(signal, "setitimer"):
        return

    def late(*_: Any) -> None:
        estimator.late(seconds)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(seconds - _SECONDS_TO_WRITE, seconds / 2))
