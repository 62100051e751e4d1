"""The batch size of programs without a loader, from the inputs of their modules."""

from __future__ import annotations

from recording import record

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
