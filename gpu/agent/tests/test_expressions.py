"""The expressions within a line: which are followed, and what the line log has about them."""

from __future__ import annotations

import sys
import textwrap

import pytest

from recording import record
from ridgeline_agent.program.sources import indentations
from ridgeline_agent.record import line_clock
from ridgeline_agent.record.expressions import Expressions

if sys.version_info < (3, 12):
    pytest.skip("expressions are recorded since Python 3.12", allow_module_level=True)


def followed(source: str) -> list[str]:
    """Returns the texts of the expressions that are followed, in the order in which they run."""
    source = textwrap.dedent(source).strip()
    lines = source.splitlines()
    expressions = Expressions()
    expressions.of(compile(source, "program.py", "exec"), 0)
    texts = []
    for _, (line, end_line, column, end_column) in expressions._index:
        text = lines[line - 1 : end_line]
        text[-1] = text[-1][:end_column]
        text[0] = text[0][column:]
        texts.append(" ".join(part.strip() for part in text))
    return texts


def test_only_lines_with_several_expressions_are_followed() -> None:
    assert followed("a = f(x)\nb = x + 1\nc = x.y") == []
    assert followed("a = f(g(x))") == ["g(x)", "f(g(x))"]
    assert followed("a = f(x); b = g(x)") == ["f(x)", "g(x)"]


def test_operands_run_before_their_operators() -> None:
    assert followed("a = b @ c @ d") == ["b @ c", "b @ c @ d"]
    assert followed("y = f(x) + -g(x)[0]") == [
        "f(x)",
        "g(x)",
        "g(x)[0]",
        "-g(x)[0]",
        "f(x) + -g(x)[0]",
    ]
    assert followed("y = f(x) if (n := g(x)) > 1 else h(x)")[:2] == ["g(x)", "(n := g(x)) > 1"]


def test_a_statement_of_several_lines() -> None:
    several = """
    y = (
        f(
            x,
            g(x),
        )
        .relu()
        .sum()
    )
    z = f(
        x,
        y,
    )
    """
    assert followed(several) == ["g(x)", "f( x, g(x), )", "relu()", "sum()"]


def test_a_long_list_takes_no_time() -> None:
    items = ",\n".join(f"f({number})" for number in range(20_000))
    assert len(followed(f"a = [\n{items}\n]")) == 20_000


def test_indentation_is_counted_in_bytes() -> None:
    text = "\ufeffa\n\t  b\r\n\n  é".encode()
    assert indentations(text) == [0, 3, 0, 2]
    assert indentations(b"") == []


def test_the_log_has_every_evaluation() -> None:
    recording = record("""
        import torch

        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def half(x):
            return x / 2

        while True:
            optimizer.zero_grad()
            if True:
                loss = half(weight).sum() + half(half(weight)).sum()
            loss.backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    line = recording.line_of("loss = half")
    ranges = [entry["range"] for entry in recording.manifest["expressions"]]
    text = "loss = half(weight).sum() + half(half(weight)).sum()"
    evaluated = [
        text[ranges[number][1] : ranges[number][3]]
        for _, kind, _, _, number in recording.events()
        if kind == "EXPRESSION" and ranges[number][0] == line
    ]
    once = [
        "half(weight)",
        "half(weight).sum()",
        "half(weight)",
        "half(half(weight))",
        "half(half(weight)).sum()",
        "half(weight).sum() + half(half(weight)).sum()",
    ]
    iterations = len(recording.manifest["iterations"]["profiled"])
    assert evaluated == once * iterations


MANY = """
    import torch

    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def add(number):
        return abs(number) + abs(number)

    def loss():
        return weight.sum() + weight.sum()

    while True:
        optimizer.zero_grad()
        for number in range(500):
            add(number)
        loss().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("min_ns", "known"), [(0, ["add", "loss"]), (10**12, ["loss"])])
def test_functions_with_very_many_short_expressions_have_none(
    min_ns: int, known: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_clock, "_MIN_NS_PER_EXPRESSION", min_ns)
    recording = record(MANY)
    assert recording.outcome == "complete", recording.printed
    codes = recording.manifest["codes"]
    found = {
        codes[entry["code"]]["name"]
        for entry in recording.manifest["expressions"]
        if entry["range"] != [0, 0, 0, 0]
    }
    assert sorted(found - {"<module>"}) == known
