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
    results = checks(simulated=False)
    with results.row("driver"):
        results.add("one", True, 1, "1")
        assert results.outcome("driver") == PASSED
        results.add("two", False, 1, "2")
    assert results.outcome("driver") == FAILED
    assert results.outcome("energy") == NOT_RUN
    page = results.page("a GPU")
    assert "1 of 2 checks failed" in page
    assert "driver: two: 1 (expected: 2)" in page


@pytest.mark.parametrize("passed", [True, False])
def test_hardware_checks_are_not_applicable_on_the_simulator(passed: bool):
    for simulated, outcome in [(True, NOT_APPLICABLE), (False, PASSED if passed else FAILED)]:
        results = checks(simulated=simulated)
        with results.row("energy"):
            results.add("power", passed, "700 W", "at most 735 W", hardware_only=True)
        assert results.outcome("energy") == outcome


def test_an_unknown_row_is_an_error():
    with pytest.raises(ValueError, match="no row `memory`"), checks(simulated=True).row("memory"):
        pass


def test_nested_rows_are_kept_apart():
    results = checks(simulated=True)
    with results.row("driver"):
        with results.row("ranks"):
            results.add("inner", True, "", "")
        results.add("outer", True, "", "")
    assert [check.row for check in results.results] == ["ranks", "driver"]


def test_the_status_page_has_a_check_for_every_row():
    """A row without a check in `tests/gpu` describes the manual check in its last column."""
    rows = status_rows()
    assert len(rows) > 15
    assert len({row.id for row in rows}) == len(rows)
    texts = [path.read_text() for path in (HERE / "run", *HERE.glob("*.py"))]
    texts += [path.read_text() for path in (HERE / "programs").glob("*.py")]
    code = "\n".join(texts)
    with_check = set(re.findall(r'\.row\(\s*"([a-z-]+)"', code))
    with_check |= set(re.findall(r'"row": "([a-z-]+)"', code)) | {"recording"}
    manual = {row.id for row in rows if row.simulated.startswith(NOT_RUN)}
    missing = {row.id for row in rows} - with_check - manual
    assert not missing, f"no check of tests/gpu has these rows: {sorted(missing)}"
    fixtures = {row.id for row in ROWS}
    unknown = with_check - {row.id for row in rows} - fixtures - {"memory"}
    assert not unknown, f"docs/gpu-status.md has no such rows: {sorted(unknown)}"


def test_no_row_claims_a_real_gpu():
    """Results of continuous integration come from the simulated device."""
    assert {row.real for row in status_rows()} == {"never"}
    for row in status_rows():
        assert row.simulated.startswith(("passes", NOT_APPLICABLE, NOT_RUN)), row


def test_a_claim_without_a_passed_check_fails():
    rows = [
        *ROWS,
        StatusRow("findings", "", "passes in `tests/run`", ""),
        StatusRow("power", "", NOT_RUN, ""),
    ]
    results = Checks(rows, simulated=True)
    with results.row("driver"):
        results.add("named", True, "", "")
    with results.row("energy"):
        results.add("power", True, "", "", hardware_only=True)
    results.check_claims()
    assert [check.row for check in results.failed()] == ["energy", "ranks"]
    real = Checks(rows, simulated=False)
    real.check_claims()
    assert not real.results


def test_files_named_on_the_page_exist():
    for row in status_rows():
        for name in re.findall(r"`(tests/[^` ]+)", row.simulated):
            assert (REPOSITORY / name).exists(), f"{row.id} names {name}"
