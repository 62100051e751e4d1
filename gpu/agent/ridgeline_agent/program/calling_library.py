"""The library that runs the training loop for the program, such as `transformers`."""

from __future__ import annotations

import re
import types

from .sources import UserCode

_PACKAGE = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\](\w+)[/\\]")


def calling_library(frame: types.FrameType | None, user_code: UserCode) -> str | None:
    """Returns the installed package that the innermost line of the user calls.

    `frame` is inside the loop. The result is None if the user's line calls torch itself.
    """
    library = None
    while frame is not None:
        filename = frame.f_code.co_filename
        if user_code.path(filename) is not None:
            return library
        found = _PACKAGE.search(filename)
        if found is not None and found.group(1) != "torch":
            library = found.group(1)
        frame = frame.f_back
    return None
