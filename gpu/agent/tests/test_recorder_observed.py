"""What a recording tells of the program's habits: right programs must say nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_driver import Agent, manifest
from recording import Recording, record
from ridgeline_agent.patches.hooks import compiles_with
from ridgeline_agent.record.observed.line_times import iterations_to_time
from ridgeline_agent.record.switched_off import anomaly_detection, rounds

ITERATIONS = {"warmup": 3, "timed": 2, "profiled": 2}

START = """
    import torch
    from torch import nn
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    other = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    iteration_ms = 1
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
        "switched_off": [],
        "line_times": [],
        "line_times_disturbed": False,
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


DROPOUT_BY_FUNCTION = """
    class Noisy(nn.Module):
        def __init__(self, share):
            super().__init__()
            self.dropout = share
        def forward(self, x):
            return nn.functional.dropout(x, self.dropout, training=self.training)
    plain = nn.Sequential(nn.Linear(4, 8), Noisy(SHARE))
    while True:
        train()
        plain(batch())  # here
"""


@pytest.mark.parametrize(("share", "matters"), [("0.1", True), ("0.0", False)])
def test_dropout_by_a_function(share: str, matters: bool) -> None:
    found = evaluation(START + DROPOUT_BY_FUNCTION.replace("SHARE", share))
    assert found["in_training_mode"] is matters


