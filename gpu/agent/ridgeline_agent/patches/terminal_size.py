"""A fake terminal size for programs that call `stty` to draw a progress bar.

A run has no terminal, so `stty size` prints nothing, which such programs do not expect:
`_, width = os.popen("stty size", "r").read().split()` is in many copies of one training script.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from typing import Any

# The default size of a terminal.
_ROWS, _COLUMNS = 24, 80


def fake_terminal_size() -> None:
    """Makes `os.popen("stty size")` return a size in this process."""
    popen: Callable[..., Any] = os.popen

    @functools.wraps(popen)
    def answered(cmd: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(cmd, str) and cmd.split() == ["stty", "size"]:
            return io.StringIO(f"{_ROWS} {_COLUMNS}\n")
        return popen(cmd, *args, **kwargs)

    os.popen = answered
