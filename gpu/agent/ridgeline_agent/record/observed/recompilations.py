"""Recompilations and graph breaks of torch.compile: `observed.recompilations` and
`observed.graph_breaks` of the manifest.

Dynamo stores both internally, and differently in each version. What is not found in the known
places is not reported.
"""

from __future__ import annotations

import re
import sys
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ...failure.exception import shorten, without_absolute_paths
from ...patches import hooks
from ...program.sources import Sources
from ..patches.compiled import CompiledRegions

_MAX_ENTRIES = 64
# Dynamo keeps some tens of compilations, and every graph break of the run.
_MAX_SCANNED = 10_000
_MAX_REASON_CHARS = 500
# `frame/compilation`, followed by the number of the attempt if there were several.
_IDENTITY = re.compile(r"(\d+)/(\d+)(?:_\d+)?$")
# Quotes of the program's own text follow this.
_QUOTED = re.compile(r"\s+# .*")
# What follows is for developers of Dynamo, and how to get more information.
_ASIDE = ("Hint:", "Developer debug context:", "For more details", "User stack trace", "from user")

# Dynamo's name for the rest of a function after a graph break.
_REST = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")
_DEF = re.compile(rb"\s*(?:async\s+)?def\b")
_MAX_DECORATORS = 100

# `(file, line)`.
_Place = tuple[int, int]


def compilations_so_far() -> frozenset[str]:
    """Returns Dynamo's identities of all compilations until now."""
    return frozenset(_identity(metrics) for metrics in _compilations())


def recompilations_json(
    sources: Sources,
    requested_at: list[tuple[types.CodeType | None, _Place]],
    in_first_iteration: frozenset[str] = frozenset(),
) -> list[dict[str, object]]:
    """Returns `observed.recompilations`: each function that was compiled again after the first
    iteration. That one compiles a function for every shape that it is called with.

    Args:
        requested_at: The lines that call `torch.compile`, which stand for functions of libraries.
        in_first_iteration: The compilations until the end of the first iteration.
    """
    found: dict[_Place, _Recompilation] = {}
    defined: dict[tuple[object, object], _Place] = {}
    counted: set[str] = set()
    for metrics in _compilations():
        place = _function(sources, metrics, requested_at, defined)
        identity = _identity(metrics)
        matched = _IDENTITY.search(identity)
        if place is None or matched is None:
            continue
        # For example the attempt in which Dynamo finds that there were too many.
        has_failed = bool(getattr(metrics, "fail_type", None))
        if not has_failed:
            defined[metrics.co_filename, metrics.co_name] = place
        is_again = int(matched[2]) > 0 and identity not in in_first_iteration
        if is_again and identity not in counted:
            counted.add(identity)
            recompilation = found.setdefault(place, _Recompilation())
            recompilation.counts[matched[1]] += not has_failed
            recompilation.time_ns += _compile_ns(metrics)
            recompilation.reason = recompilation.reason or _reason(sources, _why(metrics))
    return [
        {
            "at": {"file": file, "line": line},
            # The parts of a function are recompiled together.
            "count": max(recompilation.counts.values()),
            "time_ns": recompilation.time_ns,
            "reason": recompilation.reason,
        }
        for (file, line), recompilation in found.items()
        if any(recompilation.counts.values())
    ][:_MAX_ENTRIES]


def _identity(metrics: Any) -> str:
    return str(getattr(metrics, "compile_id", None) or "")


class _Recompilation:
    def __init__(self) -> None:
        # By Dynamo's number for the part of the function.
        self.counts: Counter[str] = Counter()
        self.time_ns = 0
        self.reason = ""


def _function(
    sources: Sources,
    metrics: Any,
    requested_at: list[tuple[types.CodeType | None, _Place]],
    defined: dict[tuple[object, object], _Place],
) -> _Place | None:
    """Returns the line of the compiled function's `def`, or the line that requested its
    compilation.
    """
    filename = getattr(metrics, "co_filename", None)
    name, line = getattr(metrics, "co_name", None), getattr(metrics, "co_firstlineno", None)
    if not isinstance(filename, str) or not isinstance(name, str):
        return None
    if filename == hooks.__file__:
        # Older versions of torch compile the recorder's wrapper for each wrapped module.
        return None
    resumed = _REST.match(name)
    if resumed is not None:
        return defined.get((filename, resumed[1]))
    place = _place(sources, filename, line)
    if place is not None:
        return _of_def(sources, place)
    for code, request in requested_at:
        if code is not None and (code.co_filename, code.co_firstlineno) == (filename, line):
            return request
    # A library's module is compiled within a function of Dynamo.
    places = {request for _, request in requested_at}
    return next(iter(places)) if len(places) == 1 else None


