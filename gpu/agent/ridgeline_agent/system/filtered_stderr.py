"""Keeps messages of a library's C++ code from standard error, while the rest passes."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from typing import IO

_STDERR = 2


class FilteredStderr:
    """Holds back what is written to standard error from `start` to `stop`, and then passes on the
    lines that do not match the pattern.
    """

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern
        self._held: IO[bytes] | None = None
        self._original = -1

    def start(self) -> None:
        """Starts to hold back. Without a descriptor of standard error, nothing happens."""
        if self._held is not None:
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            held = tempfile.TemporaryFile()  # noqa: SIM115
            try:
                self._original = os.dup(_STDERR)
                os.dup2(held.fileno(), _STDERR)
            except OSError:
                held.close()
                raise
            self._held = held

    def stop(self) -> None:
        """Passes on what was held back. Does nothing if it was not started."""
        held, self._held = self._held, None
        if held is None:
            return
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        with contextlib.suppress(OSError), held:
            os.dup2(self._original, _STDERR)
            os.close(self._original)
            held.seek(0)
            for line in held:
                if not self._pattern.search(line):
                    os.write(_STDERR, line)
