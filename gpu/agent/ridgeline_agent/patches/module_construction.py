"""Records the user's call stack where each module is constructed or copied.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from .replacements import replace

_MAX_STACK_DEPTH = 200

RawStack = tuple[tuple[types.CodeType, int], ...]


class ConstructionStacks:
    """The user's call stacks of module constructions since `install`."""

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._stacks: dict[int, tuple[weakref.ref[nn.Module], RawStack]] = {}

    def install(self) -> None:
        """Patches `nn.Module.__init__`, and `__setstate__`, through which copies are created."""
        original_init: Any = nn.Module.__init__
        original_setstate: Any = nn.Module.__setstate__
        stacks = self

        def __init__(self: nn.Module, *args: Any, **kwargs: Any) -> None:
            original_init(self, *args, **kwargs)
            stacks._constructed(self)

        def __setstate__(self: nn.Module, state: Any) -> None:
            original_setstate(self, state)
            stacks._copied(self)

        for wrapper, original in ((__init__, original_init), (__setstate__, original_setstate)):
            wrapper.__qualname__ = original.__qualname__
            wrapper.__module__ = original.__module__
            wrapper.__doc__ = original.__doc__
            wrapper.__wrapped__ = original  # type: ignore[attr-defined]
        replace(nn.Module, "__init__", __init__)
        replace(nn.Module, "__setstate__", __setstate__)

    def alive(self) -> list[nn.Module]:
        """Returns the live modules, in the order of their construction or copying."""
        modules = []
        # A copy of the list, because other threads may construct modules meanwhile.
        for reference, _ in list(self._stacks.values()):
            module = reference()
            if module is not None:
                modules.append(module)
        return modules

    def of(self, module: nn.Module) -> RawStack:
        """Returns the call stack of the module's construction, innermost frame first. Empty if
        unknown.
        """
        entry = self._stacks.get(id(module))
        # An object ID may have belonged to a module that is gone.
        return entry[1] if entry is not None and entry[0]() is module else ()

    def _constructed(self, module: nn.Module) -> None:
        try:
            frame: types.FrameType | None = sys._getframe(2)
            while frame is not None and is_own_init(frame, module):
                frame = frame.f_back
            self._keep(module, _stack(frame))
        except Exception as error:
            self._report("a module's construction", error)

    def _copied(self, module: nn.Module) -> None:
        try:
            frame: types.FrameType | None = sys._getframe(2)
            stack = _stack(frame)
            # `copy._reconstruct` has the original as `x`. A subclass's `__setstate__` may be in
            # between.
            for _ in range(4):
                if frame is None:
                    break
                if frame.f_code.co_name == "_reconstruct":
                    original = frame.f_locals.get("x")
                    if type(original) is type(module):
                        stack = self.of(original) or stack
                    break
                frame = frame.f_back
            self._keep(module, stack)
        except Exception as error:
            self._report("a module's copy", error)

    def _keep(self, module: nn.Module, stack: RawStack) -> None:
        # Remove and add, so that a reused ID gets the position of the new module.
        self._stacks.pop(id(module), None)
        self._stacks[id(module)] = (weakref.ref(module), stack)


def is_own_init(frame: types.FrameType, made: object) -> bool:
    """Whether the frame is a constructor of `made`, such as a subclass's `__init__`."""
    code = frame.f_code
    if code.co_name != "__init__" or code.co_argcount == 0:
        return False
    own: bool = frame.f_locals.get(code.co_varnames[0]) is made
    return own


def _stack(frame: types.FrameType | None) -> RawStack:
    stack: list[tuple[types.CodeType, int]] = []
    while frame is not None and len(stack) < _MAX_STACK_DEPTH:
        stack.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(stack)
