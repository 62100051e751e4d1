"""Memory: the baseline and the profiler's events match values calculated by hand."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from recording import Recording, record
from ridgeline_agent.program.batch import samples_in


def replay(recording: Recording) -> tuple[int, dict[int, int]]:
    """The peak of the measured iteration in bytes, and the allocations alive at its end."""
    trace = recording.trace()
    base = int(trace.get("baseTimeNanoseconds", 0))
    manifest = recording.manifest
    begin, end = manifest["iterations"]["profiled"][manifest["iterations"]["measured"]]
    alive = {entry["ptr"]: entry["bytes"] for entry in manifest["memory"]["baseline"]}
    peak = sum(alive.values())
    changes = [event for event in trace["traceEvents"] if event.get("name") == "[memory]"]
    for event in sorted(changes, key=lambda change: change["args"]["Ev Idx"]):
        if begin <= base + event["ts"] * 1000 <= end:
            if event["args"]["Bytes"] > 0:
                alive[event["args"]["Addr"]] = event["args"]["Bytes"]
            else:
                alive.pop(event["args"]["Addr"], None)
            peak = max(peak, sum(alive.values()))
    return peak, alive


def by_kind(recording: Recording) -> Counter[str]:
    """Bytes allocated before the step, by kind."""
    kinds: Counter[str] = Counter()
    for entry in recording.manifest["memory"]["baseline"]:
        kinds[entry["kind"]] += entry["bytes"]
    return kinds


def test_peak_of_single_tensor_program() -> None:
    recording = record("""
        import torch
        weight = torch.nn.Parameter(torch.ones(1000))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        def iteration():
            optimizer.zero_grad()
            a = torch.ones(100_000)     # 400 kB
            b = a * 2                   # 400 kB
            del a
            c = b * weight.sum()        # 400 kB, and b is saved for backward
            c.sum().backward()          # 400 kB for b times the gradient, in addition to b and c
            optimizer.step()
        while True:
            iteration()
    """)
    assert recording.outcome == "complete", recording.printed
    peak, alive = replay(recording)
    # At the peak: b, c, the product, the weight and its momentum. Scalars take under 100 bytes.
    assert 0 <= peak - (3 * 400_000 + 2 * 4_000) < 100
    assert by_kind(recording) == {
        "weight": 4_000,
        "gradient": 4_000,
        "optimizer_state": 4_000,
        "other": 2 * 400_000,
    }
    # At the end of the step: the weight, its gradient and its momentum, b and c.
    assert 0 <= sum(alive.values()) - (2 * 400_000 + 3 * 4_000) < 100


def test_peak_of_model() -> None:
    recording = record("""
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(100, 1000), nn.Sigmoid(), nn.Linear(1000, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(500, 100)
        def iteration():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        while True:
            iteration()
    """)
    peak, _ = replay(recording)
    weights = 4 * (100 * 1000 + 1000 + 1000 + 1)
    # The peak is in sigmoid's backward: its output, and the gradients of its output and input, each
    # 500 x 1000. The gradients of the second layer already exist.
    expected = weights + 4 * 500 * 100 + 3 * 4 * 500 * 1000 + 4 * 1001
    assert 0 <= peak - expected < 4 * 500 * 2, peak - expected


def test_kinds() -> None:
    recording = record("""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(10, 20)
                self.norm = nn.BatchNorm1d(20)
            def forward(self, x):
                return self.norm(self.linear(x))
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        table = torch.ones(1000)
        while True:
            for batch in DataLoader([torch.ones(10) for _ in range(6)], batch_size=3):
                model(batch).sum().backward()
                optimizer.step()
    """)
    kinds = by_kind(recording)
    weights = 4 * (10 * 20 + 20 + 20 + 20)
    assert kinds["weight"] == weights
    assert kinds["gradient"] == weights
    # Two moments, and a step counter of four bytes for each of the four parameters.
    assert kinds["optimizer_state"] == 2 * weights + 4 * 4
    assert kinds["buffer"] == 4 * 20 * 2 + 8
    # The table, six samples and the last batch, but nothing from the previous iteration.
    assert 4 * 1000 + 6 * 40 <= kinds["other"] <= 4 * 1000 + 6 * 40 + 1000
    memory = recording.manifest["memory"]
    assert memory["device"] == "cpu"
    assert [entry["bytes"] for entry in memory["batch"]] == [3 * 10 * 4]
    assert sum(entry["bytes"] for entry in memory["gradients"]) == weights
    norm = recording.manifest["modules"].index(recording.module("norm"))
    norm_weights = [e for e in memory["baseline"] if e["kind"] == "weight" and e["module"] == norm]
    assert sorted(entry["name"] for entry in norm_weights) == ["bias", "weight"]
    state = [e for e in memory["baseline"] if e["kind"] == "optimizer_state"]
    assert all(entry["module"] is not None for entry in state)
    assert recording.manifest["notes"] == []


def test_gradients_freed_before_step() -> None:
    recording = record("""
        import torch
        weight = torch.nn.Parameter(torch.ones(1000))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        model = torch.nn.Linear(10, 10)
        while True:
            model(torch.ones(10)).sum().backward()
            model.zero_grad()
            weight.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """)
    sizes = {entry["bytes"] for entry in recording.manifest["memory"]["gradients"]}
    assert sizes >= {400, 40}


def test_nested_batches() -> None:
    recording = record("""
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Texts(Dataset):
            def __len__(self):
                return 1000
            def __getitem__(self, index):
                return {"tokens": torch.ones(7), "meta": [torch.ones(2), "text"], "id": index}
        def time_first(samples):
            batch = torch.utils.data.default_collate(samples)
            return {"tokens": batch["tokens"].t(), "meta": (batch["meta"], batch["id"])}
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Texts(), batch_size=4, collate_fn=time_first):
            model(batch["tokens"]).sum().backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["batch"] == {
        "size": 4,
        "from": "loader",
        "certain": True,
        "samples_per_epoch": 1000,
    }
    sizes = sorted(entry["bytes"] for entry in recording.manifest["memory"]["batch"])
    assert sizes == [4 * 2 * 4, 4 * 8, 4 * 7 * 4]


