"""Lists the operators of models for `ridgeline evaluate`, in one forked child per model.

Reads one JSON request per line from standard input, and writes one JSON line per answer:
    {"id": 7, "kind": "timm", "out": "/cache/….json", "model": "resnet50", "size": 224,
     "batch": 256, "train": true, "channels_last": false, "fused_attention": true,
     "foreach": false, "keeps_gradients": true}
    {"id": 7, "ok": true}
    {"id": 8, "ok": false, "error": "…"}          with "too_slow": true after a timeout

The first line has the versions, null for missing packages: {"torch": "2.4.0", "timm": "1.0.9"}. The
list (docs/op-list.md) is written to `out`, completely or not at all.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import signal
import sys
from typing import Any

_MAX_LINE = 65_536
_MAX_ERROR = 500
_DEFAULT_SECONDS = 120
_DEFAULT_BYTES = 16 << 30


def main() -> int:
    """Serves requests until the end of its input."""
    # The output of a model must not be mistaken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Lists do not depend on this machine's devices, and no package may download anything.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    try:
        import timm

        timm_version = str(timm.__version__)
    except ImportError:
        timm_version = None
    torch.set_num_threads(1)
    _send(answers, {"torch": torch.__version__, "timm": timm_version})
    while True:
        line = sys.stdin.readline(_MAX_LINE)
        if not line:
            return 0
        try:
            request = json.loads(line)
            number = int(request["id"])
        except (ValueError, TypeError, KeyError):
            return 2
        _send(answers, {"id": number, **_answer(request)})


def _send(answers: io.TextIOBase | Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Lists a model in a child, so that excessive use of resources ends only the child."""
    seconds = float(request.get("seconds", _DEFAULT_SECONDS))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        status = 1
        try:
            _limit(request, seconds)
            error = _list(request)
            os.write(write_end, (error or "").encode("utf-8", "replace")[:_MAX_ERROR])
            status = 0
        except BaseException as problem:
            with contextlib.suppress(OSError):
                os.write(write_end, _message(problem).encode("utf-8", "replace")[:_MAX_ERROR])
        finally:
            os._exit(status)
    os.close(write_end)
    try:
        return _wait(child, read_end, seconds)
    finally:
        os.close(read_end)


def _wait(child: int, read_end: int, seconds: float) -> dict[str, Any]:
    readable, _, _ = select.select([read_end], [], [], seconds)
    if not readable:
        os.kill(child, signal.SIGKILL)
    output = b"" if not readable else os.read(read_end, _MAX_ERROR)
    _, status = os.waitpid(child, 0)
    if not readable:
        return {"ok": False, "too_slow": True, "error": f"it took longer than {seconds:g} s"}
    if os.WIFSIGNALED(status):
        return {"ok": False, "error": f"ended by signal {os.WTERMSIG(status)}"}
    if os.WEXITSTATUS(status) != 0 or output:
        return {"ok": False, "error": output.decode("utf-8", "replace") or "it ended early"}
    return {"ok": True}


def _limit(request: dict[str, Any], seconds: float) -> None:
    most = int(request.get("memory_bytes", _DEFAULT_BYTES))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    cpu = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))


def _list(request: dict[str, Any]) -> str | None:
    """Writes the list of one request. Returns an error message, or None."""
    import torch

    kind = request["kind"]
    if kind == "timm":
        from .timm_model import timm_step

        recorder = timm_step(
            str(request["model"]),
            int(request["size"]),
            int(request["batch"]),
            train=bool(request["train"]),
            channels_last=bool(request["channels_last"]),
            fused_attention=bool(request["fused_attention"]),
            foreach=bool(request["foreach"]),
            keeps_gradients=bool(request["keeps_gradients"]),
        )
    elif kind == "transformer":
        from .transformer_model import transformer_step

        config = request["config"]
        if not isinstance(config, dict):
            return "its configuration is no JSON object"
        recorder = transformer_step(
            config, int(request["sequence"]), int(request["batch"]), train=bool(request["train"])
        )
    elif kind == "benchmark":
        from .benchmark_models import benchmark_step

        recorder = benchmark_step(
            str(request["model"]), int(request["batch"]), half=bool(request["half"])
        )
    else:
        return f"no model of the kind {kind!r} is known"
    document = {
        "version": 1,
        "outcome": "partial" if recorder.full else "complete",
        "torch": torch.__version__,
        "device": "cuda",
        "files": [],
        "stacks": [],
        "modules": [],
        **recorder.columns(),
        "guessed": [],
        "unsupported": [],
        "failure": None,
        "notes": [],
    }
    out = str(request["out"])
    temporary_path = f"{out}.{os.getpid()}"
    with open(temporary_path, "w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
    os.replace(temporary_path, out)
    return None


def _message(problem: BaseException) -> str:
    first = str(problem).strip().split("\n")[0]
    return f"{type(problem).__name__}: {first}" if first else type(problem).__name__


if __name__ == "__main__":
    sys.exit(main())
