"""The batch size of programs without a loader, from the inputs of their modules."""

from __future__ import annotations

import pytest
import torch

from recording import record
from ridgeline_agent.program.batch import BatchWatch

SETUP = """\
import torch
from torch import nn
x = torch.randn(3, 4)
"""


def batch_of(body: str) -> object:
    """Records a program and returns the batch in its manifest."""
    recording = record(SETUP + body)
    assert recording.outcome == "complete", recording.printed
    return recording.manifest["batch"]


def test_action_of_an_agent_is_not_the_batch() -> None:
    batch = batch_of("""
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    with torch.no_grad():
        model(x[:1])
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
""")
    assert batch == {"size": 3, "from": "input", "certain": False}


def test_layer_in_a_helper_is_called_from_several_lines() -> None:
    batch = batch_of("""
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def value(self, states):
        return self.layer(states)
critic = Critic()
optimizer = torch.optim.SGD(critic.parameters(), 0.1)
while True:
    following = torch.randn(3, 4)
    target = critic.value(following).detach()
    optimizer.zero_grad()
    (critic.value(x) - target).square().mean().backward()
    optimizer.step()
""")
    assert batch == {"size": 3, "from": "input", "certain": True}


def test_steps_of_a_recurrent_network_are_one_sample() -> None:
    batch = batch_of("""
model = nn.Bilinear(4, 2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    hidden = torch.zeros(3, 2)
    for step in range(5):
        hidden = model(x + step, hidden)
    optimizer.zero_grad()
    hidden.sum().backward()
    optimizer.step()
""")
    assert batch == {"size": 3, "from": "input", "certain": False}


def test_time_steps_of_a_sequence_are_one_sample() -> None:
    sequence = torch.ones(5, 3, 4)
    watch = BatchWatch()
    for step in sequence:
        watch.given("model", ((step,), {}))
    assert watch.json() == {"size": 3, "from": "input", "certain": False}
    stacked = torch.ones(5, 3, 1, 8, 8)
    watch = BatchWatch()
    for images in stacked:
        watch.given("model", ((images,), {}))
    assert watch.json() == {"size": 15, "from": "input", "certain": True}
    microbatches = torch.ones(15, 4)
    watch = BatchWatch()
    for start in range(0, 15, 3):
        watch.given("model", ((microbatches[start : start + 3],), {}))
    assert watch.json() == {"size": 15, "from": "input", "certain": True}


def test_a_parameter_may_be_no_sample() -> None:
    watch = BatchWatch()
    watch.given("constraint", ((torch.nn.Parameter(torch.ones(1, 1)),), {}))
    assert watch.json() == {"size": 1, "from": "input", "certain": False}


def test_inner_steps_on_tasks_of_vmap_are_one_batch() -> None:
    batch = batch_of("""
from torch.func import functional_call, grad, vmap
model = nn.Linear(4, 2)
weights = dict(model.named_parameters())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def loss(weights, samples):
    return functional_call(model, weights, (samples,)).square().mean()
def adapted(samples):
    following = weights
    for _ in range(3):
        step = grad(loss)(following, samples)
        following = {name: following[name] - 0.01 * step[name] for name in following}
    return loss(following, samples + 1)
while True:
    tasks = torch.randn(5, 3, 4)
    optimizer.zero_grad()
    vmap(adapted)(tasks).mean().backward()
    optimizer.step()
""")
    # Five tasks of three samples.
    assert batch == {"size": 15, "from": "input", "certain": False}


def test_letters_of_words_are_not_the_batch() -> None:
    batch = batch_of("""
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.letters = nn.Embedding(50, 4), nn.Embedding(30, 4)
    def forward(self, words, lengths, letters):
        return self.words(words).sum() + self.letters(letters).sum()
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
words, letters = torch.zeros(3, 7, dtype=torch.long), torch.zeros(21, 9, dtype=torch.long)
while True:
    optimizer.zero_grad()
    model(words, torch.full((3,), 7), letters).backward()
    optimizer.step()
""")
    assert batch == {"size": 3, "from": "input", "certain": False}


