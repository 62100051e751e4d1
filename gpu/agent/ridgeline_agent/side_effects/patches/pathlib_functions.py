"""Paths of `pathlib` follow what replaces functions of `os` and `io`.

Before Python 3.11 they keep the functions that there were when `pathlib` was imported. Later ones
ask `os` each time.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import io
import os
import pathlib
from typing import Any

# By the module that a function names as its own.
_HOMES: dict[Any, Any] = {"posix": os, "nt": os, "io": io, "_io": io}


def install() -> None:
    """From now on they call the functions that `os` and `io` have at this moment."""
    accessor: Any = getattr(pathlib, "_normal_accessor", None)
    if accessor is None:
        return
    for name, kept in vars(type(accessor)).items():
        home = _HOMES.get(getattr(kept, "__module__", None))
        if home is not None:
            # Of the instance, so that no function becomes its method.
            setattr(accessor, name, getattr(home, kept.__name__))
