"""Module instances: where each was constructed, what it is called, who owns which parameter."""

from __future__ import annotations

import gc
import inspect
import math
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from ..patches.module_construction import ConstructionStacks
from .sources import Sources

# torch.compile wraps a module in another one under this name. It is no part of the user's model.
_COMPILED = "_orig_mod"


def _wrapped(module: nn.Module) -> nn.Module | None:
    """The module that torch.compile wrapped in this one."""
    # Not by `get`, which the modules of a scripted module do not have.
    return module._modules[_COMPILED] if _COMPILED in module._modules else None  # noqa: SIM401


class ModuleTable:
    """The modules of a recording by index, parents before children."""

    def __init__(self, definitions: ConstructionStacks) -> None:
        self._definitions = definitions
        self.modules: list[nn.Module] = []
        self._names: list[str] = []
        self._parents: list[int | None] = []
        self._index: dict[int, int] = {}
        self._called: set[int] = set()
        # Kept alive, so that an identity in the index is never used twice.
        self._wrappers: list[nn.Module] = []

    def build(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Takes in every module that is alive and belongs to a model.

        That is each tree of modules that holds a parameter, whether or not it will be called.
        """
        alive = self._definitions.alive()
        children = {id(child) for module in alive for child in module._modules.values()}
        graphs: list[nn.Module] = []
        for module in alive:
            if id(module) in children or next(module.parameters(), None) is None:
                continue
            if isinstance(module, fx.GraphModule):
                graphs.append(module)
            else:
                self._add(module, "", None)
        owned = {id(parameter) for _, _, parameter in self.parameters()}
        for graph in graphs:
            # One that shares its parameters is what torch.compile made of another model.
            if any(id(parameter) not in owned for parameter in graph.parameters()):
                self._add(graph, "", None)
        owned = {id(parameter) for _, _, parameter in self.parameters()}
        missing = any(
            id(parameter) not in owned
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
        if missing:
            # A model that was there before the hooks were: one that an import had made.
            self._add_unknown()

    def _add_unknown(self) -> None:
        found = [item for item in gc.get_objects() if issubclass(type(item), nn.Module)]
        children = {id(child) for module in found for child in module._modules.values()}
        for module in found:
            if id(module) not in children and next(module.parameters(), None) is not None:
                self._add(module, "", None)

    def index_of(self, module: nn.Module) -> int | None:
        """The index of a module, None where it has none."""
        return self._index.get(id(module))

    def index_of_called(self, module: nn.Module) -> int | None:
        """The index of a module that is being called, which may be new.

        None for the graphs that torch.compile calls in place of the user's modules.
        """
        index = self._index.get(id(module))
        if index is None and not isinstance(module, fx.GraphModule):
            index = self._add(module, "", None)
        if index is not None:
            self._called.add(index)
        return index

    def _add(self, module: nn.Module, name: str, parent: int | None) -> int:
        """Adds a tree of modules. One that stands in several places is named after the first."""
        root = module
        stack: list[tuple[nn.Module, str, int | None]] = [(module, name, parent)]
        while stack:
            module, name, parent = stack.pop()
            inner = _wrapped(module)
            if inner is not None:
                # The wrapper and what it wraps are one module to the user.
                self._wrappers.append(module)
                if id(inner) not in self._index:
                    self._index[id(inner)] = self._add(inner, name, parent)
                self._index[id(module)] = self._index[id(inner)]
                continue
            if id(module) in self._index:
                continue
            index = len(self.modules)
            self._index[id(module)] = index
            self.modules.append(module)
            self._names.append(name)
            self._parents.append(parent)
            for child_name, child in reversed(list(module._modules.items())):
                if child is not None and id(child) not in self._index:
                    stack.append((child, child_name, index))
        return self._index[id(root)]

    def parameters(self) -> Iterator[tuple[int, str, nn.Parameter]]:
        """`(module, name, parameter)`, each parameter once, under its first owner."""
        seen = set()
        for index, module in enumerate(self.modules):
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield index, name, parameter

    def buffers(self) -> Iterator[tuple[int, str, torch.Tensor]]:
        """`(module, name, buffer)`, each buffer once, under its first owner."""
        seen = set()
        for index, module in enumerate(self.modules):
            for name, buffer in module._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield index, name, buffer

    def json(
        self,
        sources: Sources,
        optimizers: list[torch.optim.Optimizer],
        frame: types.FrameType | None,
    ) -> list[dict[str, object]]:
        """`modules` of the manifest. `frame` is where variables that hold models are looked for."""
        paths = self._paths(optimizers, frame)
        parameters: dict[int, list[dict[str, object]]] = {}
        for index, name, parameter in self.parameters():
            elements, size = _size(parameter)
            parameters.setdefault(index, []).append(
                {"name": name, "elements": elements, "bytes": size}
            )
        buffers: dict[int, int] = {}
        for index, _, buffer in self.buffers():
            buffers[index] = buffers.get(index, 0) + _size(buffer)[1]
        return [
            {
                "path": paths[index],
                "type": type(module).__name__,
                "parent": self._parents[index],
                "definition": self._definition(index, sources),
                "parameters": parameters.get(index, []),
                "buffer_bytes": buffers.get(index, 0),
            }
            for index, module in enumerate(self.modules)
        ]

    def _definition(self, index: int, sources: Sources) -> list[list[int]]:
        """`[file, line]` innermost first: the module's own, or else that of what holds it."""
        at: int | None = index
        while at is not None:
            stack = self._definitions.of(self.modules[at])
            lines = []
            for code, line in stack:
                if sources.code(code) is not None:
                    file = sources.file(code.co_filename)
                    if file is not None:
                        lines.append([file, line])
            if lines:
                return lines
            at = self._parents[at]
        return []

    def _used_roots(self, optimizers: list[torch.optim.Optimizer]) -> set[int]:
        """Roots that took part: some of their modules ran, or an optimizer has their parameters.

        Others are left over, as the layer that `nn.TransformerEncoder` was given to copy.
        """
        owners = {id(parameter): index for index, _, parameter in self.parameters()}
        used = set(self._called)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                used.update(owners[id(p)] for p in group["params"] if id(p) in owners)
        return {self._root(index) for index in used}

    def _root(self, index: int) -> int:
        parent = self._parents[index]
        while parent is not None:
            index, parent = parent, self._parents[parent]
        return index

    def _has_parameters(self, index: int) -> bool:
        return next(self.modules[index].parameters(), None) is not None

    def _paths(
        self, optimizers: list[torch.optim.Optimizer], frame: types.FrameType | None
    ) -> list[str]:
        roots = [index for index, parent in enumerate(self._parents) if parent is None]
        models = [index for index in self._used_roots(optimizers) if self._has_parameters(index)]
        variables = variables_holding({id(self.modules[i]) for i in roots}, frame)
        names: dict[int, str] = {}
        for index in roots:
            # A model that stands alone needs no name before its children's.
            if models == [index]:
                names[index] = ""
                continue
            module = self.modules[index]
            name = wanted = variables.get(id(module), type(module).__name__)
            number = 2
            while name in names.values():
                name, number = f"{wanted}_{number}", number + 1
            names[index] = name
        paths: list[str] = []
        for index, (name, parent) in enumerate(zip(self._names, self._parents)):
            above = names[index] if parent is None else paths[parent]
            paths.append(above if parent is None else f"{above}.{name}" if above else name)
        return paths


def optimizers_json(
    optimizers: list[torch.optim.Optimizer], table: ModuleTable
) -> list[dict[str, object]]:
    """`optimizers` of the manifest."""
    owners = {id(parameter): index for index, _, parameter in table.parameters()}
    described = []
    for optimizer in optimizers:
        elements: dict[int, int] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                owner = owners.get(id(parameter))
                if owner is not None:
                    elements[owner] = elements.get(owner, 0) + _size(parameter)[0]
        options = optimizer.param_groups[0] if optimizer.param_groups else {}
        described.append(
            {
                "type": _algorithm(type(optimizer)),
                # None stands for torch's own choice, which is foreach on a GPU alone.
                "foreach": options.get("foreach"),
                "fused": options.get("fused"),
                "options": _plain_options(options),
                "modules": [[module, count] for module, count in elements.items()],
            }
        )
    return described


def _algorithm(kind: Any) -> str:
    """The optimizer of torch's whose step a class runs; else the class's own name."""
    step = inspect.unwrap(kind.step)
    for base in kind.__mro__:
        # torch and the agent wrap the steps of classes, a subclass's too.
        of_torch = base.__module__.startswith("torch.optim.")
        if of_torch and inspect.unwrap(base.step) is step:
            return str(base.__name__)
    # One of the program's that has the name of one of torch's is another.
    is_taken = hasattr(torch.optim, kind.__name__)
    return f"{kind.__module__}.{kind.__name__}" if is_taken else str(kind.__name__)


def _plain_options(options: dict[str, Any]) -> dict[str, object]:
    """Settings that are flags and numbers, or pairs of them; others are the program's objects."""
    plain: dict[str, object] = {}
    for name, value in options.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        kinds = (bool, int, float)
        is_plain = len(parts) <= 4 and all(
            type(part) in kinds and math.isfinite(part) for part in parts
        )
        if isinstance(name, str) and name not in ("params", "foreach", "fused") and is_plain:
            plain[name] = list(value) if isinstance(value, (tuple, list)) else value
    return plain


def _size(tensor: torch.Tensor) -> tuple[int, int]:
    """Elements and bytes; a lazy module's parameter has none until its first call."""
    try:
        return tensor.numel(), tensor.numel() * tensor.element_size()
    except (RuntimeError, ValueError):
        return 0, 0


def variables_holding(wanted: set[int], frame: types.FrameType | None) -> dict[int, str]:
    """Names of variables that hold the objects, by identity.

    Looks through the frames outwards: local names, then attributes of `self`, then global names.
    A wrapper that torch.compile made counts as what it wraps.
    """
    found: dict[int, str] = {}

    def look(names: dict[str, Any]) -> None:
        for name, value in list(names.items()):
            if issubclass(type(value), nn.Module):
                value = _wrapped(value) or value
            if id(value) in wanted and not name.startswith("__") and name != "self":
                found.setdefault(id(value), name)

    while frame is not None:
        names = dict(frame.f_locals)
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("torch.", "ridgeline_agent.")):
            look(names)
            holder = names.get("self")
            if holder is not None and hasattr(holder, "__dict__"):
                look(vars(holder))
                if issubclass(type(holder), nn.Module):
                    look(dict(holder._modules))
            look(frame.f_globals)
        frame = frame.f_back
    return found
