"""Module instances: their constructors' lines, their names, and the owners of parameters."""

from __future__ import annotations

import gc
import inspect
import math
import types
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import fx, nn

from ..patches.module_construction import ConstructionStacks
from .sources import Sources

# torch.compile wraps a module in another one under this name, which is not part of the user's
# model.
_COMPILED = "_orig_mod"


def _wrapped(module: nn.Module) -> nn.Module | None:
    """Returns the module that torch.compile wrapped in this one."""
    # Not with `get`, which the modules of a scripted module do not have.
    return module._modules[_COMPILED] if _COMPILED in module._modules else None  # noqa: SIM401


def tree_of(module: nn.Module) -> Iterator[nn.Module]:
    """Yields a module and the modules in it, each once.

    Not with the methods `modules` and `parameters`, which programs override, for example to return
    a list.
    """
    seen = {id(module)}
    stack = [module]
    while stack:
        module = stack.pop()
        yield module
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                stack.append(child)


def parameters_of(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yields the parameters of a tree of modules."""
    for part in tree_of(module):
        yield from (one for one in part._parameters.values() if one is not None)


def has_parameters(module: nn.Module) -> bool:
    """Whether there is a parameter in a tree of modules."""
    return next(parameters_of(module), None) is not None


class ModuleTable:
    """The modules of a recording by index, parents before children."""

    def __init__(self, constructions: ConstructionStacks) -> None:
        self._constructions = constructions
        self.modules: list[nn.Module] = []
        self._names: list[str] = []
        self._parents: list[int | None] = []
        self._index: dict[int, int] = {}
        self._called: set[int] = set()
        # Kept alive, so that an object ID in the index is never reused.
        self._wrappers: list[nn.Module] = []
        # Modules that were alive when the table was built, by object ID.
        self._built: set[int] = set()
        # By class and place of construction: the first of the modules created there since then.
        self._repeated: dict[Hashable, int] = {}

    def build(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Adds all live modules that belong to a model.

        Those are the module trees that contain a parameter, whether or not they will be called.
        """
        alive = self._constructions.alive()
        self._built = {id(module) for module in alive}
        children = {id(child) for module in alive for child in module._modules.values()}
        graphs: list[nn.Module] = []
        for module in alive:
            if id(module) in children or not has_parameters(module):
                continue
            if isinstance(module, fx.GraphModule):
                graphs.append(module)
            else:
                self._add(module, "", None)
        owned = {id(parameter) for _, _, parameter in self.parameters()}
        for graph in graphs:
            # A graph that shares all its parameters was created by torch.compile from another
            # model.
            if any(id(parameter) not in owned for parameter in parameters_of(graph)):
                self._add(graph, "", None)
        owned = {id(parameter) for _, _, parameter in self.parameters()}
        missing = any(
            id(parameter) not in owned
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
        if missing:
            # A model from before the hooks were installed, created by an import.
            self._add_unknown()

    def _add_unknown(self) -> None:
        found = [item for item in gc.get_objects() if issubclass(type(item), nn.Module)]
        children = {id(child) for module in found for child in module._modules.values()}
        for module in found:
            if id(module) not in children and has_parameters(module):
                self._add(module, "", None)

    def index_of(self, module: nn.Module) -> int | None:
        """Returns the index of a module, or None."""
        return self._index.get(id(module))

    def index_of_called(self, module: nn.Module) -> int | None:
        """Returns the index of a module that is being called, which may be new.

        Returns None for the graphs that torch.compile calls instead of the user's modules.
        """
        index = self._index.get(id(module))
        if index is None and not isinstance(module, fx.GraphModule):
            index = self._add_called(module)
        if index is not None:
            self._called.add(index)
        return index

    def _add_called(self, module: nn.Module) -> int:
        """Adds a module that the table did not have when it was built.

        A forward pass may create modules: `nn.Softmax(dim=-1)(scores)`. All that one line creates
        are one module of the table.
        """
        if id(module) in self._built:
            return self._add(module, "", None)
        stack = self._constructions.of(module)
        place: Hashable = (type(module), tuple((id(code), line) for code, line in stack))
        first = self._repeated.get(place)
        if first is not None and self._equate(module, first):
            return first
        index = self._add(module, "", None)
        self._repeated[place] = index
        return index

    def _equate(self, module: nn.Module, first: int) -> bool:
        """Gives a tree of modules the indices of an equal one. Returns whether they are equal."""
        indices: dict[int, int] = {}
        parts = []
        stack = [(module, first)]
        while stack:
            module, index = stack.pop()
            like = self.modules[index]
            if type(module) is not type(like) or list(module._modules) != list(like._modules):
                return False
            indices[id(module)] = index
            parts.append(module)
            for name, child in module._modules.items():
                known = self._index.get(id(like._modules[name]))
                if child is None or id(child) in self._index or id(child) in indices:
                    continue
                if known is None:
                    return False
                stack.append((child, known))
        self._index.update(indices)
        self._wrappers.extend(parts)
        return True

    def _add(self, module: nn.Module, name: str, parent: int | None) -> int:
        """Adds a tree of modules. A module in several places is named after the first."""
        root = module
        stack: list[tuple[nn.Module, str, int | None]] = [(module, name, parent)]
        while stack:
            module, name, parent = stack.pop()
            inner = _wrapped(module)
            if inner is not None:
                # To the user, the wrapper and its inner module are one module.
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
        """Yields `(module, name, parameter)`, each parameter once, with its first owner."""
        seen = set()
        for index, module in enumerate(self.modules):
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield index, name, parameter

    def buffers(self) -> Iterator[tuple[int, str, torch.Tensor]]:
        """Yields `(module, name, buffer)`, each buffer once, with its first owner."""
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
        """Returns `modules` for the manifest. Variables with models are searched from `frame`
        outwards.
        """
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
        """Returns `[file, line]` of the module's (or its parent's) constructor, innermost first."""
        at: int | None = index
        while at is not None:
            stack = self._constructions.of(self.modules[at])
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
        """Returns the roots in use: some of their modules ran, or an optimizer has their
        parameters.

        Others are leftovers, such as the layer that `nn.TransformerEncoder` copies.
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

    def _paths(
        self, optimizers: list[torch.optim.Optimizer], frame: types.FrameType | None
    ) -> list[str]:
        roots = [index for index, parent in enumerate(self._parents) if parent is None]
        # A wrapper that the forward pass creates around a model owns no parameter.
        owners = {self._root(index) for index, _, _ in self.parameters()}
        models = [index for index in self._used_roots(optimizers) if index in owners]
        variables = variables_holding({id(self.modules[i]) for i in roots}, frame)
        names: dict[int, str] = {}
        for index in roots:
            # A single model needs no prefix for its children's names.
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
    """Returns `optimizers` for the manifest."""
    owners = {id(parameter): index for index, _, parameter in table.parameters()}
    described = []
    for optimizer in optimizers:
        elements: dict[int, int] = {}
        with_state = _with_state(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                owner = owners.get(id(parameter))
                if owner is not None and (not with_state or id(parameter) in with_state):
                    elements[owner] = elements.get(owner, 0) + _size(parameter)[0]
        options = optimizer.param_groups[0] if optimizer.param_groups else {}
        described.append(
            {
                "type": _algorithm(type(optimizer)),
                # None means torch's default, which is foreach only on a GPU.
                "foreach": options.get("foreach"),
                "fused": options.get("fused"),
                "options": _plain_options(options),
                "modules": [[module, count] for module, count in elements.items()],
            }
        )
    return described


def _with_state(optimizer: torch.optim.Optimizer) -> set[int]:
    """Returns the object IDs of the parameters that the optimizer has a state for. A parameter
    without a gradient gets none, such as those of a layer that `nn.TransformerEncoder` copies.
    """
    state = getattr(optimizer, "state", None)
    # A class of the program may have anything as its state.
    return {id(parameter) for parameter in state} if isinstance(state, dict) else set()


def _algorithm(kind: Any) -> str:
    """Returns torch's optimizer class whose step a class runs, or else the class's own name."""
    step = inspect.unwrap(kind.step)
    for base in kind.__mro__:
        # torch and the agent wrap the steps of classes, including subclasses.
        of_torch = base.__module__.startswith("torch.optim.")
        if of_torch and inspect.unwrap(base.step) is step:
            return str(base.__name__)
    # A class of the program with the name of a torch optimizer is a different one.
    is_ambiguous = hasattr(torch.optim, kind.__name__)
    return f"{kind.__module__}.{kind.__name__}" if is_ambiguous else str(kind.__name__)


def _plain_options(options: dict[str, Any]) -> dict[str, object]:
    """Returns the options that are flags, numbers or pairs of them. Others are the program's
    objects.
    """
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
    """Returns elements and bytes. A lazy module's parameter has none until its first call."""
    try:
        return tensor.numel(), tensor.numel() * tensor.element_size()
    except (RuntimeError, ValueError):
        return 0, 0


def variables_holding(wanted: set[int], frame: types.FrameType | None) -> dict[int, str]:
    """Returns the names of variables that refer to the objects, by object ID.

    Searches the frames outwards: local names, then attributes of `self`, then global names. A
    wrapper of torch.compile counts as its inner module.
    """
    found: dict[int, str] = {}

    def search(names: dict[str, Any]) -> None:
        for name, value in list(names.items()):
            if issubclass(type(value), nn.Module):
                value = _wrapped(value) or value
            if id(value) in wanted and not name.startswith("__") and name != "self":
                found.setdefault(id(value), name)

    while frame is not None:
        names = dict(frame.f_locals)
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("torch.", "ridgeline_agent.")):
            search(names)
            instance = names.get("self")
            if instance is not None and hasattr(instance, "__dict__"):
                search(vars(instance))
                if issubclass(type(instance), nn.Module):
                    search(dict(instance._modules))
            search(frame.f_globals)
        frame = frame.f_back
    return found
