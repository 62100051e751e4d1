"""Detection of iterations in many kinds of programs."""

from __future__ import annotations

import os

import pytest

from recording import Recording, record
from ridgeline_agent.iterations.finder import IterationFinder, Period, Verdict
from ridgeline_agent.iterations.tracker import seconds_to_wait

SETUP = """
    import torch
    from torch import nn
    def net():
        return nn.Linear(4, 2)
    x = torch.ones(3, 4)
    def sgd(*models):
        return torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.01)
"""


def check(
    body: str,
    found_by: str = "optimizer",
    steps: int = 1,
    loop: str | None = None,
    **request: object,
) -> Recording:
    """Records a program and checks how its iterations were found. `loop` marks the loop line."""
    recording = record(SETUP + body, **request)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert iterations["found_by"] == found_by
    assert iterations["steps_per_iteration"] == steps
    expected = request.get("iterations", {"warmup": 2, "timed": 3, "profiled": 2})
    assert isinstance(expected, dict)
    assert len(iterations["timed_ns"]) == expected["timed"]
    assert len(iterations["profiled"]) == expected["profiled"]
    assert iterations["measured"] == expected["profiled"] - 1
    assert all(0 < begin < end for begin, end in iterations["profiled"])
    if loop is not None:
        assert recording.manifest["loop"] == {"file": 0, "line": recording.line_of(loop)}
    marks = [entry for entry in recording.events() if entry[1] == "ITERATION"]
    assert [entry[3] for entry in marks] == list(range(expected["profiled"] + 1))
    notes = [note for note in recording.manifest["notes"] if not note.startswith("forward only")]
    assert notes == [] or expected["profiled"] == 1
    return recording


def test_training_loop() -> None:
    check(
        """
    model = net(); optimizer = sgd(model)
    for epoch in range(3):
        for step in range(100):  # the loop
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    """,
        loop="# the loop",
    )


def test_gan_with_two_steps() -> None:
    check(
        """
    g, d = net(), net(); og, od = sgd(g), sgd(d)
    while True:  # the loop
        d(x).sum().backward(); od.step()
        g(x).sum().backward(); og.step()
    """,
        steps=2,
        loop="# the loop",
    )


def test_gan_with_loop_over_optimizers() -> None:
    check(
        """
    d, g = net(), net(); od, og = sgd(d), sgd(g)
    for i in range(100):  # the loop
        d(x).sum().backward()
        od.step()
        for optimizer in [od, og]:
            g(x).sum().backward()
            optimizer.step()
    """,
        steps=3,
        loop="# the loop",
    )


def test_gan_with_five_critic_steps() -> None:
    check(
        """
    g, d = net(), net(); og, od = sgd(g), sgd(d)
    while True:
        for i in range(5):
            d(x).sum().backward(); od.step()
        g(x).sum().backward(); og.step()
    """,
        steps=6,
        iterations={"warmup": 1, "timed": 1, "profiled": 2},
    )


def test_optimizer_that_never_steps() -> None:
    check("""
    a, b = net(), net(); oa, ob = sgd(a), sgd(b)
    while True:
        a(x).sum().backward(); oa.step()
    """)


def test_optimizer_wrapper() -> None:
    check("""
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner
        def step(self, closure=None):
            self.inner.step()
    model = net(); optimizer = Lookahead(sgd(model))
    for i in range(8):
        model(x).sum().backward(); optimizer.step()
    """)


def test_gradient_accumulation() -> None:
    recording = check("""
    data = torch.utils.data.DataLoader(torch.ones(400, 4), batch_size=5)
    model = net(); optimizer = sgd(model)
    for i, batch in enumerate(data):
        model(batch).sum().backward()
        if i % 4 == 3:
            optimizer.step(); optimizer.zero_grad()
    """)
    assert recording.manifest["batch"] == {
        "size": 20,
        "from": "loader",
        "certain": True,
        "samples_per_epoch": 400,
    }


def test_lbfgs() -> None:
    check("""
    model = net(); optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    def closure():
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        return loss
    while True:
        optimizer.step(closure)
    """)


def test_optimizers_that_step_in_backward_hooks() -> None:
    """The profiler starts and stops after the backward pass. Within it, the process crashes."""
    check(
        """
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), net())
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for step in range(100):  # the loop
        model(x).sum().backward()
    """,
        loop="# the loop",
    )


def test_requested_detection_by_backward_with_steps_in_hooks() -> None:
    finder = IterationFinder("backward")
    assert finder.stepped_in_backward(1, set()) is Verdict.BOUNDARY


