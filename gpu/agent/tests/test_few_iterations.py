"""Programs with few or no iterations, which are measured in several runs."""

from __future__ import annotations

import pytest

from recording import Recording, record
from ridgeline_agent.iterations.finder import IterationFinder, Verdict
from ridgeline_agent.iterations.grouping import Grouping, group

SETUP = """
    import torch
    from torch import nn
    def net():
        return nn.Linear(4, 2)
    x = torch.ones(3, 4)
    def sgd(*models):
        return torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.01)
"""

ONE_STEP = """
    model = net(); optimizer = sgd(model)
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
"""


def program(body: str) -> str:
    return SETUP + "    " + body.lstrip()


def short_run(body: str, **request: object) -> tuple[str, int, int, int]:
    """Returns what a run that ends with too few iterations reports about them."""
    recording = record(program(body), **request)
    assert recording.outcome == "short", recording.printed
    iterations = recording.manifest["iterations"]
    keys = ("found_by", "seen", "first_signals", "steps_per_iteration")
    found_by, seen, first, every = (iterations[key] for key in keys)
    return found_by, seen, first, every


def test_single_step() -> None:
    assert short_run(ONE_STEP) == ("optimizer", 1, 0, 1)


def test_single_gan_iteration() -> None:
    body = """
    d, g = net(), net(); od, og = sgd(d), sgd(g)
    d(x).sum().backward(); od.step()
    g(x).sum().backward(); og.step()
    """
    assert short_run(body) == ("optimizer", 1, 0, 2)


def test_single_forward_pass() -> None:
    assert short_run("net()(x)") == ("module", 1, 0, 1)


def test_two_models_called_once() -> None:
    body = "encoder, decoder = net(), nn.Linear(2, 4)\n    decoder(encoder(x))"
    assert short_run(body) == ("module", 1, 0, 2)


def test_model_called_from_three_lines() -> None:
    assert short_run("model = net()\n    model(x)\n    model(x)\n    model(x)") == (
        "module",
        3,
        0,
        1,
    )


def test_forward_pass_before_loop() -> None:
    body = """
    model = net().eval()
    model(x)
    for i in range(4):
        model(x)
    """
    assert short_run(body) == ("module", 5, 1, 1)


def test_forward_pass_with_optimizer_that_never_steps() -> None:
    assert short_run("model = net(); optimizer = sgd(model)\n    model(x)") == (
        "module",
        1,
        0,
        1,
    )


def test_backward_passes_with_optimizer_that_never_steps() -> None:
    body = """
    model = net(); optimizer = sgd(model)
    for i in range(3):
        model(x).sum().backward()
    """
    assert short_run(body) == ("backward", 3, 0, 1)


def test_single_step_after_many_forward_passes() -> None:
    body = """
    model = net(); optimizer = sgd(model)
    for i in range(70):
        model(x)
    model(x).sum().backward(); optimizer.step()
    """
    assert short_run(body) == ("optimizer", 1, 0, 1)


def test_program_without_signals() -> None:
    recording = record("import torch\ntorch.ones(3)\n")
    assert recording.outcome == "short"
    assert recording.manifest["iterations"]["seen"] == 0


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("a", (0, 1, 1)),
        ("ab", (0, 2, 1)),
        ("abab", (0, 2, 2)),
        ("ababa", (0, 2, 2)),
        ("waa", (1, 1, 3)),
        ("abcd", (0, 4, 1)),
        ("", (0, 1, 0)),
    ],
)
def test_group(symbols: str, expected: tuple[int, int, int]) -> None:
    grouping = group("module", symbols, len(symbols))
    assert (grouping.first, grouping.every, grouping.count) == expected


def test_finder_uses_grouping_of_earlier_run() -> None:
    finder = IterationFinder("module", (1, 2))
    verdicts = [finder.called(n, n, False) for n in range(5)]
    expected = [Verdict.BOUNDARY, Verdict.NOTHING, Verdict.BOUNDARY]
    assert verdicts == [*expected, Verdict.NOTHING, Verdict.BOUNDARY]
    assert finder.grouping_at_end() == Grouping("module", 1, 2, 3)


def record_three_runs(body: str, found_by: str, first: int = 0, every: int = 1) -> Recording:
    """Times the only iteration of a program in two runs and profiles it in a third."""
    hints = {"found_by": found_by, "signals": {"first": first, "every": every}}
    timed = {"warmup": 0, "timed": 1, "profiled": 0, **hints}
    runs = [record(program(body), iterations=timed) for _ in range(2)]
    for run in runs:
        assert run.outcome == "complete", run.printed
        assert len(run.manifest["iterations"]["timed_ns"]) == 1
        assert not (run.folder / "trace.json").exists()
    recording = record(
        program(body),
        iterations={"warmup": 0, "timed": 0, "profiled": 1, **hints},
        earlier=[str(run.folder) for run in runs],
    )
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    earlier = [run.manifest["iterations"]["timed_ns"][0] for run in runs]
    assert iterations["timed_ns"] == earlier
    assert iterations["runs"] == 3
    assert len(iterations["profiled"]) == 1 and iterations["measured"] == 0
    return recording


def test_single_step_is_timed_and_profiled_in_separate_runs() -> None:
    recording = record_three_runs(ONE_STEP, "optimizer")
    assert recording.operators("aten::addmm")
    phases = recording.manifest["iterations"]["timed_phases"]
    assert [len(phases[name]) for name in ("backward", "optimizer")] == [2, 2]
    assert any("slower than later ones" in note for note in recording.manifest["notes"])


