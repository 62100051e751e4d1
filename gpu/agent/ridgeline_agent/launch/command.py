"""The command that starts the ranks, and the request as the ranks have to read it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ..protocol import rank_states
from ..protocol.spec import RunSpec

# Launchers that take a script and start a Python for it by themselves. The others (srun, mpirun,
# env, a script of one's own) take a command, which may be one of these: `srun -N 2 torchrun`.
_TAKE_A_SCRIPT = ("torchrun", "accelerate-launch", "deepspeed")
_PYTHON = re.compile(r"python[0-9.]*w?$")


def launch_command(spec: RunSpec, boot: str, out: str) -> list[str]:
    """The launcher's words, then the agent's where the program's would stand."""
    launcher = spec.launcher
    words = [] if launcher is None else list(launcher.command)
    there = {} if launcher is None else launcher.paths
    agent = [translated(boot, there), "--rank"]
    request = translated(os.path.join(out, rank_states.REQUEST), there)
    python = [] if brings_its_python(words) else [sys.executable, "-u"]
    return [*words, *python, *agent, request]


def brings_its_python(words: list[str]) -> bool:
    """Whether a script can follow these words, rather than a Python and a script."""
    for word, following in zip(words, [*words[1:], ""]):
        name = os.path.basename(word).partition(".exe")[0]
        if name in _TAKE_A_SCRIPT or (name == "accelerate" and following == "launch"):
            return True
        # At the end, or with words of its own: `python -m torch.distributed.run`, `python -u`.
        if _PYTHON.match(name) and (
            not following or following[0] == "-" or following[-3:] == ".py"
        ):
            return True
    return False


def paths_there(spec: RunSpec, request: dict[str, Any], out: str) -> dict[str, Any]:
    """The request with the paths as the ranks see them."""
    there = {} if spec.launcher is None else spec.launcher.paths
    entry = dict(request.get("entry") or {})
    if "path" in entry:
        entry["path"] = translated(str(entry["path"]), there)
    changed = {
        key: [translated(one, there) for one in request.get(key) or ()]
        for key in ("user_code", "not_user_code", "earlier")
    }
    for key, path in (("root", spec.root), ("cwd", spec.cwd), ("out", out)):
        changed[key] = translated(path, there)  # type: ignore[assignment]
    return {**request, **changed, "entry": entry, "launcher": None}


def translated(path: str, there: Mapping[str, str]) -> str:
    """A path of here as it is there: by the longest folder that is known to have another name."""
    best = ""
    for here in there:
        folder = here.rstrip("/") or "/"
        inside = path == folder or path.startswith(folder.rstrip("/") + "/")
        if inside and len(here) > len(best):
            best = here
    if not best:
        return path
    rest = path[len(best.rstrip("/")) :]
    return there[best].rstrip("/") + rest
