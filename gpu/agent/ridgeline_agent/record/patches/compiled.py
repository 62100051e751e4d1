"""The user's functions that torch.compile compiled.

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
from ...patches.replacements import on_restore, replace
from ...program.sources import Sources

_MAX_REQUESTS = 1000


class CompiledRegions:
    """Observes Dynamo: every frame that it compiles, and the number of compilations."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._module_call: Callable[[], Any] = lambda: None
        self._is_listening = False
        self._codes: dict[int, types.CodeType] = {}
        # By object ID of the code: Dynamo's number for it.
        self._frames: dict[int, int] = {}
        # Cache of `frames_after`, by file, function, line, and whether another function calls it.
        self._frames_after: dict[tuple[str, str, int | None, bool], set[int]] = {}
        # The number of compilations. An iteration with a compilation is not measured.
        self.compilations = 0
        # The user's lines that call `torch.compile`, with the compiled code.
        self.requested_at: list[tuple[types.CodeType | None, tuple[int, int]]] = []

    def install(self, eager: bool, module_call: Callable[[], Any]) -> None:
        """Observes Dynamo from the first `torch.compile` on, or with `eager`, disables it.

        `module_call` returns the agent's replacement of `nn.Module.__call__`.
        """
        self._module_call = module_call
        if eager:
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
            dynamo: Any = sys.modules.get("torch._dynamo")
            if dynamo is not None:
                # Dynamo read the environment when it was imported, which may have been before this
                # run.
                dynamo.config.disable = True
            return
        original: Any = torch.compile

        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                self._listen()
                self._compile_requested(model)
            return original(model, *args, **kwargs)

        replace(torch, "compile", compile)

    @property
    def is_used(self) -> bool:
        """Whether the program has called `torch.compile`."""
        return self._is_listening

    def listen_if_used(self) -> None:
        """Observes Dynamo from now on, if it has compiled something before."""
        frames = getattr(sys.modules.get("torch._dynamo.convert_frame"), "FRAME_COUNTER", 0)
        if frames > 0:
            with contextlib.suppress(Exception):
                self._listen()

    def _compile_requested(self, model: Any) -> None:
        """Stores the compiled function; for a module, its `forward`."""
        # `Module.compile()` compiles a bound method of the module.
        module = getattr(model, "__self__", model)
        function = module.forward if isinstance(module, torch.nn.Module) else model
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        code = code if isinstance(code, types.CodeType) else None
        if code is not None:
            self._codes[id(code)] = code
        place = self._sources.innermost(sys._getframe(1))
        if place is not None and len(self.requested_at) < _MAX_REQUESTS:
            self.requested_at.append((code, place))

    def _listen(self) -> None:
        if self._is_listening:
            return
        self._is_listening = True
        # Not imported before the user compiles, because that takes a second.
        from torch._dynamo.convert_frame import register_bytecode_hook

        on_restore(register_bytecode_hook(self._compiled).remove)
        with contextlib.suppress(Exception):
            self._exclude_agent()

    def _exclude_agent(self) -> None:
        """Makes Dynamo compile what it would without the agent, from the user's first function on.

        Otherwise the agent's function would be a separate graph, which is left at every graph
        break, and each cache lookup would check all guards on the way through it.
        """
        from torch._dynamo.eval_frame import skip_code
        from torch._dynamo.variables import nn_module

        function = self._module_call()
        # Without it, the functions that the agent's function calls would be compiled too.
        if function is None or compiles_with is None:
            return
        skip_code(function.__code__)
        # Dynamo goes directly from a call to `forward` if it finds this function.
        if hasattr(nn_module, "unpatched_nn_module_call"):
            replace(nn_module, "unpatched_nn_module_call", function)

    def _compiled(self, code: types.CodeType, new_code: types.CodeType) -> None:
        self.compilations += 1
        self._codes[id(code)] = code
        # The compiled code has one line, that of the `def`; its cost belongs to the line that calls
        # it.
        self._sources.leave_out(new_code)
        with contextlib.suppress(Exception):
            self._frames[id(code)] = int(_compile_id().frame_id)

    def frames_after(self, stack: Sequence[traceback.FrameSummary]) -> set[int]:
        """Returns Dynamo's numbers of the frames that are entered because a graph ends within these
        calls, outermost first: the rest of each function, and each function except the first, which
        the graph would otherwise have inlined.
        """
        found: set[int] = set()
        for depth, frame in enumerate(stack):
            key = (frame.filename, frame.name, frame.lineno, depth > 0)
            if key not in self._frames_after:
                self._frames_after[key] = self._frames_of(*key)
            found |= self._frames_after[key]
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
        """Returns `compiled` for the manifest."""
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
    """Returns the ID of the current compilation."""
    from torch._guards import CompileContext

    return CompileContext.current_compile_id()
