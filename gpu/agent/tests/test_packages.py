"""The agent's packages: which may import which, and where functions of others are replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parent.parent / "ridgeline_agent"
# As the docstring of `ridgeline_agent/__init__.py` lists them: each imports from those before it.
ORDER = (
    "system",
    "protocol",
    "sandbox",
    "side_effects",
    "patches",
    "program",
    "iterations",
    "failure",
    "record",
    "estimate",
    "probe",
    "models",
    "process",
    "launch",
)
# Switches that torch and the standard library offer for assignment.
SWITCHES = (
    "sys.dont_write_bytecode",
    "tempfile.tempdir",
    "torch._dynamo.config.",
    "torch.backends.",
)
MODULES = sorted(path for path in AGENT.rglob("*.py") if path.parent != AGENT)


def name_of(path: Path) -> str:
    return path.relative_to(AGENT).as_posix()


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {path.name for path in AGENT.iterdir() if (path / "__init__.py").is_file()}
    assert packages == set(ORDER)
    listed = ast.get_docstring(ast.parse((AGENT / "__init__.py").read_text()))
    assert listed is not None
    places = [listed.index(f"{number}. `{name}`") for number, name in enumerate(ORDER, 1)]
    assert places == sorted(places)


def test_no_python_file_lies_beside_the_packages() -> None:
    assert [path.name for path in AGENT.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    package = path.relative_to(AGENT).parts[:-1]
    later = ORDER[ORDER.index(package[0]) + 1 :]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            start = package[: len(package) - node.level + 1]
            for alias in node.names:
                target = (*start, *(node.module or "").split("."), alias.name)
                first = next(part for part in target if part)
                assert first not in later, f"line {node.lineno} imports from {first}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_patches_replace_functions_of_others(path: Path) -> None:
    if "patches" in path.relative_to(AGENT).parts:
        return
    tree = ast.parse(path.read_text())
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for alias in node.names
    }
    found = [
        f"line {target.lineno}: {ast.unparse(target)}"
        for target in assigned(tree)
        if root(target) in imported and not ast.unparse(target).startswith(SWITCHES)
    ]
    assert found == []


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.parent.name == "patches"], ids=name_of
)
def test_patches_name_the_versions_on_which_they_were_checked(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    if path.name != "__init__.py":
        assert text is not None
        assert re.match(r"Checked on torch \d+\.\d+\.\d+", text.splitlines()[-1])


def assigned(tree: ast.AST) -> Iterator[ast.expr]:
    """The attributes that are assigned, and what `setattr` is called with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (part for part in parts if isinstance(part, ast.Attribute))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            yield node.args[0]


def root(expression: ast.expr) -> str | None:
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None
