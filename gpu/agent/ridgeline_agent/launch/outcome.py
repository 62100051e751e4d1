"""What is said of a launched run at its end: of all ranks together, and of each by its number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..protocol.rank_states import RankState, how_far

# Ranks that a message names; the others are counted.
_MOST_NAMED = 4
# Of what each of them said.
_MOST_TOLD = 200


@dataclass
class End:
    """Why the watch over the ranks ended. Without an outcome, the ranks' own tell it."""

    outcome: str | None
    message: str | None
    # Ranks whose process ended without saying how.
    gone: set[int] = field(default_factory=set)
    # Of the launcher, where it ended.
    status: int | None = None


def finished(
    identifier: int,
    states: dict[int, RankState],
    end: End,
    frames: list[list[dict[str, Any]]],
) -> dict[str, Any]:
    """The event that ends the run. `frames` are where each rank stood, in the ranks' order."""
    places = dict(zip(sorted(states), frames))
    outcome, message = _outcome(states, end, places)
    least = min(
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
        "frames": places.get(least.rank, []) if least is not None and outcome == "timeout" else [],
        "ranks": [
            {"rank": rank, "outcome": state.outcome or "lost", "message": state.message}
            for rank, state in sorted(states.items())
        ],
    }


def _outcome(
    states: dict[int, RankState], end: End, places: dict[int, list[dict[str, Any]]]
) -> tuple[str, str | None]:
    if end.outcome == "timeout":
        return "timeout", f"{end.message}: {_standing(states, places)}"
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
            break  # What the others raised is mostly that their connection to it was closed.
        told = [state for state in states.values() if state.outcome == outcome]
        if told:
            text = "; ".join(f"rank {one.rank}: {one.message}" for one in told[:1])
            return outcome, text + _and_others(told, outcome)
    if not missing and outcomes == {"short"}:
        return "short", None
    parts = [f"rank {rank} did not start" for rank in missing[:_MOST_NAMED]]
    # Of those that are gone, the others lost their connection to the one that was gone first, most
    # likely the one that was least far.
    first = sorted(
        states.values(), key=lambda one: (one.rank not in end.gone, how_far(one), one.rank)
    )
    parts += [_fate(state, end, places) for state in first]
    more = len(parts) - _MOST_NAMED
    text = "; ".join(parts[:_MOST_NAMED]) + (f"; and {more} more ranks" if more > 0 else "")
    text = text if end.message is None else f"{text}; {end.message}"
    if not missing and not end.gone and "short" in outcomes <= {"complete", "short", None}:
        # The others went on, or wait for it: with fewer iterations all of them come to their end.
        return "short", text
    return "exited", text


def _and_others(told: list[RankState], outcome: str) -> str:
    others = len(told) - 1
    if others < 1:
        return ""
    what = "failed" if outcome == "failed" else "exited early"
    return f" ({others} more {'rank' if others == 1 else 'ranks'} {what}, too)"


def _fate(state: RankState, end: End, places: dict[int, list[dict[str, Any]]]) -> str:
    rank = f"rank {state.rank}"
    if state.outcome == "complete":
        return f"{rank} was measured"
    if state.outcome == "short":
        return f"{rank} finished before enough iterations ran"
    if state.outcome is not None:
        told = "" if state.message is None else f": {state.message[:_MOST_TOLD]}"
        return f"{rank} {state.outcome}{told}"
    if state.rank in end.gone:
        return f"{rank} was stopped in stage '{state.stage}'{_at(places.get(state.rank, []))}"
    return f"{rank} was waiting in stage '{state.stage}'"


def _standing(states: dict[int, RankState], places: dict[int, list[dict[str, Any]]]) -> str:
    """Where each rank that had not ended stood, those that were least far first."""
    if not states:
        return "no rank had started"
    size = max(state.world_size for state in states.values())
    parts = [f"rank {rank} had not started" for rank in range(size) if rank not in states]
    running = [state for state in states.values() if state.outcome is None]
    for state in sorted(running, key=lambda one: (how_far(one), one.rank)):
        at = _at(places.get(state.rank, []))
        count = f"{state.done} of {state.total}"
        parts.append(f"rank {state.rank} was{at} in stage '{state.stage}' ({count})")
    ended = [str(state.rank) for state in states.values() if state.outcome is not None]
    if ended and running:
        parts.append(f"exited before that: rank {', '.join(ended[:_MOST_NAMED])}")
    more = len(parts) - _MOST_NAMED
    return "; ".join(parts[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _at(frames: list[dict[str, Any]]) -> str:
    if not frames:
        return ""
    innermost = frames[-1]
    return f" at {innermost['path']}:{innermost['line']} in {innermost['name']}"
