"""Evaluations during training that are reported in `observed.evaluations`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_driver import Agent, manifest
from observed_helpers import ITERATIONS, START, observed, record_complete


def evaluation(source: str, files: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    """The only evaluation, which must be on the line marked `# here`."""
    recording = record_complete(source, files, **request)
    (result,) = recording.manifest["observed"]["evaluations"]
    file = next(
        name for name, text in {"train.py": source, **(files or {})}.items() if "# here" in text
    )
    assert recording.manifest["files"][result["at"]["file"]]["path"] == file
    assert result["at"]["line"] == recording.line_of("# here", file)
    return dict(result)


def test_validation_with_grad_in_training_mode() -> None:
    result = evaluation(
        START
        + """
    while True:
        train()
        for _ in range(2):
            out = net(batch())  # here
        accuracy = (out.argmax(1) == 0).float().mean().item()
    """
    )
    assert result["with_gradients"] and result["in_training_mode"]
    # Two iterations are observed: the warm-up iterations after the first boundary.
    assert result["calls"] == 4


@pytest.mark.parametrize("context", ["no_grad", "inference_mode"])
def test_validation_in_eval_mode_without_grad(context: str) -> None:
    result = evaluation(
        START
        + f"""
    while True:
        train()
        net.eval()
        with torch.{context}():
            net(batch())  # here
        net.train()
    """
    )
    assert not result["with_gradients"] and not result["in_training_mode"]


def test_layers_without_training_mode() -> None:
    result = evaluation(
        START
        + """
    plain = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.LayerNorm(8))
    while True:
        train()
        plain(batch())  # here
    """
    )
    assert result["with_gradients"] and not result["in_training_mode"]


FUNCTIONAL_DROPOUT = """
    class Noisy(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.dropout = p
        def forward(self, x):
            return nn.functional.dropout(x, self.dropout, training=self.training)
    plain = nn.Sequential(nn.Linear(4, 8), Noisy(PROBABILITY))
    while True:
        train()
        plain(batch())  # here
"""


@pytest.mark.parametrize(("p", "expected"), [("0.1", True), ("0.0", False)])
def test_functional_dropout(p: str, expected: bool) -> None:
    result = evaluation(START + FUNCTIONAL_DROPOUT.replace("PROBABILITY", p))
    assert result["in_training_mode"] is expected


PERIODIC_VALIDATION = {
    "after each epoch": """
    while True:
        for x in DataLoader(torch.randn(20, 4), batch_size=4):
            train()
        with torch.no_grad():
            for _ in range(2):
                net(batch())  # here
    """,
    "after some steps": """
    for step in range(100):
        train()
        if step % 5 == 4:
            for x in DataLoader(torch.randn(8, 4), batch_size=4):
                net(x)  # here
    """,
}


@pytest.mark.parametrize("timed", [2, 4])
@pytest.mark.parametrize("when", PERIODIC_VALIDATION)
def test_validation_after_warm_up(when: str, timed: int) -> None:
    # The first validation is in the sixth iteration, which is timed or profiled.
    source = START + "    from torch.utils.data import DataLoader\n" + PERIODIC_VALIDATION[when]
    result = evaluation(source, iterations={**ITERATIONS, "timed": timed})
    assert result["calls"] == 2 and result["in_training_mode"]
    assert result["with_gradients"] is (when == "after some steps")


def test_frozen_batch_norm_in_training_mode() -> None:
    result = evaluation(
        START
        + """
    other[1].eval()
    while True:
        train()
        with torch.no_grad():
            other(batch())  # here
    """
    )
    assert not result["in_training_mode"]


def test_teacher_and_frozen_model() -> None:
    recording = record_complete(
        START
        + """
    import copy
    teacher = copy.deepcopy(net).eval()
    frozen = copy.deepcopy(other).requires_grad_(False).eval()
    while True:
        x = batch()
        with torch.no_grad():
            target = teacher(x)
        second = frozen(x)
        optimizer.zero_grad()
        ((net(x) - target) ** 2 + (net(x) - second) ** 2).mean().backward()
        optimizer.step()
    """
    )
    result = recording.manifest["observed"]["evaluations"]
    assert len(result) == 2
    assert not any(entry["with_gradients"] or entry["in_training_mode"] for entry in result)


def test_gan_with_shared_generator_output() -> None:
    result = observed(
        """
    import torch
    from torch import nn
    generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    critic = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    g_optimizer = torch.optim.Adam(generator.parameters())
    c_optimizer = torch.optim.Adam(critic.parameters())
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(6, 1), torch.zeros(6, 1)
    while True:
        fake = generator(torch.randn(6, 3))
        c_optimizer.zero_grad()
        loss = criterion(critic(torch.randn(6, 4)), ones) + criterion(critic(fake.detach()), zeros)
        loss.backward()
        c_optimizer.step()
        g_optimizer.zero_grad()
        criterion(critic(fake), ones).backward()
        g_optimizer.step()
    """
    )
    assert result["evaluations"] == []


def test_gan_that_discards_generator_graph() -> None:
    result = evaluation(
        """
    import torch
    from torch import nn
    generator, critic = nn.Linear(3, 4), nn.Linear(4, 1)
    g_optimizer = torch.optim.Adam(generator.parameters())
    c_optimizer = torch.optim.Adam(critic.parameters())
    while True:
        fake = generator(torch.randn(6, 3)).detach()  # here
        c_optimizer.zero_grad()
        (critic(fake) - critic(torch.randn(6, 4))).mean().backward()
        c_optimizer.step()
        g_optimizer.zero_grad()
        critic(generator(torch.randn(6, 3))).mean().backward()
        g_optimizer.step()
    """
    )
    assert result["with_gradients"]


SHARED_STEP = (
    START
    + """
    def step(x):
        return net(x).square().mean()
    def both(x):
        return step(x) + 1
    def train_epoch():
        optimizer.zero_grad()
        both(batch()).backward()
        optimizer.step()
"""
)


@pytest.mark.parametrize("step", ["step", "both"])
def test_validation_through_shared_step(step: str) -> None:
    result = evaluation(
        SHARED_STEP
        + f"""
    def validate():
        return sum({step}(batch()).item() for _ in range(2))  # here
    while True:
        train_epoch()
        validate()
    """
    )
    assert result["with_gradients"] and result["in_training_mode"]
    assert result["calls"] == 4


def test_validation_through_shared_step_without_grad() -> None:
    result = evaluation(
        SHARED_STEP
        + """
    @torch.no_grad()
    def validate():
        net.eval()
        step(batch())  # here
        net.train()
    while True:
        train_epoch()
        validate()
    """
    )
    assert not result["with_gradients"] and not result["in_training_mode"]


def test_training_and_validation_on_same_lines() -> None:
    """Calls with and without a backward pass on the same lines are not reported."""
    result = observed(
        SHARED_STEP
        + """
    def run(trains):
        loss = step(batch())
        if trains:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    def pair():
        return step(batch()) - step(batch()).detach()
    while True:
        for trains in (True, False):
            run(trains)
        pair().backward()
    """
    )
    assert result["evaluations"] == []


USED_IN_BACKWARD = {
    "gradient accumulation": """
        for _ in range(4):
            (net(batch()).mean() / 4).backward()
    """,
    "losses of two models": """
        (net(batch()).mean() + other(batch()).mean()).backward()
    """,
    "a gradient penalty": """
        x = batch().requires_grad_()
        out = net(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        slope.square().sum().backward()
    """,
    "a backward pass much later": """
        outs = [net(batch()) for _ in range(5)]
        torch.stack([out.mean() for out in outs]).sum().backward()
    """,
    "one of several outputs": """
        first, rest = both(batch())
        rest["rest"][0].mean().backward()
    """,
    "a loss stored on the model": """
        keeper(batch())
        keeper.loss.backward()
    """,
    "a reentrant checkpoint": """
        from torch.utils.checkpoint import checkpoint
        checkpoint(net, batch().requires_grad_(), use_reentrant=True).mean().backward()
    """,
    "a checkpoint": """
        from torch.utils.checkpoint import checkpoint
        checkpoint(net, batch(), use_reentrant=False).mean().backward()
    """,
    "torch.func": """
        def loss(weights):
            return torch.func.functional_call(net, weights, (batch(),)).mean()
        weights = {name: weight.detach() for name, weight in net.named_parameters()}
        gradients = torch.func.grad(loss)(weights)
        for name, weight in net.named_parameters():
            weight.grad = gradients[name]
    """,
    "forward-mode AD": """
        def loss(x):
            return torch.func.functional_call(net, dict(net.named_parameters()), (x,)).mean()
        _, slope = torch.func.jvp(loss, (batch(),), (batch(),))
        net(batch()).mean().mul(slope.detach()).backward()
    """,
    "a distribution": """
        policy = torch.distributions.Categorical(logits=net(batch()))
        (-policy.log_prob(policy.sample())).mean().backward()
    """,
    "a module that returns a distribution": """
        (-chooser(batch()).logits).mean().backward()
    """,
    "a graph that is still referenced": """
        kept.append(net(batch()))
        net(batch()).mean().backward()
    """,
    "a line with and without backward": """
        for use in (True, False):
            out = net(batch()).mean()
            if use:
                out.backward()
    """,
    "autocast and a GradScaler": """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(batch()).float().mean()
        scaler.scale(loss).backward()
    """,
    "an output that is not a tensor": """
        counter(batch())
        net(batch()).mean().backward()
    """,
    "a module that returns a parameter": """
        (holder() * batch()).mean().backward()
    """,
}

MODULES = """
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 2)
        def forward(self, x):
            return self.first(x), {"rest": [self.second(x)]}
    class Keeper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2)
        def forward(self, x):
            out = self.inner(x)
            self.loss = out.mean()
            return out.argmax(1)
    class Chooser(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2)
        def forward(self, x):
            return torch.distributions.Categorical(logits=self.inner(x))
    class Counter(nn.Linear):
        def forward(self, x):
            return len(x)
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
        def forward(self):
            return self.weight
    both, keeper, chooser, counter, holder = Both(), Keeper(), Chooser(), Counter(4, 2), Holder()
    kept = []
    scaler = torch.amp.GradScaler("cpu", enabled=False)
