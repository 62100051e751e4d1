"""Notes the user's call stack where each module is constructed or copied.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

# The longest constructor stack that is kept.
_DEEPEST_STACK = 200

RawStack = tuple[tuple[types.CodeType, int], ...]


class ConstructionStacks:
    """The user's call stack at the construction of every module, from `install` on."""

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._stacks: dict[int, tuple[weakref.ref[nn.Module], RawStack]] = {}

    def install(self) -> None:
        """Patches `nn.Module.__init__` and `__setstate__`; the second is how copies come to be."""
        original_init: Any = nn.Module.__init__
        original_setstate: Any = nn.Module.__setstate__
        definitions = self

        def __init__(self: nn.Module, *args: Any, **kwargs: Any) -> None:
            original_init(self, *args, **kwargs)
            definitions._constructed(self)

        def __setstate__(self: nn.Module, state: Any) -> None:
            original_setstate(self, state)
            definitions._copied(self)

        for wrapper, original in ((__init__, original_init), (__setstate__, original_setstate)):
            wrapper.__qualname__ = original.__qualname__
            wrapper.__module__ = original.__module__
            wrapper.__doc__ = original.__doc__
            wrapper.__wrapped__ = original  # type: ignore[attr-defined]
        nn.Module.__init__ = __init__  # type: ignore[method-assign,assignment]
        nn.Module.__setstate__ = __setstate__  # type: ignore[method-assign,assignment]

    def alive(self) -> list[nn.Module]:
        """Every module that was constructed or copied and is still there, in that order."""
        modules = []
        # A copy: other threads may construct modules meanwhile.
        for reference, _ in list(self._stacks.values()):
            module = reference()
            if module is not None:
                modules.append(module)
        return modules

    def of(self, module: nn.Module) -> RawStack:
        """The stack at the module's construction, innermost first; empty where it is unknown."""
        entry = self._stacks.get(id(module))
        # An identity may have belonged to a module that is gone.
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
            # `copy._reconstruct` holds the original as `x`. Its subclass's own `__setstate__` may
            # stand between.
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
        # Out and in again, so that a reused identity stands where the new module belongs.
        self._stacks.pop(id(module), None)
        self._stacks[id(module)] = (weakref.ref(module), stack)


def is_own_init(frame: types.FrameType, made: object) -> bool:
    """Whether the frame is a constructor of `made` itself: a subclass's `__init__`."""
    code = frame.f_code
    if code.co_name != "__init__" or code.co_argcount == 0:
        return False
    own: bool = frame.f_locals.get(code.co_varnames[0]) is made
    return own


def _stack(frame: types.FrameType | None) -> RawStack:
    stack: list[tuple[types.CodeType, int]] = []
    while frame is not None and len(stack) < _DEEPEST_STACK:
        stack.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(stack)