NOW_AND_THEN = {
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
@pytest.mark.parametrize("when", NOW_AND_THEN)
def test_validation_after_the_warm_up(when: str, timed: int) -> None:
    # The first comes with the sixth iteration, which is a timed or a profiled one.
    source = START + "    from torch.utils.data import DataLoader\n" + NOW_AND_THEN[when]
    found = evaluation(source, iterations={**ITERATIONS, "timed": timed})
    assert found["calls"] == 2 and found["in_training_mode"]
    assert found["with_gradients"] is (when == "after some steps")


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


SHARED = (
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
def test_validation_through_a_function_that_trains(step: str) -> None:
    found = evaluation(
        SHARED
        + f"""
    def validate():
        return sum({step}(batch()).item() for _ in range(2))  # here
    while True:
        train_epoch()
        validate()
    """
    )
    assert found["with_gradients"] and found["in_training_mode"]
    assert found["calls"] == 4


def test_validation_through_a_function_that_trains_without_gradients() -> None:
    found = evaluation(
        SHARED
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
    assert not found["with_gradients"] and not found["in_training_mode"]


def test_a_line_from_which_another_call_is_used() -> None:
    """Training and validation, or what is used and what is not, on the same lines all the way."""
    found = observed(
        SHARED
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
    assert found["evaluations"] == []


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
    "a forward derivative": """
        def loss(x):
            return torch.func.functional_call(net, dict(net.named_parameters()), (x,)).mean()
        _, slope = torch.func.jvp(loss, (batch(),), (batch(),))
        net(batch()).mean().mul(slope.detach()).backward()
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


def place(recording: Recording, mark: str) -> dict[str, int]:
    """The line of `train.py` that holds the mark."""
    files = [file["path"] for file in recording.manifest["files"]]
    return {"file": files.index("train.py"), "line": recording.line_of(mark)}


def test_a_profiler_of_torch_that_was_left_on() -> None:
    recording = recorded(
        START
        + """
    with torch.profiler.profile() as profiler:  # here
        while True:
            train()
            profiler.step()
    """
    )
    found = recording.manifest["observed"]["profilers"]
    assert found == [{"name": "torch.profiler", "at": place(recording, "# here")}]
    assert recording.operators("aten::addmm"), "ours records in its place"


def test_a_profiler_with_a_schedule_does_not_disturb_ours() -> None:
    recording = recorded(
        START
        + """
    schedule = torch.profiler.schedule(wait=3, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        while True:
            train()
            profiler.step()
    """
    )
    # It is off where the timing begins.
    assert recording.manifest["observed"]["profilers"] == []
    assert recording.operators("aten::addmm")


def test_cprofile_that_was_left_on() -> None:
    recording = recorded(
        START
        + """
    import cProfile
    profile = cProfile.Profile()
    profile.enable()  # here
    while True:
        train()
    """
    )
    found = recording.manifest["observed"]["profilers"]
    assert found == [{"name": "cProfile", "at": place(recording, "# here")}]


def test_tracing_that_was_left_on() -> None:
    recording = recorded(
        START
        + """
    import sys
    # sys.settrace(None) would end it
    sys.settrace(lambda frame, event, argument: None)  # here
    while True:
        train()
    """
    )
    found = recording.manifest["observed"]["profilers"]
    assert found == [{"name": "sys.settrace", "at": place(recording, "# here")}]


def turns(recording: Recording) -> list[str]:
    """What was switched off, with iterations that ran with it and without."""
    found = recording.manifest["observed"]["switched_off"]
    for one in found:
        assert len(one["without_ns"]) == 10 and min(one["without_ns"]) > 0
        assert len(one["with_ns"]) == len(one["without_ns"]) or one["name"] == "torch.profiler"
    return [one["name"] for one in found]


STATE = """
    def state():
        monitoring = getattr(sys, "monitoring", None)
        profiles = sys.getprofile() or (monitoring and monitoring.get_tool(monitoring.PROFILER_ID))
        on = {"cProfile": profiles, "sys.settrace": sys.gettrace() is trace,
              "anomaly": torch.is_anomaly_enabled()}
        print("on", sorted(name for name, is_on in on.items() if is_on), flush=True)
"""


def test_what_was_left_on_is_switched_off_by_turns() -> None:
    recording = recorded(
        START
        + "    import cProfile, sys\n"
        + STATE
        + """
    def trace(frame, event, argument):
        return None
    sys.settrace(trace)
    torch.autograd.set_detect_anomaly(True)
    profile = cProfile.Profile()
    profile.enable()
    while True:
        train()
        state()
    """
    )
    assert sorted(turns(recording)) == ["anomaly", "cProfile", "sys.settrace"]
    states = [line[3:] for line in recording.printed.splitlines() if line.startswith("on ")]
    # Of the last iteration only its end is seen.
    round = [
        ["anomaly", "cProfile", "sys.settrace"],
        ["anomaly", "cProfile"],
        ["anomaly", "sys.settrace"],
        ["cProfile", "sys.settrace"],
    ]
    last = states[-12:]
    assert sorted(set(last)) == sorted(str(one) for one in round)
    assert last[:4] * 3 == last, "by turns"
    assert recording.manifest["settings"]["anomaly"], "at the end it is as the program had it"


def test_a_profiler_that_cannot_be_turned_on_again() -> None:
    recording = recorded(
        START
        + """
    with torch.profiler.profile() as profiler:
        while True:
            train()
            profiler.step()
    """
    )
    assert turns(recording) == ["torch.profiler"]
    (found,) = recording.manifest["observed"]["switched_off"]
    assert found["with_ns"] == recording.manifest["iterations"]["timed_ns"]


@pytest.mark.parametrize("end", ["break", "raise RuntimeError('late')"])
def test_a_program_that_ends_while_something_is_switched_off(end: str) -> None:
    recording = recorded(
        START
        + f"""
    torch.autograd.set_detect_anomaly(True)
    for step in range(1000):
        train()
        if step == 11:
            {end}
    """
    )
    assert recording.manifest["status"] == "complete"
    (found,) = recording.manifest["observed"]["switched_off"]
    # Three warm up, two are timed and two profiled.
    assert (len(found["with_ns"]), len(found["without_ns"])) == (3, 2)


def test_a_busy_machine_makes_any_line_vary() -> None:
    waited = "iter([0, 10**12]).__next__"
    program = START + VARYING.replace("lambda: 0", waited)
    recording = recorded(program, iterations={"warmup": 2, "timed": 6, "profiled": 2})
    found = recording.manifest["observed"]
    assert found["line_times"] and found["line_times_disturbed"] is True
    assert recording.manifest["iterations"]["seen"] == 2 + 6 + 2 + 24


@pytest.mark.parametrize(
    ("timed_ms", "seconds_left", "wanted"),
    [
        ([1, 1, 1], None, 10),
        ([50, 50, 50], None, 5),
        ([1000, 1000], None, 3),
        ([1700, 1700], None, 0),
        ([1000, 1000], 20.0, 0),
        ([], None, 0),
    ],
)
def test_how_often_something_is_switched_off(
    timed_ms: list[int], seconds_left: float | None, wanted: int
) -> None:
    timed_ns = [took * 1_000_000 for took in timed_ms]
    assert rounds(timed_ns, [anomaly_detection()], seconds_left) == wanted
    assert rounds(timed_ns, [], seconds_left) == 0


def test_profilers_that_were_turned_off() -> None:
    found = observed(
        START
        + """
    import cProfile, sys
    profile = cProfile.Profile()
    profile.enable()
    sys.settrace(lambda frame, event, argument: None)
    with torch.profiler.profile():
        train()
    sys.settrace(None)
    profile.disable()
    while True:
        train()
    """
    )
    assert found["profilers"] == []


PADDED = """
    import torch
    from torch import nn
    class Net(nn.Module):
        def __init__(self, padding_idx):
            super().__init__()
            self.words = nn.Embedding(50, 4, padding_idx=padding_idx)
            self.out = nn.Linear(4, 2)
        def forward(self, tokens, attention_mask=None):
            return self.out(self.words(tokens))  # embedding
    def tokens(lengths, longest=10):
        rows = torch.randint(1, 50, (len(lengths), longest))
        for row, length in zip(rows, lengths):
            row[length:] = 0
        return rows
"""
TRAIN_PADDED = """
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        {call}.mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("batch", ["tokens([10, 4, 6])", "tokens([10, 4, 6]).t().contiguous()"])
def test_padding_of_an_embedding(batch: str) -> None:
    train = TRAIN_PADDED.format(call=f"net({batch})")
    recording = recorded(PADDED + "    net = Net(0)" + train)
    (found,) = recording.manifest["observed"]["padding"]
    assert found.pop("at") == place(recording, "# embedding")
    assert recording.manifest["modules"][found.pop("module")]["path"] == "words"
    assert found == {"tokens": 2 * 30, "padding": 2 * 10, "by": "padding_idx"}


@pytest.mark.parametrize(
    "batch", ["tokens([3, 3, 3]).flip(1)", "tokens([9, 9, 9]).roll(4, 1)", "tokens([10, 10, 10])"]
)
def test_zeros_that_do_not_end_their_row(batch: str) -> None:
    train = TRAIN_PADDED.format(call=f"net({batch})")
    (found,) = observed(PADDED + "    net = Net(0)" + train)["padding"]
    assert (found["tokens"], found["padding"]) == (60, 0)


def test_an_embedding_without_padding_says_nothing() -> None:
    found = observed(
        PADDED + "    net = Net(None)" + TRAIN_PADDED.format(call="net(tokens([3, 3]))")
    )
    assert found["padding"] == []


def test_padding_by_a_mask() -> None:
    train = TRAIN_PADDED.format(
        call="net(tokens([10, 5]), attention_mask=(tokens([10, 5]) != 0).long())"
    )
    (found,) = observed(PADDED + "    net = Net(None)" + train)["padding"]
    assert (found["module"], found["tokens"], found["padding"]) == (0, 2 * 20, 2 * 5)
    # Also where it is given by its place.
    by_place = train.replace("attention_mask=", "")
    (again,) = observed(PADDED + "    net = Net(None)" + by_place)["padding"]
    assert again == found and found["by"] == "mask"
    # Where the embedding tells, the mask does not count again.
    (found,) = observed(PADDED + "    net = Net(0)" + train)["padding"]
    assert found["module"] != 0 and found["padding"] == 2 * 5


@pytest.mark.parametrize("batch", ["{0}", "{0}.t().contiguous()"])
def test_padding_that_nothing_names(batch: str) -> None:
    call = batch.format("tokens([10, 4, 6, 5, 4])")
    recording = recorded(PADDED + "    net = Net(None)" + TRAIN_PADDED.format(call=f"net({call})"))
    (found,) = recording.manifest["observed"]["padding"]
    assert found.pop("at") == place(recording, "# embedding")
    assert recording.manifest["modules"][found.pop("module")]["path"] == "words"
    assert found == {"tokens": 2 * 50, "padding": 2 * 21, "by": "ends"}


@pytest.mark.parametrize(
    "batch",
    [
        "tokens([10, 10, 10, 10])",
        "torch.zeros(4, 10, dtype=torch.long)",
        # It stands elsewhere as well.
        "tokens([10, 4, 6, 5, 4]).roll(1, 1)",
        # All rows are of one length, or one of them is empty.
        "tokens([4, 4, 4, 4])",
        "tokens([10, 4, 6, 0, 4])",
        # Each batch has another.
        "torch.where(tokens([10, 4, 6, 5, 4]) == 0, next(numbers) % 40, 49)",
        "torch.arange(10).repeat(5, 1)",
    ],
)
def test_ends_of_rows_that_are_no_padding(batch: str) -> None:
    train = "    import itertools\n    numbers = itertools.count()\n    net = Net(None)"
    train += TRAIN_PADDED.format(call=f"net({batch})")
    assert observed(PADDED + train)["padding"] == []


def test_segments_are_no_padding() -> None:
    net = "    net = Net(None)\n    net.words = nn.Embedding(2, 4)"
    call = "net((tokens([10, 4, 6, 5, 4]) == 0).long())"
    assert observed(PADDED + net + TRAIN_PADDED.format(call=call))["padding"] == []


def test_a_causal_mask_is_no_padding() -> None:
    train = TRAIN_PADDED.format(
        call="net(tokens([9, 9]), attention_mask=torch.zeros(2, 9).fill_(float('-inf')).triu(1))"
    )
    assert observed(PADDED + "    net = Net(None)" + train)["padding"] == []


LOADER = """
    import torch
    from torch.utils.data import DataLoader, Dataset
    class Data(Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return torch.randn(4), {"label": index}
    class Loader(DataLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_passes_through_a_loader() -> None:
    recording = recorded(
        LOADER
        + """
    loader = Loader(Data(), batch_size=4)  # here
    while True:
        for x, _ in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
    """
    )
    (loader,) = recording.manifest["loaders"]
    assert loader["at"] == place(recording, "# here")
    # 3 + 2 + 2 iterations of two batches a pass.
    assert loader["passes"] == 4 and len(loader["first_batch_ns"]) == 4
    assert len(loader["end_ns"]) == 3, "the last pass was not gone through"
    assert loader["distinct_shapes"] == 1


def test_batches_of_different_shapes() -> None:
    recording = recorded(
        LOADER
        + """
    data = Data()
    def collate(samples):
        return [{"x": torch.randn(len(samples), 2 + len(samples))}]
    while True:
        for (batch,) in DataLoader(data, batch_size=3, collate_fn=collate):
            optimizer.zero_grad()
            model(batch["x"][:, :1].expand(-1, 4)).mean().backward()
            optimizer.step()
    """
    )
    (loader,) = recording.manifest["loaders"]
    # Three samples, three, and two.
    assert (loader["passes"], loader["distinct_shapes"]) == (3, 2)


def test_recompilations_and_graph_breaks() -> None:
    recording = recorded(
        START
        + """
    @torch.compile(backend="eager", dynamic=False)
    def forward(x):  # again
        y = net(x)
        print("a line")  # break
        return y.relu()
    size = 3
    while True:
        size = min(size + 1, 6)
        optimizer.zero_grad()
        forward(torch.randn(size, 4)).mean().backward()
        optimizer.step()
    """
    )
    (again,) = recording.manifest["observed"]["recompilations"]
    assert again["at"] == place(recording, "# again")
    assert again["count"] == 2 and again["time_ns"] > 0
    assert "size mismatch" in again["reason"]
    (broken,) = recording.manifest["observed"]["graph_breaks"]
    assert broken["at"] == place(recording, "# break")
    assert broken["count"] == 3 and "print" in broken["reason"]
    assert "a line" not in str(recording.manifest["observed"])


def test_what_a_graph_break_makes_of_a_function() -> None:
    recording = recorded(
        START
        + """
    def watch(y):
        if y.max().item() > 3:  # break
            y = y * 2
        return y
    @torch.compile(backend="eager")
    def forward(x):
        return watch(net(x)).relu()
    while True:
        optimizer.zero_grad()
        forward(torch.randn(3, 4)).mean().backward()
        optimizer.step()
    """
    )
    broken, *_ = recording.manifest["observed"]["graph_breaks"]
    assert broken["at"] == place(recording, "# break")
    ran = {event.get("name", "") for event in recording.trace()["traceEvents"]}
    regions = {re.match(r"Torch-Compiled Region: (\d+)/", name) for name in ran}
    numbers = {int(one[1]) for one in regions if one}
    # Since 2.5 the trace has them by the numbers that Dynamo gave them.
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5):
        # `watch` by itself and what follows in it, and the rest of `forward`, which begins with 0.
        assert len(numbers) >= 3 and set(broken["frames"]) == numbers - {0}


def test_a_compiled_module_is_compiled_as_without_the_recorder() -> None:
    recording = recorded(
        START
        + """
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net
        def forward(self, x):
            x = self.inner(x)
            print("broken")
            return self.inner(x.repeat(1, 2))
    compiled = torch.compile(Two(), backend="eager")
    while True:
        optimizer.zero_grad()
        compiled(torch.randn(3, 4)).mean().backward()
        optimizer.step()
    """
    )
    ran = {event.get("name", "") for event in recording.trace()["traceEvents"]}
    regions = {re.match(r"Torch-Compiled Region: (\d+)/", name) for name in ran}
    # What stands before the break and behind it. Older versions of torch cannot leave the
    # recorder's function out, or give no numbers.
    if compiles_with is not None:
        assert {int(one[1]) for one in regions if one} == {0, 1}


@pytest.mark.parametrize("compiled", ["torch.compile(net, backend='eager')", "net"])
def test_what_is_compiled_once(compiled: str) -> None:
    found = observed(
        START
        + f"""
    compiled = {compiled}
    net.compile(backend="eager")
    while True:
        optimizer.zero_grad()
        compiled(batch()).mean().backward()
        optimizer.step()
    """
    )
    assert found["recompilations"] == [] and found["graph_breaks"] == []
    assert found["evaluations"] == []


# What else this machine does is left out.
VARYING = """
    import time
    from ridgeline_agent.record.observed import line_times
    line_times._waited_ns = lambda: 0
    line_times.are_page_faults = lambda ends: False
    number = 0
    def wait():
        time.sleep(0.05 if number % 3 == 0 else 0.005)  # here
    while True:
        number += 1
        iteration_ms = 50 if number % 3 == 0 else 5
        train()
        wait()  # call
"""


def test_a_line_that_varies() -> None:
    recording = recorded(START + VARYING, iterations={"warmup": 2, "timed": 6, "profiled": 2})
    found = {
        (line["at"]["file"], line["at"]["line"]): line["ns"]
        for line in recording.manifest["observed"]["line_times"]
    }
    file = place(recording, "# here")["file"]
    slept = found[file, recording.line_of("# here")]
    # What ran before: warm-up, timing and the profile.
    numbers = range(2 + 6 + 2, 2 + 6 + 2 + 24)
    assert len(slept) == len(numbers)
    assert all(ns >= (50e6 if at % 3 == 0 else 5e6) for at, ns in zip(numbers, slept))
    assert recording.manifest["observed"]["line_times_disturbed"] is False
    # The line that calls it has its own time alone, so it is not always the slower one.
    called = found[file, recording.line_of("# call")]
    assert any(own_ns < slept_ns for own_ns, slept_ns in zip(called, slept))
    assert len(recording.manifest["iterations"]["profiled"]) == 2


@pytest.mark.parametrize(
    ("timed_ms", "seconds_left", "wanted"),
    [
        ([10, 11, 10, 10], None, 0),
        # One alone is what every machine has.
        ([10, 10, 10, 10, 10, 90], None, 0),
        ([10, 14, 10, 14], None, 24),
        # Half of them are slow, so that the median is.
        ([10, 20, 10, 20, 20, 20], None, 24),
        ([100, 100, 140, 140], None, 8),
        ([70, 70, 70, 100, 100], None, 12),
        ([1000, 1000, 1000, 1400, 1400], None, 8),
        ([2000, 2000, 2000, 2900, 2900], None, 0),
        ([1000, 1000, 1000, 1400, 1400], 30.0, 0),
        ([10, 20, 30], None, 0),
        ([0, 0, 0, 0], None, 0),
    ],
)
def test_how_many_more_iterations_are_looked_at(
    timed_ms: list[int], seconds_left: float | None, wanted: int
) -> None:
    timed_ns = [took * 1_000_000 for took in timed_ms]
    assert iterations_to_time(timed_ns, seconds_left) == wanted


def test_iterations_that_do_not_vary_are_not_looked_at_again() -> None:
    recording = recorded(START + "    while True:\n        train()\n")
    # Two timed ones say too little.
    assert recording.manifest["observed"]["line_times"] == []
    assert recording.manifest["iterations"]["seen"] == 7


@pytest.mark.parametrize("end", ["break", "raise RuntimeError('late')"])
@pytest.mark.parametrize(("last", "wanted"), [(14, 0), (19, 9)])
def test_a_program_that_ends_while_lines_are_looked_at(end: str, last: int, wanted: int) -> None:
    ends = f"number += 1\n        if number > {last}:\n            {end}"
    program = START + VARYING.replace("number += 1", ends)
    recording = recorded(program, iterations={"warmup": 2, "timed": 6, "profiled": 2})
    assert recording.manifest["status"] == "complete"
    found = recording.manifest["observed"]["line_times"]
    assert all(len(line["ns"]) == wanted for line in found) and bool(found) == (wanted > 0)


DISTRIBUTED = (
    START
    + """
    import torch.distributed
    from torch.nn.parallel import DistributedDataParallel
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    ranked = DistributedDataParallel(net)
    while True:
        optimizer.zero_grad()
        for step in range(4):
            with CONTEXT:
                (ranked(batch()).mean() / 4).backward()
        optimizer.step()
        with torch.no_grad():
            ranked(batch())
"""
)


@pytest.mark.parametrize(
    ("context", "exchanges"),
    [
        ("torch.enable_grad()", 8),
        ("torch.enable_grad() if step == 3 else ranked.no_sync()", 2),
    ],
)
def test_exchanges_of_one_rank(context: str, exchanges: int) -> None:
    recording = recorded(DISTRIBUTED.replace("CONTEXT", context))
    found = recording.manifest["observed"]["distributed"]
    (model,) = found.pop("models")
    assert found == {"rank": 0, "world_size": 1, "backend": "gloo"}
    module = recording.manifest["modules"][model.pop("module")]
    assert module["type"] == "DistributedDataParallel"
    assert model == {"backwards": 8, "exchanges": exchanges, "steps": 2}


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
def test_a_provider(agent: Agent, tmp_path: Path, evaluates: bool) -> None:
    text = PROVIDER if evaluates else PROVIDER.replace("        model(inputs)\n", "")
    (tmp_path / "entry_point.py").write_text(text)
    entry = {"kind": "provider", "path": str(tmp_path / "entry_point.py")}
    started = agent.start_entry(tmp_path, entry, iterations=ITERATIONS)
    assert agent.wait_for("finished", id=started)["outcome"] == "complete"
    found = manifest(tmp_path)["observed"]["evaluations"]
    # The first iteration is none that warms up: only its end tells that there is a provider.
    assert [(one["at"]["line"], one["calls"]) for one in found] == [(12, 3)] * evaluates
