"""The command that starts the ranks, and the request with the ranks' paths."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ..protocol import rank_states
from ..protocol.spec import RunSpec

# Launchers that take a script and start a Python for it. Others (srun, mpirun, env, the user's own
# script) take a command, which may be one of these: `srun -N 2 torchrun`.
_TAKE_A_SCRIPT = ("torchrun", "accelerate-launch", "deepspeed")
_PYTHON = re.compile(r"python[0-9.]*w?$")


def launch_command(spec: RunSpec, boot: str, out: str) -> list[str]:
    """Returns the launcher's arguments and the agent's command, in place of the program's."""
    launcher = spec.launcher
    words = [] if launcher is None else list(launcher.command)
    ranks_paths = {} if launcher is None else launcher.paths
    agent = [translated(boot, ranks_paths), "--rank"]
    request = translated(os.path.join(out, rank_states.REQUEST), ranks_paths)
    python = [] if starts_python(words) else [sys.executable, "-u"]
    return [*words, *python, *agent, request]


def starts_python(words: list[str]) -> bool:
    """Whether a script can follow these arguments, rather than a Python and a script."""
    for word, following in zip(words, [*words[1:], ""]):
        name = os.path.basename(word).partition(".exe")[0]
        if name in _TAKE_A_SCRIPT or (name == "accelerate" and following == "launch"):
            return True
        # At the end, or with its own arguments: `python -m torch.distributed.run`, `python -u`.
        if _PYTHON.match(name) and (
            not following or following[0] == "-" or following[-3:] == ".py"
        ):
            return True
    return False


def with_ranks_paths(spec: RunSpec, request: dict[str, Any], out: str) -> dict[str, Any]:
    """Returns the request with the paths as the ranks see them."""
    ranks_paths = {} if spec.launcher is None else spec.launcher.paths
    entry = dict(request.get("entry") or {})
    if "path" in entry:
        entry["path"] = translated(str(entry["path"]), ranks_paths)
    changed = {
        key: [translated(one, ranks_paths) for one in request.get(key) or ()]
        for key in ("user_code", "not_user_code", "earlier")
    }
    for key, path in (("root", spec.root), ("cwd", spec.cwd), ("out", out)):
        changed[key] = translated(path, ranks_paths)  # type: ignore[assignment]
    return {**request, **changed, "entry": entry, "launcher": None}


def translated(path: str, ranks_paths: Mapping[str, str]) -> str:
    """Translates a local path to the ranks' view, by the longest folder with another name there."""
    best = ""
    for here in ranks_paths:
        folder = here.rstrip("/") or "/"
        inside = path == folder or path.startswith(folder.rstrip("/") + "/")
        if inside and len(here) > len(best):
            best = here
    if not best:
        return path
    rest = path[len(best.rstrip("/")) :]
    return ranks_paths[best].rstrip("/") + rest
