"""The user's call stack at each operator, as a tree (docs/op-list.md, `stacks`)."""

from __future__ import annotations

import types

from ..program.sources import Sources

# The maximum number of frames per stack. A recursion of a thousand frames would make each operator
# slow.
_MAX_DEPTH = 400
_MAX_NODES = 100_000


class OperatorStacks:
    """Numbers the stacks."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        # [parent, file, line, function] of each node, and the index of its code.
        self._nodes: list[tuple[int, int, int, str]] = []
        self._codes: list[int] = []
        self._index: dict[tuple[int, int, int, str], int] = {}
        # By each frame's position, because a lookup is cheaper than querying a frame for its line.
        self._known: dict[tuple[int, ...], int] = {}
        self._is_user: dict[int, bool] = {}
        self._keep_alive: list[types.CodeType] = []

    def at(self, frame: types.FrameType | None) -> int:
        """Returns the stack from this frame outwards; -1 if it has no user code."""
        is_user = self._is_user
        place: list[int] = []
        frames: list[types.FrameType] = []
        depth = 0
        while frame is not None and depth < _MAX_DEPTH:
            code = frame.f_code
            identity = id(code)
            user = is_user.get(identity)
            if user is None:
                user = is_user[identity] = self._sources.code(code) is not None
                self._keep_alive.append(code)
            if user:
                place += (identity, frame.f_lasti)
                frames.append(frame)
            frame = frame.f_back
            depth += 1
        key = tuple(place)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._add(frames)
        return found

    def place(self, node: int) -> tuple[int, int] | None:
        """Returns file and line of the innermost frame."""
        return None if node < 0 else self._nodes[node][1:3]

    def lines(self, nodes: set[int]) -> dict[int, set[int]]:
        """Returns the lines of these stacks, by code index."""
        lines: dict[int, set[int]] = {}
        seen: set[int] = set()
        for node in nodes:
            while node >= 0 and node not in seen:
                seen.add(node)
                lines.setdefault(self._codes[node], set()).add(self._nodes[node][2])
                node = self._nodes[node][0]
        return lines

    def json(self) -> list[list[object]]:
        """Returns `stacks` of docs/op-list.md."""
        return [list(node) for node in self._nodes]

    def _add(self, frames: list[types.FrameType]) -> int:
        node = -1
        for frame in reversed(frames):
            code = frame.f_code
            file = self._sources.file(code.co_filename)
            index = self._sources.code(code)
            if file is None or index is None:
                continue
            name = getattr(code, "co_qualname", code.co_name)
            entry = (node, file, frame.f_lineno or 0, name)
            found = self._index.get(entry)
            if found is None:
                if len(self._nodes) >= _MAX_NODES:
                    return node
                found = self._index[entry] = len(self._nodes)
                self._nodes.append(entry)
                self._codes.append(index)
            node = found
        return node