def test_compilation_during_timing_adds_note() -> None:
    body = """
    model = net(); optimizer = sgd(model)
    step = torch.compile(lambda: model(x).sum(), backend="eager")
    step().backward(); optimizer.step()
    """
    notes = record_three_runs(body, "optimizer").manifest["notes"]
    assert sum("compiled during a measured iteration" in note for note in notes) == 1


def test_single_forward_pass_is_profiled() -> None:
    recording = record_three_runs("net()(x)", "module")
    assert recording.operators("aten::addmm")
    batch = recording.manifest["batch"]
    assert (batch["size"], batch["from"]) == (3, "input")


def test_loader_times_of_all_runs_are_merged() -> None:
    body = """
    data = torch.utils.data.DataLoader(torch.ones(3, 4), batch_size=3)
    model = net(); optimizer = sgd(model)
    for batch in data:
        model(batch).sum().backward(); optimizer.step()
    """
    recording = record_three_runs(body, "optimizer")
    assert [len(loader["fetch_ns"]) for loader in recording.manifest["loaders"]] == [2]
    assert recording.manifest["batch"]["size"] == 3


HAND_WRITTEN = {
    "torch.func.grad": """
        gradients = torch.func.grad(loss)(weights)
        weights = {name: value - 0.1 * gradients[name] for name, value in weights.items()}
    """,
    "torch.func.grad of a derivative": """
        def residual(weights):
            def value(x):
                return torch.func.functional_call(model, weights, (x,)).sum()
            return torch.func.grad(value)(x).square().sum()
        gradients = torch.func.grad(residual)(weights)
    """,
    "grad_and_value": """
        gradients, value = torch.func.grad_and_value(loss)(weights)
    """,
    "gradient descent without an optimizer": """
        model(x).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    """,
    "autograd.grad": """
        gradients = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= 0.1 * gradient
    """,
}


@pytest.mark.parametrize("method", HAND_WRITTEN)
def test_training_without_optimizer_is_found(method: str) -> None:
    setup = """
    model = net()
    weights = dict(model.named_parameters())
    def loss(weights):
        return torch.func.functional_call(model, weights, (x,)).sum()
    for step in range(40):  # the loop"""
    recording = record(SETUP + setup + HAND_WRITTEN[method])
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert (iterations["found_by"], iterations["steps_per_iteration"]) == ("backward", 1)
    assert recording.manifest["loop"] == {"file": 0, "line": recording.line_of("# the loop")}
    assert not any("forward only" in note for note in recording.manifest["notes"])


LANGUAGE_MODEL = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10)
        def forward(self, tokens, mask=None):
            return self.head(self.embedding(tokens))
    model = Model().eval()
    tokens = torch.zeros(2, 3, dtype=torch.long)
"""
# Inputs: all tokens, only the newest token (with a KV cache), or the model's context window.
GENERATION_STEPS = {
    "full": "model(tokens)",
    "cached": "model(tokens if i == 0 else tokens[:, -1:], mask=torch.ones_like(tokens))",
    "cropped": "model(tokens[:, -8:])",
}


@pytest.mark.parametrize("step", GENERATION_STEPS)
def test_generation_is_counted_in_tokens(step: str) -> None:
    body = f"""
    with torch.no_grad():
        for i in range(40):
            logits = {GENERATION_STEPS[step]}[:, -1]
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    """
    recording = record(SETUP + LANGUAGE_MODEL + body)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["iterations"]["found_by"] == "module"
    batch = recording.manifest["batch"]
    assert (batch["size"], batch["unit"]) == (2, "token")
    assert any(note.startswith("generation: ") for note in recording.manifest["notes"])


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(40): model(tokens)",
        "for i in range(40): model(torch.zeros(2, 3 + i % 5, dtype=torch.long))",
        "for tokens in torch.utils.data.DataLoader(torch.zeros(80, 1).long(), 2): model(tokens)",
    ],
)
def test_evaluation_is_counted_in_samples(loop: str) -> None:
    recording = record(SETUP + LANGUAGE_MODEL + f"    with torch.no_grad():\n        {loop}\n")
    assert recording.outcome == "complete", recording.printed
    batch = recording.manifest["batch"]
    assert batch["size"] == 2 and "unit" not in batch
    assert any(note.startswith("forward only: ") for note in recording.manifest["notes"])


def test_slow_iterations_keep_to_the_time_limit() -> None:
    # Nothing ends this process at its limit.
    recording = record(
        """
        import time
        import torch
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
            time.sleep(0.3)
        """,
        limits={"seconds": 2.5},
    )
    iterations = recording.manifest["iterations"]
    assert (len(iterations["timed_ns"]), len(iterations["profiled"])) == (1, 1)
    assert "only one was timed and one profiled" in " ".join(recording.manifest["notes"])


def test_iterations_that_become_slow_keep_to_the_time_limit() -> None:
    recording = record(
        """
        import time
        import torch
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(1000):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
            time.sleep(0.01 if step < 4 else 0.5)
        """,
        limits={"seconds": 4},
        iterations={"warmup": 2, "timed": 20, "profiled": 3},
    )
    iterations = recording.manifest["iterations"]
    assert 2 <= len(iterations["timed_ns"]) < 20
    assert len(iterations["profiled"]) == 1
    assert "were timed and one profiled" in " ".join(recording.manifest["notes"])