def _of_def(sources: Sources, place: _Place) -> _Place:
    """Returns the line of the `def` whose first decorator is at `place`."""
    file, first = place
    lines = (sources.text(file) or b"").splitlines()[first - 1 : first - 1 + _MAX_DECORATORS]
    offset = next((at for at, line in enumerate(lines) if _DEF.match(line)), 0)
    return (file, first + offset)


def graph_breaks_json(sources: Sources, compiled: CompiledRegions) -> list[dict[str, object]]:
    """Returns `observed.graph_breaks`: the user's lines at which a graph ends."""
    found: dict[tuple[_Place, str], _Break] = {}
    for broken in _dynamo_state("graph_break_reasons"):
        stack = list(getattr(broken, "user_stack", None) or ())
        places = [
            _place(sources, getattr(frame, "filename", None), getattr(frame, "lineno", None))
            for frame in stack
        ]
        # The innermost frame is last.
        place = next((place for place in reversed(places) if place is not None), None)
        if place is not None:
            key = (place, _reason(sources, getattr(broken, "reason", "")))
            one = found.setdefault(key, _Break())
            one.count += 1
            one.frames |= compiled.frames_after(stack)
    return [
        {
            "at": {"file": file, "line": line},
            "count": one.count,
            "reason": reason,
            "frames": sorted(one.frames),
        }
        for ((file, line), reason), one in found.items()
    ][:_MAX_ENTRIES]


class _Break:
    def __init__(self) -> None:
        self.count = 0
        self.frames: set[int] = set()


def _dynamo_state(name: str) -> Iterator[Any]:
    """Yields what Dynamo's utils module stores under this name, if the program has loaded it."""
    state = getattr(sys.modules.get("torch._dynamo.utils"), name, None)
    if isinstance(state, Iterable):
        for item, _ in zip(list(state), range(_MAX_SCANNED)):
            yield item


def _compilations() -> Iterator[Any]:
    return _dynamo_state("_compilation_metrics")


def _place(sources: Sources, filename: Any, line: Any) -> _Place | None:
    if not isinstance(filename, str) or not isinstance(line, int) or line < 1:
        return None
    file = sources.file(filename)
    return None if file is None else (file, line)


def _compile_ns(metrics: Any) -> int:
    microseconds = getattr(metrics, "dynamo_cumulative_compile_time_us", None)
    if isinstance(microseconds, int):
        return microseconds * 1000
    seconds = getattr(metrics, "entire_frame_compile_time_s", None)
    return round(seconds * 1e9) if isinstance(seconds, float) and seconds < 1e6 else 0


def _why(metrics: Any) -> object:
    why = getattr(metrics, "recompile_reason", None)
    if why is not None:
        return why
    # Before torch 2.7, the reasons are only stored by code object.
    failures = getattr(sys.modules.get("torch._dynamo.utils"), "guard_failures", None)
    function_key = (metrics.co_filename, metrics.co_firstlineno)
    for code, reasons in list(failures.items()) if isinstance(failures, dict) else ():
        if (getattr(code, "co_filename", 0), getattr(code, "co_firstlineno", 0)) == function_key:
            return reasons[0] if reasons else ""
    return ""


def _reason(sources: Sources, reason: object) -> str:
    """Returns torch's reason, without the program's own text and without paths."""
    lines: list[str] = []
    for line in str(reason).splitlines():
        if line.strip().startswith(_ASIDE):
            break
        if line.strip():
            lines.append(_QUOTED.sub("", line).strip())
    text = without_absolute_paths(" ".join(lines), sources.user_code.root)
    return shorten(text, _MAX_REASON_CHARS)
