"""What torch.compile compiled again, and where it gave up a graph: `observed.recompilations` and
`observed.graph_breaks` of the manifest.

Dynamo keeps both for itself, and differently in each version. What is not where it is looked for is
not told.
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

_MOST_ENTRIES = 64
# Dynamo keeps some tens of compilations, and every graph break of the run.
_MOST_LOOKED_AT = 10_000
_LONGEST_REASON = 500
# `frame/compilation`, with the attempt behind it where there were several.
_IDENTITY = re.compile(r"(\d+)/(\d+)(?:_\d+)?$")
# What is quoted of the program's own text stands behind this.
_QUOTED = re.compile(r"\s+# .*")
# What follows is for those who work on Dynamo, and how to ask for more.
_ASIDE = ("Hint:", "Developer debug context:", "For more details", "User stack trace", "from user")

# What Dynamo calls the rest of a function behind a graph break.
_REST = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+$")
_DEF = re.compile(rb"\s*(?:async\s+)?def\b")
_MOST_DECORATORS = 100

# `(file, line)`.
_Place = tuple[int, int]


def recompilations_json(
    sources: Sources, asked_at: list[tuple[types.CodeType | None, _Place]]
) -> list[dict[str, object]]:
    """`observed.recompilations`: each function that was compiled more than once.

    `asked_at` are the lines that call `torch.compile`, which stand for functions of libraries.
    """
    found: dict[_Place, _Recompilation] = {}
    defined: dict[tuple[object, object], _Place] = {}
    counted: set[str] = set()
    for metrics in _compilations():
        place = _function(sources, metrics, asked_at, defined)
        identity = str(getattr(metrics, "compile_id", None) or "")
        matched = _IDENTITY.search(identity)
        if place is None or matched is None:
            continue
        # Such as the one with which Dynamo finds that there were too many.
        has_failed = bool(getattr(metrics, "fail_type", None))
        if not has_failed:
            defined[metrics.co_filename, metrics.co_name] = place
        if int(matched[2]) > 0 and identity not in counted:
            counted.add(identity)
            again = found.setdefault(place, _Recompilation())
            again.counts[matched[1]] += not has_failed
            again.time_ns += _compile_ns(metrics)
            again.reason = again.reason or _reason(sources, _why(metrics))
    return [
        {
            "at": {"file": file, "line": line},
            # The parts of one function are compiled again together.
            "count": max(again.counts.values()),
            "time_ns": again.time_ns,
            "reason": again.reason,
        }
        for (file, line), again in found.items()
        if any(again.counts.values())
    ][:_MOST_ENTRIES]


class _Recompilation:
    def __init__(self) -> None:
        # By Dynamo's number of the part of the function.
        self.counts: Counter[str] = Counter()
        self.time_ns = 0
        self.reason = ""


def _function(
    sources: Sources,
    metrics: Any,
    asked_at: list[tuple[types.CodeType | None, _Place]],
    defined: dict[tuple[object, object], _Place],
) -> _Place | None:
    """The line of the `def` of what was compiled, or that asked for it to be compiled."""
    filename = getattr(metrics, "co_filename", None)
    name, line = getattr(metrics, "co_name", None), getattr(metrics, "co_firstlineno", None)
    if not isinstance(filename, str) or not isinstance(name, str):
        return None
    if filename == hooks.__file__:
        # Older versions of torch compile the recorder's function for each module that it is around.
        return None
    rest = _REST.match(name)
    if rest is not None:
        return defined.get((filename, rest[1]))
    place = _place(sources, filename, line)
    if place is not None:
        return _of_def(sources, place)
    for code, asked in asked_at:
        if code is not None and (code.co_filename, code.co_firstlineno) == (filename, line):
            return asked
    # A module of a library is compiled within a function of Dynamo's.
    places = {asked for _, asked in asked_at}
    return next(iter(places)) if len(places) == 1 else None


def _of_def(sources: Sources, place: _Place) -> _Place:
    """The line of the `def` whose first decorator stands at `place`."""
    file, first = place
    lines = (sources.text(file) or b"").splitlines()[first - 1 : first - 1 + _MOST_DECORATORS]
    behind = next((at for at, line in enumerate(lines) if _DEF.match(line)), 0)
    return (file, first + behind)


def graph_breaks_json(sources: Sources, compiled: CompiledRegions) -> list[dict[str, object]]:
    """`observed.graph_breaks`: the user's lines that a graph ends at."""
    found: dict[tuple[_Place, str], _Break] = {}
    for broken in _kept("graph_break_reasons"):
        stack = list(getattr(broken, "user_stack", None) or ())
        places = [
            _place(sources, getattr(frame, "filename", None), getattr(frame, "lineno", None))
            for frame in stack
        ]
        # Innermost last.
        place = next((place for place in reversed(places) if place is not None), None)
        if place is not None:
            key = (place, _reason(sources, getattr(broken, "reason", "")))
            one = found.setdefault(key, _Break())
            one.count += 1
            one.frames |= compiled.frames_behind(stack)
    return [
        {
            "at": {"file": file, "line": line},
            "count": one.count,
            "reason": reason,
            "frames": sorted(one.frames),
        }
        for ((file, line), reason), one in found.items()
    ][:_MOST_ENTRIES]


class _Break:
    def __init__(self) -> None:
        self.count = 0
        self.frames: set[int] = set()


def _kept(name: str) -> Iterator[Any]:
    """What Dynamo's module of tools keeps under this name, where the program has loaded it."""
    kept = getattr(sys.modules.get("torch._dynamo.utils"), name, None)
    if isinstance(kept, Iterable):
        for item, _ in zip(list(kept), range(_MOST_LOOKED_AT)):
            yield item


def _compilations() -> Iterator[Any]:
    return _kept("_compilation_metrics")


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
    # Before torch 2.7 the reasons are kept by code object alone.
    failures = getattr(sys.modules.get("torch._dynamo.utils"), "guard_failures", None)
    wanted = (metrics.co_filename, metrics.co_firstlineno)
    for code, reasons in list(failures.items()) if isinstance(failures, dict) else ():
        if (getattr(code, "co_filename", 0), getattr(code, "co_firstlineno", 0)) == wanted:
            return reasons[0] if reasons else ""
    return ""


def _reason(sources: Sources, reason: object) -> str:
    """What torch says, without the program's own text, and without paths."""
    lines: list[str] = []
    for line in str(reason).splitlines():
        if line.strip().startswith(_ASIDE):
            break
        if line.strip():
            lines.append(_QUOTED.sub("", line).strip())
    text = without_absolute_paths(" ".join(lines), sources.user_code.root)
    return shorten(text, _LONGEST_REASON)
