"""Lists the operators of models, one forked child a model, for `ridgeline evaluate`.

Reads a JSON request a line on standard input and answers a JSON line each on standard output:

    {"id": 7, "kind": "timm", "out": "/cache/….json", "model": "resnet50", "size": 224,
     "batch": 256, "train": true, "channels_last": false, "fused_attention": true,
     "foreach": false, "keeps_gradients": true}
    {"id": 7, "ok": true}
    {"id": 8, "ok": false, "error": "…"}          and "too_slow": true where it ran out of time

The first line says what is here, null where it is missing: {"torch": "2.4.0", "timm": "1.0.9"}.
The list (docs/op-list.md) is written to `out`, or nothing is.
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

_MOST_LINE = 65_536
_MOST_ERROR = 500
_DEFAULT_SECONDS = 120
_DEFAULT_BYTES = 16 << 30


def main() -> int:
    """Serves until its input ends."""
    # What a model prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Nothing of a list depends on this machine's devices, and no package is to fetch anything.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    try:
        import timm

        timm_version = str(timm.__version__)
    except ImportError:
        timm_version = None
    torch.set_num_threads(1)
    _say(answers, {"torch": torch.__version__, "timm": timm_version})
    while True:
        line = sys.stdin.readline(_MOST_LINE)
        if not line:
            return 0
        try:
            request = json.loads(line)
            number = int(request["id"])
        except (ValueError, TypeError, KeyError):
            return 2
        _say(answers, {"id": number, **_answer(request)})


def _say(answers: io.TextIOBase | Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Lists in a child, so that a model that takes too much takes nothing along."""
    seconds = float(request.get("seconds", _DEFAULT_SECONDS))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        status = 1
        try:
            _limit(request, seconds)
            error = _list(request)
            os.write(write_end, (error or "").encode("utf-8", "replace")[:_MOST_ERROR])
            status = 0
        except BaseException as problem:
            with contextlib.suppress(OSError):
                os.write(write_end, _message(problem).encode("utf-8", "replace")[:_MOST_ERROR])
        finally:
            os._exit(status)
    os.close(write_end)
    try:
        return _awaited(child, read_end, seconds)
    finally:
        os.close(read_end)


def _awaited(child: int, read_end: int, seconds: float) -> dict[str, Any]:
    readable, _, _ = select.select([read_end], [], [], seconds)
    if not readable:
        os.kill(child, signal.SIGKILL)
    said = b"" if not readable else os.read(read_end, _MOST_ERROR)
    _, status = os.waitpid(child, 0)
    if not readable:
        return {"ok": False, "too_slow": True, "error": f"it took longer than {seconds:g} s"}
    if os.WIFSIGNALED(status):
        return {"ok": False, "error": f"ended by signal {os.WTERMSIG(status)}"}
    if os.WEXITSTATUS(status) != 0 or said:
        return {"ok": False, "error": said.decode("utf-8", "replace") or "it ended early"}
    return {"ok": True}


def _limit(request: dict[str, Any], seconds: float) -> None:
    most = int(request.get("memory_bytes", _DEFAULT_BYTES))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    cpu = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))


def _list(request: dict[str, Any]) -> str | None:
    """Writes the list of one request; answers what went wrong, None where nothing did."""
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
    beside = f"{out}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
    os.replace(beside, out)
    return None


def _message(problem: BaseException) -> str:
    first = str(problem).strip().split("\n")[0]
    return f"{type(problem).__name__}: {first}" if first else type(problem).__name__


if __name__ == "__main__":
    sys.exit(main())