def test_a_step_in_a_hook_and_one_after_it() -> None:
    check(
        """
    model, head = net(), nn.Linear(2, 1)
    first, last = sgd(model), sgd(head)
    model.bias.register_post_accumulate_grad_hook(lambda parameter: first.step())
    while True:  # the loop
        head(model(x)).sum().backward()
        last.step()
    """,
        steps=2,
        loop="# the loop",
    )


def test_modules_that_a_backward_pass_calls_are_no_iterations() -> None:
    check(
        """
    from torch.utils.checkpoint import checkpoint
    layers = [nn.Linear(4, 4) for _ in range(20)]
    y = x.clone().requires_grad_()
    while True:  # the loop
        z = checkpoint(lambda z: [z := layer(z) for layer in layers][-1], y, use_reentrant=False)
        z.sum().backward()
    """,
        found_by="backward",
        loop="# the loop",
    )


def test_step_with_closure_and_scheduler() -> None:
    check("""
    model = net(); optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    class Trainer:
        def training_step(self, batch):
            return model(batch).sum()
        def fit(self):
            while True:
                def closure():
                    optimizer.zero_grad()
                    loss = self.training_step(x)
                    loss.backward()
                    return loss
                optimizer.step(closure)
                scheduler.step()
    Trainer().fit()
    """)


def test_grad_scaler_that_skips_steps() -> None:
    check("""
    model = net(); optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    for i in range(7):
        scaler.scale(model(x).sum() * (float("inf") if i in (1, 3) else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    """)


def test_step_that_raises() -> None:
    check("""
    model = net(); optimizer = sgd(model)
    def closure():
        raise ValueError
    while True:
        try:
            optimizer.step(closure)
        except ValueError:
            pass
        model(x).sum().backward(); optimizer.step()
    """)


def test_gradient_descent_without_optimizer() -> None:
    check(
        """
    weight = torch.ones(4, requires_grad=True)
    for i in range(1000):
        (x @ weight).sum().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
            weight.grad = None
    """,
        found_by="backward",
    )


def test_autograd_grad() -> None:
    check(
        """
    weight = torch.ones(4, requires_grad=True)
    while True:
        gradient, = torch.autograd.grad((x @ weight).sum(), weight)
        weight = (weight - 0.1 * gradient).detach().requires_grad_()
    """,
        found_by="backward",
    )


def test_inference() -> None:
    recording = check(
        """
    model = nn.Sequential(net(), nn.ReLU()).eval()
    with torch.inference_mode():
        while True:
            model(x)
    """,
        found_by="module",
    )
    assert recording.manifest["batch"] == {"size": 3, "from": "input", "certain": True}


def test_inference_with_two_models() -> None:
    check(
        """
    encoder, decoder = net().eval(), nn.Linear(2, 4).eval()
    with torch.no_grad():
        for i in range(100):
            decoder(encoder(x))
    """,
        found_by="module",
        steps=2,
    )


def test_validation_before_training() -> None:
    check("""
    model = net(); optimizer = sgd(model)
    with torch.no_grad():
        for i in range(20):
            model(x)
    while True:
        model(x).sum().backward(); optimizer.step()
    """)


@pytest.mark.parametrize("gradients", ["no_grad", "enable_grad"])
def test_many_forward_passes_before_first_step(gradients: str) -> None:
    check(
        f"""
    model = net(); optimizer = sgd(model)
    while True:
        for i in range(200):
            with torch.{gradients}():
                y = model(x)
        for i in range(8):  # the loop
            model(x).sum().backward(); optimizer.step()
    """,
        loop="# the loop",
    )


@pytest.mark.parametrize("loop", ["while True:", "for i in range(200):"])
def test_inference_with_unused_optimizer(loop: str) -> None:
    check(
        f"""
    model = net(); optimizer = sgd(model)
    with torch.no_grad():
        {loop}
            model(x)
    """,
        found_by="module",
        limits={"seconds": 4},
    )


def test_requested_detection_by_module() -> None:
    check(
        """
    model = net(); optimizer = sgd(model)
    while True:
        model(x)
    """,
        found_by="module",
        iterations={"warmup": 2, "timed": 3, "profiled": 2, "found_by": "module"},
    )


def test_actors_in_threads_do_not_train() -> None:
    check(
        """
    import threading
    model, is_acting = net(), threading.Event()
    optimizer = sgd(model)
    def act():
        while True:
            with torch.no_grad():
                model(x[:1])
            is_acting.set()
    threading.Thread(target=act, daemon=True).start()
    is_acting.wait()
    while True:                               # loop
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    """,
        loop="loop",
    )


