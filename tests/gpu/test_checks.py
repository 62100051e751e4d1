"""Tests the page of `tests/gpu/run`, and that docs/gpu-status.md claims only what checks show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checks import (
    FAILED,
    NOT_APPLICABLE,
    NOT_RUN,
    PASSED,
    REPOSITORY,
    Checks,
    StatusRow,
    status_rows,
)

HERE = Path(__file__).parent
ROWS = [StatusRow(name, f"the {name}", "passes", "never") for name in ("driver", "energy", "ranks")]


def checks(*, simulated: bool) -> Checks:
    return Checks(ROWS, simulated=simulated)


def test_a_row_fails_with_any_of_its_checks():
    asked = checks(simulated=False)
    with asked.row("driver"):
        asked.add("one", True, 1, "1")
        assert asked.outcome("driver") == PASSED
        asked.add("two", False, 1, "2")
    assert asked.outcome("driver") == FAILED
    assert asked.outcome("energy") == NOT_RUN
    page = asked.page("a GPU")
    assert "1 of 2 checks failed" in page
    assert "driver: two: 1 (wanted: 2)" in page


@pytest.mark.parametrize("held", [True, False])
def test_physics_is_not_applicable_where_it_is_simulated(held: bool):
    for simulated, outcome in [(True, NOT_APPLICABLE), (False, PASSED if held else FAILED)]:
        asked = checks(simulated=simulated)
        with asked.row("energy"):
            asked.add("power", held, "700 W", "at most 735 W", physics=True)
        assert asked.outcome("energy") == outcome


def test_a_row_that_the_page_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="no row `memory`"), checks(simulated=True).row("memory"):
        pass


def test_rows_of_threads_and_of_rows_within_rows_are_told_apart():
    asked = checks(simulated=True)
    with asked.row("driver"):
        with asked.row("ranks"):
            asked.add("inner", True, "", "")
        asked.add("outer", True, "", "")
    assert [check.row for check in asked.answers] == ["ranks", "driver"]


def test_the_status_page_has_a_check_for_every_row():
    """A row without a check in `tests/gpu` describes the manual check in its last column."""
    rows = status_rows()
    assert len(rows) > 15
    assert len({row.id for row in rows}) == len(rows)
    texts = [path.read_text() for path in (HERE / "run", *HERE.glob("*.py"))]
    texts += [path.read_text() for path in (HERE / "programs").glob("*.py")]
    code = "\n".join(texts)
    named = set(re.findall(r'\.row\(\s*"([a-z-]+)"', code))
    named |= set(re.findall(r'"row": "([a-z-]+)"', code)) | {"recording"}
    by_hand = {row.id for row in rows if row.simulated.startswith(NOT_RUN)}
    without = {row.id for row in rows} - named - by_hand
    assert not without, f"no check of tests/gpu has these rows: {sorted(without)}"
    fixtures = {row.id for row in ROWS}
    unknown = named - {row.id for row in rows} - fixtures - {"memory"}
    assert not unknown, f"docs/gpu-status.md has no such rows: {sorted(unknown)}"


def test_nothing_was_seen_on_a_real_gpu():
    """Results of continuous integration come from the simulated device."""
    assert {row.real for row in status_rows()} == {"never"}
    for row in status_rows():
        assert row.simulated.startswith(("passes", NOT_APPLICABLE, NOT_RUN)), row


def test_a_claim_of_the_page_without_a_check_that_passed_fails():
    rows = [
        *ROWS,
        StatusRow("findings", "", "passes in `tests/run`", ""),
        StatusRow("power", "", NOT_RUN, ""),
    ]
    asked = Checks(rows, simulated=True)
    with asked.row("driver"):
        asked.add("named", True, "", "")
    with asked.row("energy"):
        asked.add("power", True, "", "", physics=True)
    asked.hold_claims()
    assert [check.row for check in asked.failed()] == ["energy", "ranks"]
    real = Checks(rows, simulated=False)
    real.hold_claims()
    assert not real.answers


def test_tests_that_the_page_names_are_there():
    for row in status_rows():
        for name in re.findall(r"`(tests/[^` ]+)", row.simulated):
            assert (REPOSITORY / name).exists(), f"{row.id} names {name}"
