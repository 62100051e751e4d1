"""Recorded modules: paths, definitions and parameters, without effects on the user's objects."""

from __future__ import annotations

from typing import Any

from recording import Recording, record

IMPORTS = """
    import torch, copy
    from torch import nn
"""
TRAIN = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


def check(
    body: str, files: dict[str, str] | None = None, train: str = TRAIN, **request: Any
) -> Recording:
    """Records a program that defines `model` and `x`."""
    recording = record(IMPORTS + body + train, files, **request)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["notes"] == []
    for index, module in enumerate(recording.manifest["modules"]):
        assert module["parent"] is None or module["parent"] < index
    return recording


def paths(recording: Recording) -> dict[str, str]:
    """Module types by path."""
    return {module["path"]: module["type"] for module in recording.manifest["modules"]}


def definition(recording: Recording, path: str) -> list[tuple[str, int]]:
    """The definition of a module, with file names."""
    files = [file["path"] for file in recording.manifest["files"]]
    return [(files[file], line) for file, line in recording.module(path)["definition"]]


def test_paths_and_definitions() -> None:
    model = """
        from torch import nn
        class Block(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.linear = nn.Linear(width, width)  # linear
            def forward(self, x):
                return self.linear(x)
        class Wide(Block):
            def __init__(self):
                super().__init__(4)  # wide
        def make():
            return nn.Sequential(  # sequential
                Block(4),  # first
                Wide(),  # second
            )
    """
    recording = check(
        """
    from model import make
    model = make()  # model
    x = torch.ones(2, 4)
    """,
        {"model.py": model},
    )
    assert paths(recording) == {
        "": "Sequential",
        "0": "Block",
        "0.linear": "Linear",
        "1": "Wide",
        "1.linear": "Linear",
    }

    def location(mark: str) -> tuple[str, int]:
        return ("model.py", recording.line_of(mark, "model.py"))

    definition_line = ("train.py", recording.line_of("# model"))
    assert definition(recording, "0") == [location("# first"), definition_line]
    assert definition(recording, "0.linear") == [
        location("# linear"),
        location("# first"),
        definition_line,
    ]
    # The call of the base class constructor is not part of the definition.
    assert definition(recording, "1") == [location("# second"), definition_line]
    assert definition(recording, "1.linear") == [
        location("# linear"),
        location("# wide"),
        location("# second"),
        definition_line,
    ]
    called = [event[3] for event in recording.events() if event[1] == "MODULE_ENTER"]
    assert called == ["", "0", "0.linear", "1", "1.linear"] * 2


def test_copies_have_definition_of_original() -> None:
    recording = check("""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)  # layer
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.ones(2, 3, 8)
    """)
    definition_line = ("train.py", recording.line_of("# layer"))
    for path in ("layers.0", "layers.1", "layers.1.self_attn", "layers.0.linear1"):
        assert definition(recording, path) == [definition_line]


def test_unpickled_modules_are_defined_at_load() -> None:
    recording = check("""
    import io, pickle
    content = pickle.dumps(nn.Sequential(nn.Linear(4, 4)))
    model = pickle.loads(content)  # loaded
    x = torch.ones(2, 4)
    """)
    assert definition(recording, "0") == [("train.py", recording.line_of("# loaded"))]


def test_multiple_models_are_named_after_variables() -> None:
    recording = check(
        """
    class Trainer:
        def __init__(self):
            self.generator = nn.Linear(4, 4)
            self.discriminator = nn.Sequential(nn.Linear(4, 1))
            self.criterion = nn.MSELoss()
            parameters = [*self.generator.parameters(), *self.discriminator.parameters()]
            self.optimizer = torch.optim.Adam(parameters)
        def fit(self):
            x = torch.ones(2, 4)
            while True:
                loss = self.criterion(self.discriminator(self.generator(x)), torch.ones(2, 1))
                loss.backward()
                self.optimizer.step()
    Trainer().fit()
    """,
        train="",
    )
    assert paths(recording) == {
        "generator": "Linear",
        "discriminator": "Sequential",
        "discriminator.0": "Linear",
        "criterion": "MSELoss",
    }
    owned = {
        recording.manifest["modules"][module]["path"]: elements
        for module, elements in recording.manifest["optimizers"][0]["modules"]
    }
    assert owned == {"generator": 20, "discriminator.0": 5}


def test_parameters_without_a_gradient_are_not_updated() -> None:
    recording = check(
        """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.copied, self.used = nn.Linear(4, 4), nn.Linear(4, 4)
        def forward(self, x):
            return self.used(x)
    model = Net()
    x = torch.ones(2, 4)
    """,
        train=TRAIN.replace("SGD", "Adam"),
    )
    [optimizer] = recording.manifest["optimizers"]
    updated = [recording.manifest["modules"][module]["path"] for module, _ in optimizer["modules"]]
    assert updated == ["used"]


def test_shared_parameters_are_counted_once() -> None:
    recording = check("""
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.decode = nn.Linear(4, 5, bias=False)
            self.decode.weight = self.embed.weight
        def forward(self, x):
            return self.decode(self.embed(x))
    model = Tied()
    x = torch.zeros(3, dtype=torch.long)
    """)
    assert recording.module("embed")["parameters"] == [
        {"name": "weight", "elements": 20, "bytes": 80}
    ]
    assert recording.module("decode")["parameters"] == []


