"""Makes `pathlib` use patched functions of `os` and `io`.

Before Python 3.11, pathlib keeps the functions that existed when it was imported. Later versions
look them up in `os` each time.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import io
import os
import pathlib
from typing import Any

# By the module that a function reports.
_HOMES: dict[Any, Any] = {"posix": os, "nt": os, "io": io, "_io": io}


def install() -> None:
    """From now on, paths call the current functions of `os` and `io`."""
    accessor: Any = getattr(pathlib, "_normal_accessor", None)
    if accessor is None:
        return
    for name, kept in vars(type(accessor)).items():
        home = _HOMES.get(getattr(kept, "__module__", None))
        if home is not None:
            # Set on the instance, so functions do not become methods.
            setattr(accessor, name, getattr(home, kept.__name__))
