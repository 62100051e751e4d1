"""Runs the `ridgeline` binary that was installed with this module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from typing import Any

_NAME = "ridgeline.exe" if os.name == "nt" else "ridgeline"
# Reading a long recording takes seconds.
_MAX_SECONDS = 300


class BinaryError(Exception):
    """The binary is missing or failed. The message is for the user."""


def binary() -> str:
    """Returns the path of the binary."""
    scripts = "Scripts" if os.name == "nt" else "bin"
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Below the packages (`pip install --target`), and beside `lib/python3.12/site-packages` or
    # `Lib/site-packages` of the same environment.
    levels = (".", "../..", "../../..")
    folders = [os.path.normpath(os.path.join(packages, level, scripts)) for level in levels]
    folders.append(sysconfig.get_path("scripts"))
    for folder in folders:
        path = os.path.join(folder, _NAME)
        if os.path.isfile(path):
            return path
    raise BinaryError(
        f"the ridgeline binary was not found in {folders[-1]}: install the package ridgeline-lsp "
        f"with {sys.executable} -m pip"
    )


def call(command: str, *options: str, request: dict[str, Any]) -> str:
    """Runs a subcommand of `ridgeline cell` and returns its output."""
    try:
        ended = subprocess.run(
            [binary(), *options, "cell", command],
            input=json.dumps(request).encode("utf-8"),
            capture_output=True,
            timeout=_MAX_SECONDS,
        )
    except OSError as error:
        raise BinaryError(f"the ridgeline binary could not be started: {error}") from None
    except subprocess.TimeoutExpired:
        raise BinaryError(f"ridgeline did not answer within {_MAX_SECONDS} s") from None
    if ended.returncode != 0:
        message = ended.stderr.decode("utf-8", "replace").strip()
        raise BinaryError(message or f"ridgeline exited with code {ended.returncode}")
    return ended.stdout.decode("utf-8", "replace")
