"""Which of the user's functions torch.compile made into regions.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import os
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...patches.hooks import compiles_with
from ...program.sources import Sources

_MOST_ASKED = 1000


class CompiledRegions:
    """Listens to Dynamo: every frame that it compiles, and how often it has."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._module_call: Callable[[], Any] = lambda: None
        self._listening = False
        self._codes: dict[int, types.CodeType] = {}
        # By the identity of the code: the number that Dynamo gave it.
        self._frames: dict[int, int] = {}
        # Of calls that were asked about: file, function, line, and whether another one calls it.
        self._behind: dict[tuple[str, str, int | None, bool], set[int]] = {}
        # Counts compilations, so that an iteration in which one happened is known to be no measure.
        self.compilations = 0
        # The user's lines that call `torch.compile`, with what is compiled there.
        self.asked_at: list[tuple[types.CodeType | None, tuple[int, int]]] = []

    def install(self, eager: bool, module_call: Callable[[], Any]) -> None:
        """Listens from the first `torch.compile` on; with `eager`, switches Dynamo off instead.

        `module_call` gives the agent's function in the place of `nn.Module.__call__`.
        """
        self._module_call = module_call
        if eager:
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
            dynamo: Any = sys.modules.get("torch._dynamo")
            if dynamo is not None:
                # It read the environment when it was imported, which may be before this run.
                dynamo.config.disable = True
            return
        original: Any = torch.compile

        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                self._listen()
                self._asked_for(model)
            return original(model, *args, **kwargs)

        torch.compile = compile  # type: ignore[assignment]

    @property
    def is_used(self) -> bool:
        """Whether the program has asked for something to be compiled."""
        return self._listening

    def _asked_for(self, model: Any) -> None:
        """Takes the function that the user compiles: a module's is its `forward`."""
        # `Module.compile()` compiles a bound method of the module.
        module = getattr(model, "__self__", model)
        function = module.forward if isinstance(module, torch.nn.Module) else model
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        code = code if isinstance(code, types.CodeType) else None
        if code is not None:
            self._codes[id(code)] = code
        place = self._sources.innermost(sys._getframe(1))
        if place is not None and len(self.asked_at) < _MOST_ASKED:
            self.asked_at.append((code, place))

    def _listen(self) -> None:
        if self._listening:
            return
        self._listening = True
        # Not imported before the user compiles, because that takes a second.
        from torch._dynamo.convert_frame import register_bytecode_hook

        register_bytecode_hook(self._compiled)
        with contextlib.suppress(Exception):
            self._leave_out_agent()

    def _leave_out_agent(self) -> None:
        """Has Dynamo compile what it would without the agent, from the user's first function on.

        The agent's function would be a graph of its own otherwise, which is left at every break,
        and each lookup would compare all that is on the way through it.
        """
        from torch._dynamo.eval_frame import skip_code
        from torch._dynamo.variables import nn_module

        function = self._module_call()
        # Without it, what the agent's function calls would be compiled, too.
        if function is None or compiles_with is None:
            return
        skip_code(function.__code__)
        # Dynamo goes from a call to `forward` where it finds this one.
        if hasattr(nn_module, "unpatched_nn_module_call"):
            nn_module.unpatched_nn_module_call = function

    def _compiled(self, code: types.CodeType, new_code: types.CodeType) -> None:
        self.compilations += 1
        self._codes[id(code)] = code
        # It has one line, that of the `def`; what it costs belongs to the line that calls it.
        self._sources.leave_out(new_code)
        with contextlib.suppress(Exception):
            self._frames[id(code)] = int(_compile_id().frame_id)

    def frames_behind(self, stack: Sequence[traceback.FrameSummary]) -> set[int]:
        """Dynamo's numbers of what is entered because a graph ends within these calls, outermost
        first: the rest of each function, and each function but the first, which the graph would
        have had within it.
        """
        found: set[int] = set()
        for depth, frame in enumerate(stack):
            key = (frame.filename, frame.name, frame.lineno, depth > 0)
            if key not in self._behind:
                self._behind[key] = self._frames_of(*key)
            found |= self._behind[key]
        return found

    def _frames_of(self, file: str, name: str, line: int | None, is_called: bool) -> set[int]:
        rest = f"torch_dynamo_resume_in_{name}_at_{line}"
        return {
            number
            for identity, number in self._frames.items()
            if (code := self._codes[identity]).co_filename == file
            and (
                code.co_name == rest
                or (is_called and code.co_name == name and line in _lines(code))
            )
        }

    def json(self) -> list[dict[str, object]]:
        """`compiled` of the manifest."""
        regions: list[dict[str, object]] = []
        if self.compilations == 0:
            return regions
        for code in self._codes.values():
            if self._sources.code(code) is not None:
                regions.append(
                    {
                        "file": self._sources.file(code.co_filename),
                        "line": code.co_firstlineno,
                        "name": getattr(code, "co_qualname", code.co_name),
                    }
                )
        return regions


def _lines(code: types.CodeType) -> set[int | None]:
    return {line for _, line in dis.findlinestarts(code)}


def _compile_id() -> Any:
    """What Dynamo compiles at this moment."""
    from torch._guards import CompileContext

    return CompileContext.current_compile_id()
