"""Provider files of Skyline and DeepView."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_driver import Agent, manifest

PROVIDER = """\
import torch
def skyline_model_provider():
    return torch.nn.Linear(4, 2)
def skyline_input_provider(batch_size=16):
    return (torch.randn(batch_size, 4),)
def skyline_iteration_provider(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def iteration(inputs):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
    return iteration
if __name__ == "__main__":
    raise SystemExit("only for direct execution")
"""
INPUTS = "return torch.randn(batch_size, 4), {'labels': torch.zeros(batch_size).long()}"


def run(agent: Agent, folder: Path, text: str, **keys: object) -> tuple[str, str]:
    (folder / "entry_point.py").write_text(text)
    entry = {"kind": "provider", "path": str(folder / "entry_point.py")}
    finished = agent.wait_for("finished", id=agent.start_entry(folder, entry, **keys))
    return finished["outcome"], finished["message"] or ""


@pytest.mark.parametrize("prefix", ["skyline", "deepview"])
def test_provider(agent: Agent, tmp_path: Path, prefix: str) -> None:
    assert run(agent, tmp_path, PROVIDER.replace("skyline", prefix)) == ("complete", "")
    assert manifest(tmp_path)["batch"] == {"size": 16, "from": "provider", "certain": True}
    assert manifest(tmp_path)["iterations"]["found_by"] == "provider"


def test_configured_batch_size(agent: Agent, tmp_path: Path) -> None:
    run(agent, tmp_path, PROVIDER, batch_size=3)
    assert manifest(tmp_path)["batch"]["size"] == 3


def test_missing_provider_function(agent: Agent, tmp_path: Path) -> None:
    text = PROVIDER.replace("skyline_iteration_provider", "other")
    outcome, message = run(agent, tmp_path, text)
    assert outcome == "failed"
    assert "skyline_iteration_provider or deepview_iteration_provider" in message


def test_batch_size_without_default(agent: Agent, tmp_path: Path) -> None:
    outcome, message = run(agent, tmp_path, PROVIDER.replace("batch_size=16", "batch_size"))
    assert outcome == "failed" and "write batch_size=32" in message
    assert manifest(tmp_path)["failure"]["frames"] == [{"file": 0, "line": 4, "name": "<module>"}]


def test_inputs_that_are_not_a_tuple(agent: Agent, tmp_path: Path) -> None:
    outcome, message = run(agent, tmp_path, PROVIDER.replace(" 4),)", " 4))"))
    assert outcome == "failed" and "must return a tuple" in message


def test_error_in_iteration(agent: Agent, tmp_path: Path) -> None:
    text = PROVIDER.replace("optimizer.step()", "optimizer.stop()")
    outcome, message = run(agent, tmp_path, text)
    assert outcome == "failed" and "stop" in message
    assert manifest(tmp_path)["failure"]["frames"][-1]["line"] == 11


def test_provider_with_name_of_library(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text(PROVIDER)
    entry = {"kind": "provider", "path": str(tmp_path / "queue.py")}
    finished = agent.wait_for("finished", id=agent.start_entry(tmp_path, entry))
    assert finished["outcome"] == "complete"


def check_loop(agent: Agent, folder: Path, text: str, mark: str | None) -> None:
    """Checks that the line with `mark` is reported as the loop."""
    assert run(agent, folder, text) == ("complete", "")
    lines = text.splitlines()
    line = next((number for number, text in enumerate(lines, 1) if mark and mark in text), None)
    assert manifest(folder)["loop"] == (line and {"file": 0, "line": line})


def test_iteration_is_reported_as_loop(agent: Agent, tmp_path: Path) -> None:
    check_loop(agent, tmp_path, PROVIDER, "def iteration(")


def test_decorated_iteration_is_reported_at_its_def(agent: Agent, tmp_path: Path) -> None:
    text = "import functools\n" + PROVIDER.replace(
        "    def iteration(", "    @torch.enable_grad()\n    def iteration("
    )
    check_loop(agent, tmp_path, text, "def iteration(")


@pytest.mark.parametrize("returned", ["Trainer()", "Trainer().__call__", "partial(Trainer())"])
def test_callable_object_as_iteration(agent: Agent, tmp_path: Path, returned: str) -> None:
    text = PROVIDER.replace("    return iteration", f"    return {returned}").replace(
        "    def iteration(inputs)", "    class Trainer:\n      def __call__(self, inputs)"
    )
    text = "from functools import partial\n" + text.replace("        ", "          ")
    check_loop(agent, tmp_path, text, "def __call__(")


def test_library_function_as_iteration(agent: Agent, tmp_path: Path) -> None:
    text = PROVIDER.replace("return iteration", "return model")
    check_loop(agent, tmp_path, text, "def skyline_iteration_provider")


def test_inputs_are_the_batch(agent: Agent, tmp_path: Path) -> None:
    text = PROVIDER.replace("return (torch.randn(batch_size, 4),)", INPUTS).replace(
        "iteration(inputs)", "iteration(inputs, labels)"
    )
    assert run(agent, tmp_path, text) == ("complete", "")
    memory = manifest(tmp_path)["memory"]
    batch = [entry for entry in memory["baseline"] if entry["kind"] == "batch"]
    assert sorted(entry["bytes"] for entry in batch) == [16 * 8, 16 * 16]
    assert {entry["ptr"] for entry in batch} == {entry["ptr"] for entry in memory["batch"]}
