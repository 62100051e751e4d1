"""Observations about programs in general, their data loaders and distributed training."""

from __future__ import annotations

import pytest

from observed_helpers import START, observed, place, record_complete


def test_training_loop_without_observations() -> None:
    result = observed(START + "    while True:\n        train()\n")
    assert result == {
        "evaluations": [],
        "recompilations": [],
        "graph_breaks": [],
        "padding": [],
        "profilers": [],
        "switched_off": [],
        "line_times": [],
        "line_times_disturbed": False,
        "fast_lines": [],
        "gpu": None,
        "distributed": None,
    }


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


def test_loader_passes() -> None:
    recording = record_complete(
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
    # 3 + 2 + 2 iterations, with two batches per pass.
    assert loader["passes"] == 4 and len(loader["first_batch_ns"]) == 4
    assert len(loader["end_ns"]) == 3, "the last pass did not finish"
    assert loader["distinct_shapes"] == 1


def test_batches_with_different_shapes() -> None:
    recording = record_complete(
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
    # Batches of three, three and two samples.
    assert (loader["passes"], loader["distinct_shapes"]) == (3, 2)


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
    ("context", "all_reduces"),
    [
        ("torch.enable_grad()", 8),
        ("torch.enable_grad() if step == 3 else ranked.no_sync()", 2),
    ],
)
def test_distributed_data_parallel(context: str, all_reduces: int) -> None:
    recording = record_complete(DISTRIBUTED.replace("CONTEXT", context))
    result = recording.manifest["observed"]["distributed"]
    (model,) = result.pop("models")
    assert result == {"rank": 0, "world_size": 1, "backend": "gloo"}
    module = recording.manifest["modules"][model.pop("module")]
    assert module["type"] == "DistributedDataParallel"
    assert model == {"backwards": 8, "exchanges": all_reduces, "steps": 2}