def test_input_size_that_differs_from_loader_is_uncertain() -> None:
    recording = record("""
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        (x,) = next(iter(DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=8)))
        while True:
            model(torch.cat([x, -x])).sum().backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["batch"] == {"size": 16, "from": "input", "certain": False}


def test_workers_and_iterable_datasets() -> None:
    recording = record("""
        import torch
        from torch.utils.data import DataLoader, IterableDataset
        class Endless(IterableDataset):
            def __iter__(self):
                while True:
                    yield torch.ones(4)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Endless(), batch_size=6, num_workers=2):
            model(batch).sum().backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["batch"] == {
        "size": 6,
        "from": "loader",
        "certain": True,
        "samples_per_epoch": None,
    }
    assert recording.manifest["notes"] == []
    assert [entry["bytes"] for entry in recording.manifest["memory"]["batch"]] == [6 * 4 * 4]


def test_weights_without_module_and_optimizer() -> None:
    recording = record("""
        import torch
        w1 = torch.randn(64, 256, requires_grad=True)
        w2 = torch.randn(256, 1, requires_grad=True)
        while True:
            x = torch.randn(512, 64)
            (torch.relu(x @ w1) @ w2).square().mean().backward()
            with torch.no_grad():
                for w in (w1, w2):
                    w -= 1e-6 * w.grad
                    w.grad = None
    """)
    kinds = by_kind(recording)
    weights = 4 * (64 * 256 + 256)
    assert kinds["weight"] == weights
    # Iterations end with the backward pass, when the gradients still exist.
    assert kinds["gradient"] == weights
    memory = recording.manifest["memory"]
    assert sorted(entry["bytes"] for entry in memory["gradients"]) == [4 * 256, 4 * 64 * 256]
    named = {e["name"]: e["bytes"] for e in memory["baseline"] if e["kind"] == "weight"}
    assert named == {"w1": 4 * 64 * 256, "w2": 4 * 256}


def test_tensors_passed_to_optimizer() -> None:
    recording = record("""
        import torch
        def train():
            image = torch.zeros(3, 100, requires_grad=True)
            points = [torch.nn.Parameter(torch.zeros(50)) for _ in range(2)]
            optimizer = torch.optim.Adam([{"params": [image]}, {"params": points}])
            while True:
                optimizer.zero_grad()
                (image.sum() + sum(point.sum() for point in points)).backward()
                optimizer.step()
        train()
    """)
    assert recording.outcome == "complete", recording.printed
    weights = 4 * (300 + 2 * 50)
    kinds = by_kind(recording)
    assert (kinds["weight"], kinds["gradient"]) == (weights, weights)
    assert kinds["optimizer_state"] == 2 * weights + 3 * 4
    entries = recording.manifest["memory"]["baseline"]
    assert {e["name"] for e in entries if e["kind"] == "weight"} == {"image", None}
    assert all(entry["module"] is None for entry in entries)


