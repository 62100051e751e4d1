"""Renames of folders in a user namespace.

An overlay there cannot rename a folder of the lower layer, and reports that the target is on
another file system. Programs rename folders to keep their latest results.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable
from typing import Any

from . import pathlib_functions


def install() -> None:
    """From now on, such a folder is copied and then removed."""

    def renaming(real: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(real)
        def rename(source: Any, target: Any, **kwargs: Any) -> None:
            try:
                real(source, target, **kwargs)
            except OSError as error:
                if error.errno != errno.EXDEV or kwargs or not os.path.isdir(source):
                    raise
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
                shutil.rmtree(source)

        return rename

    os.rename, os.replace = renaming(os.rename), renaming(os.replace)
    pathlib_functions.install()