def test_arrays_that_the_model_converts() -> None:
    array = type("ndarray", (), {"__module__": "numpy", "ndim": 2, "shape": (3, 7)})
    vector = type("ndarray", (), {"__module__": "numpy", "ndim": 1, "shape": (7,)})
    watch = BatchWatch()
    watch.given("model", ((vector(), array(), array()), {"mask": array()}))
    assert watch.json() == {"size": 3, "from": "input", "certain": True}
    watch = BatchWatch()
    watch.given("policy", ((vector(),), {}))
    assert watch.json() == {"size": None, "from": "input", "certain": False}


def test_the_rest_of_an_epoch_is_not_the_batch() -> None:
    watch = BatchWatch()
    watch.given(("model", 1), ((torch.ones(8, 4),), {}))
    rest = watch.next_iteration()
    rest.given(("model", 1), ((torch.ones(3, 4),), {}))
    assert rest.json() == {"size": 8, "from": "input", "certain": False}
    # Another call, such as that of an evaluation.
    other = watch.next_iteration()
    other.given(("model", 2), ((torch.ones(3, 4),), {}))
    assert other.json() == {"size": 3, "from": "input", "certain": True}


def test_an_epoch_that_ended_before() -> None:
    watch = BatchWatch()
    for size in (8, 8, 3, 8):
        watch = watch.next_iteration()
        watch.given(("model", 1), ((torch.ones(size, 4),), {}))
    assert watch.json() == {"size": 8, "from": "input", "certain": True}


def test_episodes_of_different_lengths() -> None:
    watch = BatchWatch()
    for length in (3, 8, 4, 4):
        watch = watch.next_iteration()
        watch.given(("model", 1), ((torch.ones(length, 4),), {}))
    # Two equal ones in a row are not certain either: several updates may use one episode.
    assert watch.json() == {"size": 5, "from": "input", "certain": False}


def test_the_last_batch_of_a_loader() -> None:
    data = torch.utils.data.DataLoader(range(11), batch_size=8)
    loader = iter(data)
    watch = BatchWatch()
    watch.declared_by(loader)
    watch.loaded(loader, next(loader))
    rest = watch.next_iteration()
    rest.loaded(loader, next(loader))
    batch = {"size": 8, "from": "loader", "certain": True, "samples_per_epoch": 11}
    assert rest.json() == batch


@pytest.mark.parametrize(
    "collate", ["lambda samples: tuple(zip(*samples))", "lambda samples: samples"]
)
def test_images_of_different_sizes_are_not_stacked(collate: str) -> None:
    batch = batch_of(f"""
images = [torch.randn(3, 8, 8 + i) for i in range(40)]
samples = [(image, {{"boxes": torch.randn(1 + i % 3, 4)}}) for i, image in enumerate(images)]
loader = torch.utils.data.DataLoader(samples, batch_size=4, collate_fn={collate})
model = nn.Conv2d(3, 2, 3)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    for batch in loader:
        images = [part for part in torch.utils._pytree.tree_leaves(batch) if part.dim() == 3]
        optimizer.zero_grad()
        sum(model(image).sum() for image in images).backward()
        optimizer.step()
""")
    assert isinstance(batch, dict)
    assert (batch["size"], batch["from"], batch["certain"]) == (4, "loader", True)


def test_loaders_with_different_batch_sizes() -> None:
    def batch_of(*sizes: int) -> dict[str, object]:
        watch = BatchWatch()
        for size in sizes:
            loader = iter(torch.utils.data.DataLoader(range(50), batch_size=size))
            watch.declared_by(loader)
            watch.loaded(loader, next(loader))
        batch = watch.json()
        assert batch is not None
        return batch

    assert batch_of(4, 28) == {
        "size": 28,
        "from": "loaders",
        "certain": False,
        "samples_per_epoch": 50,
    }
    assert batch_of(8, 8)["certain"] is True
