"""The checks on a machine with a GPU, their measurements and results, as one page ordered by the
rows of docs/gpu-status.md.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
STATUS_PAGE = REPOSITORY / "docs/gpu-status.md"

# The maximum length of a measured value on the page, in characters.
MAX_MEASURED_CHARACTERS = 300
PASSED, FAILED, NOT_APPLICABLE, NOT_RUN = "pass", "FAIL", "not applicable", "not run"


@dataclass(frozen=True)
class StatusRow:
    """A row of docs/gpu-status.md."""

    id: str
    what: str
    simulated: str
    real: str


@dataclass(frozen=True)
class Check:
    """One check and its result."""

    row: str
    name: str
    outcome: str
    measured: str
    wanted: str


def status_rows(page: str | None = None) -> list[StatusRow]:
    """Returns the rows of docs/gpu-status.md, from its first table."""
    text = STATUS_PAGE.read_text() if page is None else page
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) >= 4 and (found := re.fullmatch(r"`([a-z-]+)`", cells[0])):
            rows.append(StatusRow(found[1], *cells[1:4]))
    return rows


def _format_failure(check: Check) -> str:
    measured = " ".join(check.measured.split())
    ellipsis = "…" if len(measured) > MAX_MEASURED_CHARACTERS else ""
    return f"{measured[:MAX_MEASURED_CHARACTERS]}{ellipsis} (expected: {check.wanted})"


class Checks:
    """The results so far. Thread-safe."""

    def __init__(self, rows: list[StatusRow], *, simulated: bool) -> None:
        self.rows = rows
        self.simulated = simulated
        self.results: list[Check] = []
        self._lock = threading.Lock()
        # The current row of each thread.
        self._current = threading.local()

    @contextmanager
    def row(self, name: str) -> Iterator[None]:
        """Assigns the checks in this context to a row."""
        if name not in {row.id for row in self.rows}:
            raise ValueError(f"docs/gpu-status.md has no row `{name}`")
        previous = getattr(self._current, "row", None)
        self._current.row = name
        try:
            yield
        finally:
            self._current.row = previous

    def add(
        self, name: str, passed: bool, measured: object, wanted: str, *, hardware_only: bool = False
    ) -> None:
        """Adds a result. With `physics`, the check compares with real hardware, which a simulated
        time model can only imitate: on the simulator, it is always reported as not applicable.
        """
        outcome = PASSED if passed else FAILED
        if hardware_only and self.simulated:
            outcome = NOT_APPLICABLE
        self._add(name, outcome, str(measured), wanted)

    def within(
        self, name: str, value: float, truth: float, share: float, *, hardware_only: bool = False
    ) -> None:
        """Checks that the value differs from the truth by at most this share."""
        error = abs(value / truth - 1) if truth else float("inf")
        measured = f"{value:.6g}, reference {truth:.6g} ({error:.2%} off)"
        self.add(name, error <= share, measured, f"within {share:.1%}", hardware_only=hardware_only)

    def skip(self, name: str, reason: str) -> None:
        """Records a check that does not apply here, with the reason."""
        self._add(name, NOT_APPLICABLE, reason, "")

    def _add(self, name: str, outcome: str, measured: str, wanted: str) -> None:
        check = Check(self._current.row, name, outcome, measured, wanted)
        details = f" (expected: {wanted})" if wanted else ""
        with self._lock:
            self.results.append(check)
            print(f"{outcome:<14}  {check.row}: {name}: {measured}{details}", flush=True)

    def checks_of(self, name: str) -> list[Check]:
        return [check for check in self.results if check.row == name]

    def outcome(self, name: str) -> str:
        """Returns a row's state: it fails if any of its checks fails, and passes if one passed."""
        outcomes = {check.outcome for check in self.checks_of(name)}
        known = [one for one in (FAILED, PASSED, NOT_APPLICABLE) if one in outcomes]
        return known[0] if known else NOT_RUN

    def check_claims(self) -> None:
        """On the simulator: if docs/gpu-status.md claims that a row passes and names no other test
        for it, at least one check of that row must have passed.
        """
        for row in self.rows if self.simulated else []:
            outcome = self.outcome(row.id)
            claimed = row.simulated.startswith("passes") and "`tests/" not in row.simulated
            if claimed and outcome in (NOT_APPLICABLE, NOT_RUN):
                with self.row(row.id):
                    self.add("docs/gpu-status.md", False, "claims `passes`", outcome)

    def failed(self) -> list[Check]:
        return [check for check in self.results if check.outcome == FAILED]

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(check) for check in self.results]

    def page(self, about: str) -> str:
        """Returns the page: a line per row, then the failures."""
        lines = [about, ""]
        width = max(len(row.id) for row in self.rows)
        for row in self.rows:
            outcome, checks = self.outcome(row.id), self.checks_of(row.id)
            failed = sum(check.outcome == FAILED for check in checks)
            passed = sum(check.outcome == PASSED for check in checks)
            details = {
                FAILED: f"{failed} of {failed + passed} checks failed",
                PASSED: f"{passed} {'check' if passed == 1 else 'checks'}",
                NOT_APPLICABLE: "; ".join(dict.fromkeys(self._reason(check) for check in checks)),
                NOT_RUN: "",
            }[outcome]
            lines.append(f"{outcome:<14}  {row.id:<{width}}  {details}".rstrip())
        if failed_checks := self.failed():
            lines += ["", "Failed checks:"]
            lines += [
                f"  {check.row}: {check.name}: {_format_failure(check)}" for check in failed_checks
            ]
        lines += ["", "The rows are described in docs/gpu-status.md."]
        return "\n".join(lines) + "\n"

    def _reason(self, check: Check) -> str:
        return "simulated" if check.wanted else check.measured
