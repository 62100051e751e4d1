"""What torch.compile compiled again, and where it gave up a graph: `observed.recompilations` and
`observed.graph_breaks` of the manifest.

Dynamo keeps both for itself, and differently in each version. What is not where it is looked for is
not told.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from .failure import shorten, without_absolute_paths
from .sources import Sources

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

# Where, and why.
_Entry = tuple[tuple[int, int], str]


def recompilations_json(sources: Sources) -> list[dict[str, object]]:
    """`observed.recompilations`: each function that was compiled more than once."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    counted: set[str] = set()
    for metrics in _compilations():
        identity = str(getattr(metrics, "compile_id", None) or "")
        matched = _IDENTITY.search(identity)
        place = _place(
            sources,
            getattr(metrics, "co_filename", None),
            getattr(metrics, "co_firstlineno", None),
        )
        if matched is None or int(matched[2]) == 0 or place is None or identity in counted:
            continue
        if getattr(metrics, "fail_type", None):
            continue
        counted.add(identity)
        entry = found.setdefault(place, {"count": 0, "time_ns": 0, "reason": ""})
        entry["count"] += 1
        entry["time_ns"] += _compile_ns(metrics)
        entry["reason"] = entry["reason"] or _reason(sources, _why(metrics))
    return [{"at": {"file": file, "line": line}, **entry} for (file, line), entry in found.items()][
        :_MOST_ENTRIES
    ]


def graph_breaks_json(sources: Sources) -> list[dict[str, object]]:
    """`observed.graph_breaks`: the user's lines that a graph ends at."""
    found: dict[_Entry, int] = {}
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
            found[key] = found.get(key, 0) + 1
    return [
        {"at": {"file": file, "line": line}, "count": count, "reason": reason}
        for ((file, line), reason), count in found.items()
    ][:_MOST_ENTRIES]


def _kept(name: str) -> Iterator[Any]:
    """What Dynamo's module of tools keeps under this name, where the program has loaded it."""
    kept = getattr(sys.modules.get("torch._dynamo.utils"), name, None)
    if isinstance(kept, Iterable):
        for item, _ in zip(list(kept), range(_MOST_LOOKED_AT)):
            yield item


def _compilations() -> Iterator[Any]:
    return _kept("_compilation_metrics")


def _place(sources: Sources, filename: Any, line: Any) -> tuple[int, int] | None:
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
