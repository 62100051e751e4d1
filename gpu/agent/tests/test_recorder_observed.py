"""What a recording tells of the program's habits: right programs must say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from recording import Recording, record

ITERATIONS = {"warmup": 3, "timed": 2, "profiled": 2}

START = """
    import torch
    from torch import nn
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    other = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    def batch():
        return torch.randn(6, 4)
    def train():
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        optimizer.step()
"""


def recorded(source: str, files: dict[str, str] | None = None, **request: Any) -> Recording:
    recording = record(source, files, **{"iterations": ITERATIONS, **request})
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["notes"] == [], recording.manifest["notes"]
    return recording


def observed(source: str, files: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    found: dict[str, Any] = recorded(source, files, **request).manifest["observed"]
    return found


def evaluation(source: str, files: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    """The one evaluation, which stands at the line with the mark `# here`."""
    recording = recorded(source, files, **request)
    (found,) = recording.manifest["observed"]["evaluations"]
    file = next(
        name for name, text in {"train.py": source, **(files or {})}.items() if "# here" in text
    )
    assert recording.manifest["files"][found["at"]["file"]]["path"] == file
    assert found["at"]["line"] == recording.line_of("# here", file)
    return dict(found)


def test_a_plain_loop_has_nothing_to_say() -> None:
    found = observed(START + "    while True:\n        train()\n")
    assert found == {
        "evaluations": [],
        "recompilations": [],
        "graph_breaks": [],
        "padding": [],
        "profilers": [],
        "line_times": [],
        "gpu": None,
        "distributed": None,
    }


def test_validation_with_gradients_in_training_mode() -> None:
    found = evaluation(
        START
        + """
    while True:
        train()
        for _ in range(2):
            out = net(batch())  # here
        accuracy = (out.argmax(1) == 0).float().mean().item()
    """
    )
    assert found["with_gradients"] and found["in_training_mode"]
    # Two iterations are looked at: those after the first boundary that warm up.
    assert found["calls"] == 4


@pytest.mark.parametrize("context", ["no_grad", "inference_mode"])
def test_validation_as_it_should_be(context: str) -> None:
    found = evaluation(
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
    assert not found["with_gradients"] and not found["in_training_mode"]


def test_layers_that_are_the_same_in_both_modes() -> None:
    found = evaluation(
        START
        + """
    plain = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.LayerNorm(8))
    while True:
        train()
        plain(batch())  # here
    """
    )
    assert found["with_gradients"] and not found["in_training_mode"]


def test_frozen_parts_of_a_model_in_training_mode() -> None:
    found = evaluation(
        START
        + """
    other[1].eval()
    while True:
        train()
        with torch.no_grad():
            other(batch())  # here
    """
    )
    assert not found["in_training_mode"]


def test_a_teacher_a_target_and_an_average_without_gradients() -> None:
    recording = recorded(
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
    found = recording.manifest["observed"]["evaluations"]
    assert len(found) == 2
    assert not any(one["with_gradients"] or one["in_training_mode"] for one in found)


def test_a_gan_whose_generator_serves_both_steps() -> None:
    found = observed(
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
    assert found["evaluations"] == []


def test_a_gan_that_throws_a_graph_away() -> None:
    found = evaluation(
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
    assert found["with_gradients"]


USED = {
    "accumulation": """
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
    "one of several results": """
        first, rest = both(batch())
        rest["rest"][0].mean().backward()
    """,
    "a loss that the model keeps to itself": """
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
        found = torch.func.grad(loss)({name: one.detach() for name, one in net.named_parameters()})
        for name, one in net.named_parameters():
            one.grad = found[name]
    """,
    "a distribution": """
        policy = torch.distributions.Categorical(logits=net(batch()))
        (-policy.log_prob(policy.sample())).mean().backward()
    """,
    "a module that gives a distribution": """
        (-chooser(batch()).logits).mean().backward()
    """,
    "a graph that is still there": """
        kept.append(net(batch()))
        net(batch()).mean().backward()
    """,
    "a line that has both": """
        for use in (True, False):
            out = net(batch()).mean()
            if use:
                out.backward()
    """,
    "autocast and a scaler": """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(batch()).float().mean()
        scaler.scale(loss).backward()
    """,
    "a result that is no tensor": """
        counter(batch())
        net(batch()).mean().backward()
    """,
    "a parameter that a module gives": """
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


@pytest.mark.parametrize("name", USED)
def test_what_a_backward_pass_used(name: str) -> None:
    source = (
        START + MODULES + "    while True:\n        optimizer.zero_grad()" + USED[name].rstrip()
    )
    found = observed(source + "\n        optimizer.step()\n")
    assert found["evaluations"] == []


def test_what_came_before_the_loop_does_not_count() -> None:
    found = observed(
        START
        + """
    print(net(batch()).shape)
    for _ in range(5):
        other(batch())
    while True:
        train()
    """
    )
    assert found["evaluations"] == []


def test_a_gradient_that_stops_at_the_model() -> None:
    """The model's own graph serves nobody here, though the result has a gradient."""
    found = evaluation(
        START
        + """
    while True:
        train()
        out = net(batch())  # here
        torch.autograd.grad(out.square().sum(), out)
    """
    )
    assert found["with_gradients"]


def test_a_call_in_another_file() -> None:
    source = START.replace("import torch\n", "import torch\n    from score import score\n", 1)
    found = evaluation(
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
    assert found["with_gradients"]


def test_graphs_are_freed_as_without_us() -> None:
    """A tensor that the program has let go of must be gone, looked at or not."""
    recording = recorded(
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
