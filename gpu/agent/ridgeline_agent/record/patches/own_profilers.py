"""Profilers and tracers of the program itself: `observed.profilers` of the manifest.

Those that are on while iterations are timed were left on. The line that enabled one is known if the
function that enables it can be hooked.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from ...patches.replacements import replace
from ...program.sources import Sources
from ..switched_off import Switch

_MAX_PROFILERS = 16
_PROFILER, _NVTX, _CPROFILE, _MEMORY = (
    "torch.profiler",
    "emit_nvtx",
    "cProfile",
    "record_memory_history",
)
_SETTRACE, _SETPROFILE = "sys.settrace", "sys.setprofile"
# The name of `torch.profiler` with `with_stack=True` in `sys.monitoring`, since Python 3.12.
_TORCH_TOOL = "PyTorch Profiler"

Place = tuple[int, int]


class OwnProfilers:
    """Observes from `install` on, and queries at both ends of the timing."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        # The line that last enabled each.
        self._places: dict[str, Place | None] = {}
        # What was on when the timing began, and still was when it ended.
        self._found: list[str] = []
        self._memory_history = False
        self._before: tuple[Any, Any, Any] = (None, None, None)
        # The `cProfile.Profile` that was last turned on.
        self._cprofile: Any = None
        # From now on, our own profiler starts.
        self._is_over = False
        # Ends the recording if the program has a profiler of its own. None: the program's is ended.
        self.gives_way: Callable[[], None] | None = None
        # Whether our own profiler runs. Set together with `gives_way`.
        self.is_ours_on: Callable[[], bool] = lambda: False

    def install(self) -> None:
        """Call it before any user code runs."""
        self._before = _python_tools()
        profiler: Any = torch.autograd.profiler
        _listen(profiler.profile, "_start_trace", functools.partial(self._on, _PROFILER))
        _listen(profiler.emit_nvtx, "__enter__", functools.partial(self._on, _NVTX))
        memory: Any = getattr(torch.cuda, "memory", None)
        _listen(memory, "_record_memory_history", self._memory_history_changed)
        with contextlib.suppress(ImportError):
            import cProfile

            # Before it starts, or it would record what is done here.
            _listen(cProfile.Profile, "enable", self._enabled, before=True)

    def _on(self, name: str, *args: Any, **kwargs: Any) -> None:
        if self._is_over:
            return
        self._places[name] = self._sources.innermost(sys._getframe(1))

    def _memory_history_changed(self, enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
        self._memory_history = enabled not in (None, False)
        self._on(_MEMORY)

    def _enabled(self, profile: Any, *args: Any, **kwargs: Any) -> None:
        self._cprofile = profile
        self._on(_CPROFILE)

    def timing_begins(self) -> None:
        """Records what is on."""
        self._found = self._on_now()

    def timing_ended(self) -> None:
        """Records what is still on. A profiler with a schedule is only on in a few iterations."""
        on = self._on_now()
        self._found = [name for name in self._found if name in on]

    def switches(self) -> list[Switch]:
        """Returns switches for those that can be turned off, to measure their cost. Call it after
        the timing.
        """
        trace, profile, _ = _python_tools()
        known = {
            # These are off from the profiled iterations on.
            _PROFILER: Switch(_PROFILER, _nothing, None),
            _NVTX: Switch(_NVTX, _nothing, None),
            _SETTRACE: _function_switch(_SETTRACE, sys.settrace, trace),
            _SETPROFILE: _function_switch(_SETPROFILE, sys.setprofile, profile),
        }
        if self._cprofile is not None:
            known[_CPROFILE] = _cprofile_switch(self._cprofile)
        return [known[name] for name in self._found if name in known]

    def _on_now(self) -> list[str]:
        found: list[str] = []
        if torch.autograd._profiler_enabled():
            found.append(_NVTX if _is_nvtx() else _PROFILER)
        if self._memory_history:
            found.append(_MEMORY)
        trace, profile, tool = _python_tools()
        trace_before, profile_before, tool_before = self._before
        if trace is not None and trace is not trace_before:
            found.append(_SETTRACE)
        if profile is not None and profile is not profile_before and not _is_torchs(profile):
            # Before Python 3.12, cProfile is such a function, with the type `cProfile.Profile`.
            is_c = type(profile).__module__ in ("cProfile", "_lsprof")
            found.append(_CPROFILE if is_c else _SETPROFILE)
        if tool is not None and tool not in (tool_before, _TORCH_TOOL):
            found.append(_CPROFILE if tool == "cProfile" else str(tool)[:100])
        return found

    def silence(self) -> None:
        """Stops torch's profilers and keeps them from starting again, because only one can run.

        Call it before ours starts. The program ends with the profiled iterations, except in a
        kernel, where the recording ends instead.
        """
        self._is_over = True
        if self.gives_way is not None:
            self._give_way(self.gives_way)
            return
        if torch.autograd._profiler_enabled():
            torch._C._autograd._disable_profiler()
        profiler: Any = torch.autograd.profiler
        for owner, names in (
            (profiler.emit_nvtx, ("__enter__", "__exit__")),
            (getattr(profiler, "emit_itt", None), ("__enter__", "__exit__")),
            (profiler.profile, ("__enter__", "__exit__")),
            (torch.profiler.profile, ("start", "stop", "step", "_transit_action")),
            (_kineto_profile(), ("start", "stop", "prepare_trace", "start_trace", "stop_trace")),
        ):
            for name in names:
                if owner is not None and hasattr(owner, name):
                    replace(owner, name, _return_self if name == "__enter__" else _nothing)

    def _give_way(self, end: Callable[[], None]) -> None:
        if torch.autograd._profiler_enabled():
            end()
            return

        def started(*_: Any) -> None:
            if self.is_ours_on():
                end()

        for name in ("_prepare_trace", "_start_trace"):
            _listen(torch.autograd.profiler.profile, name, started, before=True)

    def json(self) -> list[dict[str, object]]:
        """Returns `observed.profilers` for the manifest."""
        profilers: list[dict[str, object]] = []
        for name in self._found[:_MAX_PROFILERS]:
            place = self._places.get(name) or self._written(name)
            at = None if place is None else {"file": place[0], "line": place[1]}
            profilers.append({"name": name, "at": at})
        return profilers

    def _written(self, name: str) -> Place | None:
        """Returns the program's line that calls `sys.settrace` or `sys.setprofile`, if there is
        exactly one.

        These are not hooked, because debuggers and the line clock need the originals.
        """
        if name not in (_SETTRACE, _SETPROFILE):
            return None
        call = re.compile(rb"^[^#]*\b" + name.partition(".")[2].encode() + rb"\s*\(")
        places = [
            (file, number)
            for file in range(len(self._sources.paths()))
            for number, line in enumerate((self._sources.text(file) or b"").splitlines(), 1)
            if call.search(line)
        ]
        return places[0] if len(places) == 1 else None


def _listen(owner: Any, name: str, callback: Callable[..., None], before: bool = False) -> None:
    """Reports each call of a function or method: after it has returned, or `before` it is made."""
    original = getattr(owner, name, None)
    if original is None:
        return

    def report(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            callback(*args, **kwargs)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if before:
            report(args, kwargs)
            return original(*args, **kwargs)
        result = original(*args, **kwargs)
        report(args, kwargs)
        return result

    replace(owner, name, hooked)


def _function_switch(name: str, install: Callable[[Any], None], function: Any) -> Switch:
    return Switch(name, functools.partial(install, None), functools.partial(install, function))


def _cprofile_switch(profile: Any) -> Switch:
    def enable() -> None:
        # Since Python 3.12 it raises if it is already on.
        with contextlib.suppress(ValueError):
            profile.enable()

    return Switch(_CPROFILE, profile.disable, enable)


def _python_tools() -> tuple[Any, Any, Any]:
    """Returns this thread's trace and profile functions, and the profiler in `sys.monitoring`."""
    monitoring: Any = getattr(sys, "monitoring", None)
    tool = None if monitoring is None else monitoring.get_tool(monitoring.PROFILER_ID)
    return sys.gettrace(), sys.getprofile(), tool


def _is_torchs(profile: object) -> bool:
    """Whether this is the Python tracer of `torch.profiler` (`with_stack=True`). It belongs to that
    profiler, is not a function, and cannot be restored.
    """
    return type(profile).__name__ == "TraceContext"


def _is_nvtx() -> bool:
    kind = getattr(torch._C._autograd, "_profiler_type", None)
    return kind is not None and "NVTX" in str(kind())


def _kineto_profile() -> Any:
    return getattr(torch.profiler, "_KinetoProfile", None)


def _return_self(self: Any) -> Any:
    return self


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None