def test_step_in_a_thread() -> None:
    check("""
    import threading
    def train():
        model = net(); optimizer = sgd(model)
        while True:
            model(x).sum().backward(); optimizer.step()
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    """)


TRAINING_LOOP = """
    model = net(); optimizer = sgd(model)
    for i in range({count}):
        optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
"""


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_iterations(count: int) -> None:
    recording = record(SETUP + TRAINING_LOOP.format(count=count))
    assert recording.outcome == "short"
    assert recording.manifest["status"] == "short"
    assert recording.manifest["iterations"]["seen"] == count
    assert not (recording.folder / "trace.json").exists()


def test_program_that_ends_during_profiling() -> None:
    recording = record(SETUP + TRAINING_LOOP.format(count=6))
    assert recording.outcome == "complete"
    assert len(recording.manifest["iterations"]["profiled"]) == 1


@pytest.mark.parametrize("count", [2, 3])
def test_requested_few_iterations(count: int) -> None:
    expected = {"warmup": count - 2, "timed": 1, "profiled": 1}
    recording = check(TRAINING_LOOP.format(count=count), iterations=expected)
    assert recording.operators("aten::addmm")


def timed_iterations(body: str, profiled: int = 1) -> list[int]:
    """Records a program with three to six timed iterations and returns their times."""
    request = {"warmup": 2, "timed": 3, "timed_at_most": 6, "profiled": 1}
    recording = record(SETUP + body, iterations=request)
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert len(iterations["profiled"]) == profiled
    # Memory is always measured in the first profiled iteration.
    assert iterations["measured"] == 0
    return list(iterations["timed_ns"])


def loop_with_times(milliseconds: str, count: int = 100) -> str:
    """A loop with simulated iteration times."""
    loop = TRAINING_LOOP.format(count=count)
    return loop.replace("optimizer.zero_grad()", f"iteration_ms = {milliseconds}")


def test_more_iterations_are_timed_if_quick() -> None:
    # Enough iterations for a total of 0.1 s.
    assert timed_iterations(loop_with_times("21")) == [21_000_000] * 5


@pytest.mark.parametrize(
    ("count", "timed", "profiled"),
    [(60, 37, 1 + 6), (2 + 6 + 1 + 6 + 8 + 10, 10, 1 + 6), (2 + 6 + 1 + 3, 6, 1 + 3)],
)
def test_more_quick_iterations_are_timed_and_profiled(
    count: int, timed: int, profiled: int
) -> None:
    assert len(timed_iterations(loop_with_times("1", count), profiled)) == timed


def test_more_iterations_are_timed_if_unequal() -> None:
    # A period of two iterations, which is profiled completely.
    times = timed_iterations(loop_with_times("200 if i % 2 else 40"), profiled=2)
    assert times == [200_000_000, 40_000_000] * 4


def test_no_more_iterations_are_timed_if_long_and_equal() -> None:
    assert len(timed_iterations(loop_with_times("300"))) == 3


def test_an_evaluation_that_was_profiled_is_replaced() -> None:
    """Two are warm-up, three are timed, and the second profiled one has the evaluation."""
    body = """
    import time
    model = net(); optimizer = sgd(model)
    for i in range(100):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        time.sleep(0.5 if i == 5 else 0.06)
    """
    request = {"warmup": 2, "timed": 3, "timed_at_most": 3, "profiled": 2}
    recording = record(SETUP + body, iterations=request)
    assert recording.outcome == "complete", recording.printed
    profiled = recording.manifest["iterations"]["profiled"]
    assert len(profiled) == 2
    assert max(end - begin for begin, end in profiled) < 0.4e9


def test_period_is_used_after_first_round() -> None:
    period = Period()
    verdicts = [period.add(symbol, symbol == "a") for symbol in "ab" * 2]
    assert verdicts == [Verdict.NOTHING, Verdict.BOUNDARY] * 2


def test_period_stops_restarting() -> None:
    period = Period()
    verdicts = [period.add(symbol, False) for symbol in "abaabbbabaabababbbaaabab"]
    assert verdicts.count(Verdict.RESTART) == 4
    assert verdicts[-3:] == [Verdict.BOUNDARY] * 3


def test_optimizer_step_takes_precedence_over_backward() -> None:
    finder = IterationFinder(None)
    assert finder.went_backward(1) is Verdict.BOUNDARY
    assert finder.stepped("a", 2, {"a"}) is Verdict.RESTART
    assert finder.went_backward(1) is Verdict.NOTHING
    assert finder.stepped("a", 2, {"a"}) is Verdict.BOUNDARY


