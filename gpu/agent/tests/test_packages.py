"""Rules for the agent's packages: allowed imports, and where other modules are patched."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parent.parent / "ridgeline_agent"
# The order in the docstring of `ridgeline_agent/__init__.py`. A package imports only earlier ones.
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
    "trajectory",
    "estimate",
    "probe",
    "models",
    "process",
    "launch",
)
# Settings of torch and the standard library that are meant to be assigned.
SETTINGS = (
    "sys.dont_write_bytecode",
    "tempfile.tempdir",
    "torch._dynamo.config.",
    "torch._inductor.config.",
    "torch.backends.",
)
MODULES = sorted(path for path in AGENT.rglob("*.py") if path.parent != AGENT)


def name_of(path: Path) -> str:
    return path.relative_to(AGENT).as_posix()


def test_every_package_is_listed_in_order() -> None:
    packages = {path.name for path in AGENT.iterdir() if (path / "__init__.py").is_file()}
    assert packages == set(ORDER)
    listed = ast.get_docstring(ast.parse((AGENT / "__init__.py").read_text()))
    assert listed is not None
    positions = [listed.index(f"{number}. `{name}`") for number, name in enumerate(ORDER, 1)]
    assert positions == sorted(positions)


def test_no_modules_outside_packages() -> None:
    assert [path.name for path in AGENT.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_only_earlier_packages(path: Path) -> None:
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
def test_only_patches_assign_attributes_of_other_modules(path: Path) -> None:
    if "patches" in path.relative_to(AGENT).parts:
        return
    tree = ast.parse(path.read_text())
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for alias in node.names
    }
    assignments = [
        f"line {target.lineno}: {ast.unparse(target)}"
        for target in assigned_attributes(tree)
        if root_name(target) in imported and not ast.unparse(target).startswith(SETTINGS)
    ]
    assert assignments == []


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.parent.name == "patches"], ids=name_of
)
def test_patches_state_checked_torch_version(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    if path.name != "__init__.py":
        assert text is not None
        assert re.match(r"Checked on torch \d+\.\d+\.\d+", text.splitlines()[-1])


def assigned_attributes(tree: ast.AST) -> Iterator[ast.expr]:
    """The attributes that are assigned, and the objects passed to `setattr`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (part for part in parts if isinstance(part, ast.Attribute))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            yield node.args[0]


def root_name(expression: ast.expr) -> str | None:
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None