def test_lazy_modules_and_containers() -> None:
    recording = check("""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.LazyLinear(4), nn.ReLU()])
            self.named = nn.ModuleDict({"out": nn.Linear(4, 1)})
        def forward(self, x):
            for part in self.parts:
                x = part(x)
            return self.named["out"](x)
    model = Net()
    x = torch.ones(2, 3)
    model(x)
    """)
    assert paths(recording)["parts.0"] == "Linear"
    assert recording.module("parts.0")["parameters"][0]["elements"] == 12
    assert paths(recording)["named.out"] == "Linear"


def test_overridden_parameters() -> None:
    # `check` expects no note about an error in a hook.
    recording = check("""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
        def parameters(self):
            return list(self.linear.parameters())
        def forward(self, x):
            return self.linear(x)
    model = Net()
    x = torch.ones(2, 4)
    """)
    assert paths(recording) == {"": "Net", "linear": "Linear"}


def test_modules_created_in_the_forward_pass() -> None:
    recording = check("""
    class Wrapped(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.norm = inner, nn.Softmax(dim=-1)
        def forward(self, x):
            return self.norm(self.inner(x))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
        def forward(self, x):
            for _ in range(3):
                x = nn.ReLU()(Wrapped(self.linear)(x))
            return nn.ReLU()(x)
    model = Net()
    x = torch.ones(2, 4)
    """)
    assert paths(recording) == {
        "": "Net",
        "linear": "Linear",
        "Wrapped": "Wrapped",
        "Wrapped.norm": "Softmax",
        "ReLU": "ReLU",
        "ReLU_2": "ReLU",
    }


COMPILED = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
        def forward(self, x):
            return self.linear(x).relu()
    model = torch.compile(Net(), backend="aot_eager")
    x = torch.ones(2, 4)
"""


def test_compiled_model() -> None:
    recording = check(COMPILED)
    assert paths(recording) == {"": "Net", "linear": "Linear"}
    [region] = recording.manifest["compiled"]
    assert region["name"].endswith("forward")
    # The region runs compiled in the profiled iterations, without its submodules.
    called = {event[3] for event in recording.events() if event[1] == "MODULE_ENTER"}
    assert called == {""}


def test_compiled_function() -> None:
    recording = check("""
    @torch.compile(backend="aot_eager")
    def activation(x):
        return x.relu() * 2
    class Net(nn.Linear):
        def forward(self, x):
            return activation(super().forward(x))
    model = Net(4, 4)
    x = torch.ones(2, 4)
    """)
    [region] = recording.manifest["compiled"]
    assert region["name"] == "activation"


def test_eager_pass() -> None:
    recording = check(COMPILED, eager=True)
    assert recording.manifest["shares_from"] == "eager"
    assert recording.manifest["compiled"] == []
    called = {event[3] for event in recording.events() if event[1] == "MODULE_ENTER"}
    assert called == {"", "linear"}


def test_scripted_traced_and_graph_modules() -> None:
    recording = check("""
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4)))
    traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4))
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    model = nn.Sequential(scripted, traced, graph)
    x = torch.ones(2, 4)
    """)
    # The original modules may still exist and share their parameters.
    assert "RecursiveScriptModule" in paths(recording).values()


def test_phases_nest() -> None:
    recording = check(
        """
    model = nn.Linear(4, 1); x = torch.ones(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def closure():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss
    while True:
        optimizer.step(closure)
    """,
        train="",
    )
    entered = [event[3] for event in recording.events() if event[1] == "PHASE_ENTER"]
    # `Tensor.backward` calls `torch.autograd.backward`.
    assert entered == ["optimizer", "optimizer", "forward", "backward", "backward"] * 2


def test_recorder_does_not_affect_program() -> None:
    """Random numbers, gradients, copies and pickles match those of a run that is not recorded."""
    program = """
    import pickle
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    hooks = []
    model[0].register_forward_hook(lambda *a: hooks.append("forward"))
    optimizer.register_step_post_hook(lambda *a: hooks.append("step"))
    model = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range({steps}):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 4)).sum()
        loss.backward()
        grads = [id(p.grad) for p in model.parameters()]
        optimizer.step()
        same_grads = grads == [id(p.grad) for p in model.parameters()]
        print("state", step, loss.item(), torch.rand(1).item(), same_grads, sorted(vars(model)),
              sorted(vars(optimizer)), [p.sum().item() for p in model.parameters()], len(hooks),
              len(pickle.dumps(model[2])), flush=True)
"""
    iterations = {"warmup": 1, "timed": 2, "profiled": 2}
    recorded = check(program.replace("{steps}", "1000"), train="", iterations=iterations)
    never_reached = {"warmup": 1000, "timed": 1, "profiled": 1}
    unrecorded = record(IMPORTS + program.replace("{steps}", "5"), iterations=never_reached)
    assert unrecorded.outcome == "short"

    def states(recording: Recording) -> list[str]:
        return [line for line in recording.printed.splitlines() if line.startswith("state")][:4]

    assert len(states(recorded)) == 4
    assert states(recorded) == states(unrecorded)
