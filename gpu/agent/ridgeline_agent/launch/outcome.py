"""The outcome of a launched run: for all ranks together, and for each rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..protocol.rank_states import RankState, progress_key

# The maximum number of ranks that a message names. The others are counted.
_MAX_NAMED = 4
# The maximum length of each rank's message.
_MAX_MESSAGE_CHARS = 200


@dataclass
class End:
    """Why watching the ranks ended. Without an outcome, the ranks' own outcomes decide."""

    outcome: str | None
    message: str | None
    # Ranks whose process ended without reporting an outcome.
    gone: set[int] = field(default_factory=set)
    # The launcher's exit status, if it ended.
    status: int | None = None


def finished(
    identifier: int,
    states: dict[int, RankState],
    end: End,
    frames: list[list[dict[str, Any]]],
) -> dict[str, Any]:
    """Returns the event that ends the run. `frames` are the stacks of the ranks, in rank order."""
    stacks = dict(zip(sorted(states), frames))
    outcome, message = _outcome(states, end, stacks)
    slowest = min(
        states.values(), key=lambda state: (state.outcome is not None, state.rank), default=None
    )
    status = end.status
    return {
        "event": "finished",
        "id": identifier,
        "outcome": outcome,
        "message": message,
        "signal": -status if status is not None and status < 0 else None,
        "code": status if status is not None and status > 0 else None,
        "frames": stacks.get(slowest.rank, [])
        if slowest is not None and outcome == "timeout"
        else [],
        "ranks": [
            {"rank": rank, "outcome": state.outcome or "lost", "message": state.message}
            for rank, state in sorted(states.items())
        ],
    }


def _outcome(
    states: dict[int, RankState], end: End, stacks: dict[int, list[dict[str, Any]]]
) -> tuple[str, str | None]:
    if end.outcome == "timeout":
        return "timeout", f"{end.message}: {_positions(states, stacks)}"
    if end.outcome is not None:
        return end.outcome, end.message
    if not states:
        return "exited", f"no rank started: {end.message or 'the launcher did nothing'}"
    size = max(state.world_size for state in states.values())
    missing = [rank for rank in range(size) if rank not in states]
    outcomes = {state.outcome for state in states.values()}
    if not missing and outcomes == {"complete"}:
        return "complete", None
    for outcome in ("failed", "exited"):
        if end.gone:
            break  # The others' errors are usually that their connection to it was closed.
        told = [state for state in states.values() if state.outcome == outcome]
        if told:
            text = "; ".join(f"rank {one.rank}: {one.message}" for one in told[:1])
            return outcome, text + _and_others(told, outcome)
    if not missing and outcomes == {"short"}:
        return "short", None
    parts = [f"rank {rank} did not start" for rank in missing[:_MAX_NAMED]]
    # The first rank that was gone, most likely the one with the least progress, made the others
    # lose their connections.
    first = sorted(
        states.values(), key=lambda one: (one.rank not in end.gone, progress_key(one), one.rank)
    )
    parts += [_describe(state, end, stacks) for state in first]
    more = len(parts) - _MAX_NAMED
    text = "; ".join(parts[:_MAX_NAMED]) + (f"; and {more} more ranks" if more > 0 else "")
    text = text if end.message is None else f"{text}; {end.message}"
    if not missing and not end.gone and "short" in outcomes <= {"complete", "short", None}:
        # The other ranks continue or wait for it: with fewer iterations, all of them would finish.
        return "short", text
    return "exited", text


def _and_others(told: list[RankState], outcome: str) -> str:
    others = len(told) - 1
    if others < 1:
        return ""
    what = "failed" if outcome == "failed" else "exited early"
    return f" ({others} more {'rank' if others == 1 else 'ranks'} {what}, too)"


def _describe(state: RankState, end: End, stacks: dict[int, list[dict[str, Any]]]) -> str:
    rank = f"rank {state.rank}"
    if state.outcome == "complete":
        return f"{rank} was measured"
    if state.outcome == "short":
        return f"{rank} finished before enough iterations ran"
    if state.outcome is not None:
        told = "" if state.message is None else f": {state.message[:_MAX_MESSAGE_CHARS]}"
        return f"{rank} {state.outcome}{told}"
    if state.rank in end.gone:
        return f"{rank} was stopped in stage '{state.stage}'{_at(stacks.get(state.rank, []))}"
    return f"{rank} was waiting in stage '{state.stage}'"


def _positions(states: dict[int, RankState], stacks: dict[int, list[dict[str, Any]]]) -> str:
    """Describes the position of each rank that had not ended, least progress first."""
    if not states:
        return "no rank had started"
    size = max(state.world_size for state in states.values())
    parts = [f"rank {rank} had not started" for rank in range(size) if rank not in states]
    running = [state for state in states.values() if state.outcome is None]
    for state in sorted(running, key=lambda one: (progress_key(one), one.rank)):
        at = _at(stacks.get(state.rank, []))
        count = f"{state.done} of {state.total}"
        parts.append(f"rank {state.rank} was{at} in stage '{state.stage}' ({count})")
    ended = [str(state.rank) for state in states.values() if state.outcome is not None]
    if ended and running:
        parts.append(f"exited before that: rank {', '.join(ended[:_MAX_NAMED])}")
    more = len(parts) - _MAX_NAMED
    return "; ".join(parts[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _at(frames: list[dict[str, Any]]) -> str:
    if not frames:
        return ""
    innermost = frames[-1]
    return f" at {innermost['path']}:{innermost['line']} in {innermost['name']}"