def test_backward_passes_within_a_step_are_no_iterations() -> None:
    finder = IterationFinder(None)
    finder.optimizer_created()
    verdicts = {finder.went_backward(1, within_step=True) for _ in range(200)}
    assert verdicts == {Verdict.NOTHING}
    assert finder.stepped("a", 2, {"a"}) is Verdict.BOUNDARY
    finder = IterationFinder(None)
    finder.hurry(20.0)
    assert finder.went_backward(1, within_step=True) is Verdict.BOUNDARY


def test_a_step_that_does_not_end_has_an_iteration_for_each_evaluation() -> None:
    finder = IterationFinder(None)
    finder.optimizer_created()
    verdicts = []
    for _ in range(200):
        finder.called("net", 1, True)
        finder.called("net", 2, True)
        verdicts += [finder.went_backward(place, within_step=True) for place in (1, 2, 3)]
    assert finder.found_by == "backward"
    boundaries = [at for at, verdict in enumerate(verdicts) if verdict is Verdict.BOUNDARY]
    assert boundaries[0] == 511
    assert {later - earlier for earlier, later in zip(boundaries[1:], boundaries[2:])} == {3}


def test_modules_that_make_the_data_are_no_iterations() -> None:
    check(
        """
    class Field(nn.Module):
        def forward(self, y):
            return -y
    field, y, data = Field(), x, []
    with torch.no_grad():
        for _ in range(200):
            y = y + 0.1 * field(y)
            data.append(y)
    model = net(); optimizer = sgd(model)
    for y in data:  # the loop
        optimizer.zero_grad()
        model(y).sum().backward()
        optimizer.step()
    """,
        loop="# the loop",
    )


def test_a_higher_time_limit_waits_longer_for_training() -> None:
    assert seconds_to_wait(None) == seconds_to_wait(60.0) == seconds_to_wait(120.0) == 20.0
    assert seconds_to_wait(10.0) == 4.0
    assert seconds_to_wait(600.0) == 500.0


def test_without_a_step_in_time_forward_passes_are_iterations() -> None:
    finder = IterationFinder(None)
    finder.optimizer_created()
    for _ in range(5):
        assert finder.called("model", 1, training=False) is Verdict.NOTHING
    finder.hurry(24.0)
    assert finder.called("model", 1, training=False) is Verdict.BOUNDARY
    assert finder.seconds_waited == 24.0
    # The validation was over in time after all.
    assert finder.stepped("a", 2, {"a"}) is Verdict.RESTART
    assert finder.seconds_waited is None
    # It was the warm-up of a capture, or in a forked child the time of its parent.
    finder.reset()
    for _ in range(5):
        assert finder.called("model", 1, training=False) is Verdict.NOTHING


def test_many_calls_before_the_first_step() -> None:
    check(
        """
    model = net(); optimizer = sgd(model)
    for _ in range(300):
        with torch.no_grad():
            model(x)
    while True:  # the loop
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    """,
        loop="# the loop",
    )


def test_slow_iterations_have_one_of_warm_up() -> None:
    recording = record(
        SETUP
        + """
    import time
    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2)
        def forward(self, x):
            time.sleep(0.5)
            return self.inner(x)
    model = Slow(); optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    """,
        limits={"seconds": 2},
    )
    assert recording.outcome == "complete", recording.printed
    assert len(recording.manifest["iterations"]["timed_ns"]) == 1
    assert any("one iteration of warm-up" in note for note in recording.manifest["notes"])


def check_optimizer_phase(body: str, methods: list[str]) -> Recording:
    """Checks that each call of an optimizer method is entirely within one optimizer phase."""
    recording = check(body)
    base = int(recording.trace()["baseTimeNanoseconds"])
    spans: list[tuple[int, int]] = []
    entered: list[int] = []
    for time_ns, kind, _, name, _ in recording.events():
        if name == "optimizer" and kind == "PHASE_ENTER":
            entered.append(time_ns)
        elif name == "optimizer":
            spans.append((entered.pop(), time_ns))
    # torch records each call in the trace, including its hooks.
    events = recording.trace()["traceEvents"]
    calls = [event for event in events if "Optimizer." in event.get("name", "")]
    calls.sort(key=lambda call: float(call["ts"]))
    assert [call["name"].split("#")[0] for call in calls] == methods * 2
    for call in calls:
        begin = base + call["ts"] * 1000
        end = begin + call["dur"] * 1000
        assert any(first <= begin and end <= last for first, last in spans), call
    return recording


