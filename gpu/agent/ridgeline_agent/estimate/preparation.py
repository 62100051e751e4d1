"""One estimate, in the process of the user's program: it runs on hollow tensors, which takes
milliseconds and computes nothing.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

# The meta kernels that are written in Python; the zygote has them imported before it forks.
import torch._meta_registrations
import torch._subclasses.fake_tensor

from ..patches.overlay import Overlay
from ..protocol.host import Host
from ..protocol.spec import RunSpec
from .estimator import Estimator
from .patches import claimed_cuda, no_side_effects, unknown_values
from .patches.hollow_loaders import HollowLoaders

# What is left of the time limit to write the list in, before the supervisor ends the process.
_SECONDS_TO_WRITE = 1.0


def estimator_of(spec: RunSpec, host: Host, confined: bool) -> Estimator:
    """Makes this process one in which the program only seems to run, and what watches it there.
    `confined`: the kernel keeps it from having effects (sandbox/confinement.py).
    """
    # Operators on small tensors are computed, and threads would only wait for each other.
    torch.set_num_threads(1)
    # Compiled functions run as they are written: nothing would be gained by compiling them here.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    torch._dynamo.config.disable = True
    unknown_values.install()
    # Whether a distribution's parameters make sense cannot be seen in values that nobody knows.
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
    # Never left: the process ends with the program.
    estimator.mode.__enter__()
    return estimator


def _watch_time(spec: RunSpec, estimator: Estimator) -> None:
    """Writes what ran when the time is nearly over: a loop that an edit made endless still has
    operators. One that runs none, and holds Python up in C, is ended by the supervisor.
    """
    seconds = spec.limits.seconds
    if seconds is None or not hasattr(signal, "setitimer"):
        return

    def late(*_: Any) -> None:
        estimator.late(seconds)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(seconds - _SECONDS_TO_WRITE, seconds / 2))