"""


@pytest.mark.parametrize("name", USED_IN_BACKWARD)
def test_calls_used_in_backward(name: str) -> None:
    source = (
        START
        + MODULES
        + "    while True:\n        optimizer.zero_grad()"
        + USED_IN_BACKWARD[name].rstrip()
    )
    result = observed(source + "\n        optimizer.step()\n")
    assert result["evaluations"] == []


def test_calls_before_loop_are_ignored() -> None:
    result = observed(
        START
        + """
    print(net(batch()).shape)
    for _ in range(5):
        other(batch())
    while True:
        train()
    """
    )
    assert result["evaluations"] == []


def test_gradient_that_stops_at_model_output() -> None:
    """The graph of the model is unused, although its output has a gradient."""
    result = evaluation(
        START
        + """
    while True:
        train()
        out = net(batch())  # here
        torch.autograd.grad(out.square().sum(), out)
    """
    )
    assert result["with_gradients"]


def test_evaluation_in_another_file() -> None:
    source = START.replace("import torch\n", "import torch\n    from score import score\n", 1)
    result = evaluation(
        source
        + """
    while True:
        train()
        score()
    """,
        {
            "score.py": """
    import torch
    model = torch.nn.Linear(4, 2)
    def score():
        return model(torch.ones(3, 4)).argmax(1)  # here
    """
        },
    )
    assert result["with_gradients"]


def test_graphs_are_freed() -> None:
    """The recorder must not keep tensors alive that the program has released."""
    recording = record_complete(
        START
        + """
    import weakref
    while True:
        train()
        out = net(batch())
        saved = out.grad_fn
        watched = weakref.ref(out)
        del out, saved
        assert watched() is None
    """
    )
    assert recording.manifest["observed"]["evaluations"]


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
        model(inputs)
    return iteration
"""


@pytest.mark.parametrize("evaluates", [True, False])
def test_provider(agent: Agent, tmp_path: Path, evaluates: bool) -> None:
    text = PROVIDER if evaluates else PROVIDER.replace("        model(inputs)\n", "")
    (tmp_path / "entry_point.py").write_text(text)
    entry = {"kind": "provider", "path": str(tmp_path / "entry_point.py")}
    started = agent.start_entry(tmp_path, entry, iterations=ITERATIONS)
    assert agent.wait_for("finished", id=started)["outcome"] == "complete"
    result = manifest(tmp_path)["observed"]["evaluations"]
    # The first iteration does not count as warm-up: the provider is only detected at its end.
    assert [(entry["at"]["line"], entry["calls"]) for entry in result] == [(12, 3)] * evaluates