def test_step_and_zero_grad_are_the_optimizer_phase() -> None:
    check_optimizer_phase(
        """
    model = net(); optimizer = torch.optim.AdamW(model.parameters())
    while True:
        optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
    """,
        ["Optimizer.zero_grad", "Optimizer.step"],
    )


def test_phase_of_custom_optimizer() -> None:
    recording = check_optimizer_phase(
        """
    class Plain(torch.optim.SGD):
        def zero_grad(self, set_to_none=True):
            torch.empty(77)
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        def step(self, closure=None):
            return super().step(closure)
    sgd(net())
    model = net(); optimizer = Plain(model.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
    """,
        ["Optimizer.step", "Optimizer.step"],
    )
    operators = recording.operators("aten::empty")
    marks = [op for op in operators if op["args"]["Concrete Inputs"][0] == "[77]"]
    assert len(marks) == 2
    for mark in marks:
        time_ns = recording.time_of(mark)
        before = [
            event for event in recording.events() if event[0] <= time_ns and "PHASE" in event[1]
        ]
        assert before[-1][1:4:2] == ("PHASE_ENTER", "optimizer")


def test_copied_optimizer() -> None:
    check("""
    import copy
    model, optimizer = copy.deepcopy((lambda model: (model, sgd(model)))(net()))
    while True:
        model(x).sum().backward(); optimizer.step()
    """)


def test_optimizer_in_compiled_function() -> None:
    recording = record(
        SETUP
        + """
    model = net(); optimizer = sgd(model)
    @torch.compile(backend="eager")
    def step():
        optimizer.step()
    for i in range(40):
        model(x).sum().backward()
        step()
    """
    )
    assert recording.outcome == "complete", recording.printed


def test_waiting_for_the_cpu_is_counted() -> None:
    recording = record(
        """
        import torch
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(20):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        """
    )
    iterations = recording.manifest["iterations"]
    waited_ns = iterations["timed_waited_ns"]
    if os.path.exists("/proc/thread-self/schedstat"):
        assert len(waited_ns) == len(iterations["timed_ns"])
    assert all(waited >= 0 for waited in waited_ns)


def test_derivatives_in_the_loss_are_no_iterations() -> None:
    """A validation before training has many, none of which an optimizer step follows."""
    check(
        """
    model = net()
    optimizer = sgd(model)
    def loss():
        y = x.clone().requires_grad_()
        u = model(y).sum()
        for order in range(3):
            u = torch.autograd.grad((y * u).sum(), y, create_graph=True)[0].sum()
        return u
    for validation in range(300):
        loss()
    while True:  # the loop
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    """,
        loop="# the loop",
    )


@pytest.mark.parametrize("create", ["optimizer = sgd(model)", ""])
def test_forces_that_a_model_computes_are_no_iterations(create: str) -> None:
    """The gradient within the model's call is part of its forward pass."""
    check(
        f"""
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
        def forward(self, positions):
            positions = positions.clone().requires_grad_()
            energy = self.net(positions).sum()
            return energy, torch.autograd.grad(energy, positions, retain_graph=True)[0]
    model = Energy()
    {create}
    for validation in range(40):
        model(x)
    optimizer = sgd(model)
    while True:  # the loop
        optimizer.zero_grad()
        model(x)[0].backward()
        optimizer.step()
    """,
        loop="# the loop",
    )


def test_gradients_before_the_optimizer_is_created_are_no_iterations() -> None:
    check(
        """
    model = net()
    for validation in range(40):
        y = x.clone().requires_grad_()
        torch.autograd.grad(model(y).sum(), y)
    optimizer = sgd(model)
    while True:  # the loop
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    """,
        loop="# the loop",
    )


def test_second_order_descent_without_optimizer() -> None:
    """The gradients are stored in the parameters, so this is not part of a forward pass."""
    check(
        """
    model = net()
    while True:  # the loop
        model(x).square().sum().backward(create_graph=True)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
    """,
        found_by="backward",
        loop="# the loop",
    )


def test_inference_with_forces() -> None:
    check(
        """
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
        def forward(self, positions):
            positions = positions.clone().requires_grad_()
            return torch.autograd.grad(self.net(positions).sum(), positions)[0]
    model = Energy()
    positions = x
    while True:  # the loop
        positions = positions - 0.1 * model(positions)
    """,
        found_by="module",
        loop="# the loop",
    )
