"""Seeds the generators of random numbers, so that two runs of a program draw the same numbers.

A program that sets its own seed does so later, and keeps it.
"""

from __future__ import annotations

import random
import sys

import torch

_SEED = 0


def seed_generators() -> None:
    """Seeds the generators of Python, torch and, if it is loaded, NumPy."""
    random.seed(_SEED)
    torch.manual_seed(_SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(_SEED)