@pytest.mark.skipif(torch.__version__.startswith("2.4."), reason="not supported by torch 2.4")
def test_dtensor_weights() -> None:
    recording = record("""
        import os, tempfile
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
        store = dist.FileStore(tempfile.mktemp(), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))
        model = torch.nn.Sequential(torch.nn.Linear(100, 50, bias=False))
        parallelize_module(model, mesh, {"0": ColwiseParallel()})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        while True:
            model(torch.ones(8, 100)).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    """)
    assert recording.outcome == "complete", recording.printed
    kinds = by_kind(recording)
    sizes = {kind: kinds[kind] for kind in ("weight", "gradient", "optimizer_state")}
    assert sizes == {"weight": 20_000, "gradient": 20_000, "optimizer_state": 20_000}
    baseline = recording.manifest["memory"]["baseline"]
    assert [entry["name"] for entry in baseline if entry["kind"] == "weight"] == ["weight"]


def test_inputs_that_require_grad_are_not_weights() -> None:
    recording = record("""
        import torch
        model = torch.nn.Linear(10, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            x = torch.randn(500, 10, requires_grad=True)
            model(x).sum().backward()
            optimizer.step()
    """)
    kinds = by_kind(recording)
    assert kinds["weight"] == 4 * 11
    # The input of the previous iteration, which the variable still references.
    assert kinds["other"] >= 4 * 500 * 10


def test_batch_that_is_reused() -> None:
    recording = record("""
        import torch
        model = torch.nn.Linear(10, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, table = torch.ones(500, 10), torch.ones(700)
        while True:
            model(x).sum().backward()
            optimizer.step()
    """)
    kinds = by_kind(recording)
    assert kinds["batch"] == 4 * 500 * 10
    assert kinds["other"] >= 4 * 700


def check_batch_size(body: str, size: int | None) -> None:
    """Checks the batch size of a program with `body` as the iteration."""
    recording = record(f"""
        import torch
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
        x = torch.ones(64, 4)
        def loss(batch):
            optimizer.zero_grad()
            value = model(batch).square().sum()
            value.backward()
            return value
        while True:
            {body}
    """)
    assert recording.outcome == "complete", recording.printed
    is_certain = size is not None
    assert recording.manifest["batch"] == {"size": size, "from": "input", "certain": is_certain}


def test_batch_of_closure_is_counted_once() -> None:
    check_batch_size("optimizer.step(lambda: loss(x))", 64)


def test_parts_of_batch_are_summed() -> None:
    check_batch_size("optimizer.step(lambda: loss(x[:32]) + loss(x[32:48]))", 48)


def test_model_output_is_not_part_of_batch() -> None:
    check_batch_size("optimizer.step(lambda: loss(x) + loss(model(x) @ torch.ones(2, 4)))", 64)


def test_batch_size_with_vmap() -> None:
    check_batch_size(
        """torch.func.vmap(lambda sample: model(sample[None]).sum())(x)
            optimizer.step(lambda: loss(x))""",
        64,
    )


def test_vector_is_not_a_batch() -> None:
    check_batch_size("optimizer.step(lambda: loss(torch.ones(4)))", None)


@pytest.mark.parametrize(
    ("shapes", "size", "is_certain"),
    [
        # Token ids and targets.
        ([(12, 64), (12, 64)], 12, True),
        ([(12, 64)], 12, True),
        # Time-first: tokens, and the state of a recurrent network with two layers.
        ([(35, 20), (2, 20, 200), (2, 20, 200)], 20, False),
        # Object detection: classes and boxes, images, and image indices.
        ([(458, 1), (458, 4), (8, 3, 64, 64), (458,)], 8, False),
    ],
)
def test_samples_in(shapes: list[tuple[int, ...]], size: int, is_certain: bool) -> None:
    # Meta tensors, because a process that has run operators in several threads cannot be forked.
    batch = [torch.empty(shape, device="meta") for shape in shapes]
    assert samples_in(object(), batch) == (size, is_certain)


def test_items_that_are_whole_batches() -> None:
    # DLRM: features, offsets and indices of eight embedding tables, and targets.
    loader = SimpleNamespace(_index_sampler=SimpleNamespace(batch_size=1))
    shapes = [(128, 13), (8, 128), (8, 1280), (128, 1)]
    batch = [torch.empty(shape, device="meta") for shape in shapes]
    assert samples_in(loader, batch) == (128, False)


def test_sampler_wrapper_has_batch_size_of_inner_sampler() -> None:
    # Like the sampler wrapper of Ultralytics.
    class RepeatedSampler:
        sampler = SimpleNamespace(batch_size=8)

    loader = SimpleNamespace(_index_sampler=RepeatedSampler())
    batch = [torch.empty(458, 4, device="meta"), torch.empty(8, 3, device="meta")]
    assert samples_in(loader, batch) == (8, True)
