"""Estimates for a CUDA device, which also work on machines without a GPU."""

from __future__ import annotations

from pathlib import Path

from agent_driver import Agent
from estimate_helpers import TRAINING, complete_estimate, estimate, operators


def names(ops: dict, phase: int | None = None) -> list[str]:  # type: ignore[type-arg]
    return [name for name, op_phase, _, _ in operators(ops) if phase in (None, op_phase)]


CUDA_API_CALLS = """\
import torch
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
device = torch.device("cuda", torch.cuda.current_device())
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(1)
torch.backends.cudnn.benchmark = True
x = torch.ones(4, 3, device=device)
assert x.is_cuda and x.device == device and not x.is_cpu and x.get_device() == 0
assert (x + 1).is_cuda and x.sum().device.type == "cuda" and x[0, 1:].is_cuda
assert not x.cpu().is_cuda and x.to("cpu").device.type == "cpu"
assert torch.zeros_like(x).is_cuda and torch.tensor([1.0], device="cuda").is_cuda
assert x.to(device) is x and x.to(device, torch.float16).dtype is torch.float16
assert x.new_zeros(2).is_cuda and x.to("cpu", non_blocking=True).cuda().is_cuda
assert torch.randn(2, generator=torch.Generator(device="cuda"), device="cuda").is_cuda
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record(); end.record(); torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
    pass
assert torch.cuda.memory_allocated() > 0 and torch.cuda.max_memory_allocated() > 0
torch.cuda.reset_peak_memory_stats(); torch.cuda.empty_cache()
assert torch.cuda.get_device_properties(0).total_memory > 0
assert torch.cuda.get_device_capability() >= (7, 0)
torch.zeros(3).pin_memory().to(device, non_blocking=True)
print(torch.cuda.get_device_name(0), torch.cuda.memory_stats()["allocated_bytes.all.peak"])
"""


def test_program_sees_simulated_cuda_device(agent: Agent, tmp_path: Path) -> None:
    complete_estimate(agent, tmp_path, CUDA_API_CALLS + TRAINING, claim="cuda")


def test_program_sees_no_cuda_device_when_estimating_for_cpu(agent: Agent, tmp_path: Path) -> None:
    text = "import torch\nassert not torch.cuda.is_available()\n" + TRAINING
    assert complete_estimate(agent, tmp_path, text, claim="cpu")["device"] == "cpu"


def test_only_device_memory_is_counted(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING.replace("model = Net()", "model = Net().to('cuda')")
    text = text.replace("x = torch.randn(512, 64)", "x = torch.randn(512, 64).to('cuda')")
    text = text.replace("for _", "table = torch.zeros(1 << 20)\nfor _")
    ops = complete_estimate(agent, tmp_path, text, claim="cuda")
    on_cpu = complete_estimate(agent, tmp_path, TRAINING)["memory"]
    # Foreach kernels use more memory than a loop, and blocks are rounded to 512 bytes.
    peak = ops["memory"]["peak_bytes"]
    assert on_cpu["peak_bytes"] <= peak < on_cpu["peak_bytes"] + 100_000
    assert all(size % 512 == 0 for size, *_ in ops["memory"]["at_peak"])
    assert "_foreach_add_.List" in names(ops, 3)


AUTOCAST = """\
import torch
from torch import nn
from torch.nn import functional as F
model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for _ in range(4):
    x = torch.randn(32, 64, device="cuda")
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled() and torch.get_autocast_gpu_dtype() is torch.float16
        y = model(x)
        assert y.dtype is torch.float16 and model[1](x.half()).dtype is torch.float32
        loss = F.cross_entropy(y, torch.zeros(32, dtype=torch.int64, device="cuda"))
        assert loss.dtype is torch.float32
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


def test_autocast_and_grad_scaler(agent: Agent, tmp_path: Path) -> None:
    ops = complete_estimate(agent, tmp_path, AUTOCAST, claim="cuda")
    addmms = [entry for entry in ops["signatures"] if entry["op"] == "aten::addmm"]
    assert addmms and all(entry["out"][0]["t"] == "float16" for entry in addmms)
    # The scaler does not skip the step, which uses the device's foreach kernels.
    assert "_foreach_addcdiv_.ScalarList" in names(ops, 3)
    assert "_amp_foreach_non_finite_check_and_unscale_" in names(ops)


ATTENTION = """\
import torch
from torch.nn import functional as F
w = torch.nn.Parameter(torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.float16))
f = torch.nn.Parameter(torch.randn(2, 4, 128, 64, device="cuda"))
optimizer = torch.optim.SGD([w, f], lr=0.1)
for _ in range(4):
    a = F.scaled_dot_product_attention(w, w, w, is_causal=True)
    b = F.scaled_dot_product_attention(f, f, f)
    (a.float().sum() + b.sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_attention_uses_cuda_kernels(agent: Agent, tmp_path: Path) -> None:
    operations = names(complete_estimate(agent, tmp_path, ATTENTION, claim="cuda"))
    assert "_scaled_dot_product_flash_attention" in operations
    assert "_scaled_dot_product_flash_attention_backward" in operations
    assert "_scaled_dot_product_efficient_attention" in operations
    assert "_scaled_dot_product_efficient_attention_backward" in operations


RECURRENT = """\
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(64, 8)
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = self.lstm(packed)
        y, _ = pad_packed_sequence(y, batch_first=True)
        return self.gru(y)[0]
model = Net().to(DEVICE)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    y = model(torch.randn(4, 10, 16, device=DEVICE), torch.tensor([10, 7, 5, 2]))
    assert y.shape == (4, 10, 8), y.shape
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_recurrent_layers_use_cudnn(agent: Agent, tmp_path: Path) -> None:
    text = RECURRENT.replace("DEVICE", "'cuda'")
    operations = names(complete_estimate(agent, tmp_path, text, claim="cuda"))
    assert operations.count("_cudnn_rnn") == 2 and operations.count("_cudnn_rnn_backward") == 2


def test_recurrent_layers_on_a_cpu(agent: Agent, tmp_path: Path) -> None:
    complete_estimate(agent, tmp_path, RECURRENT.replace("DEVICE", "'cpu'"))


def test_cpu_only_call_fails_on_cuda(agent: Agent, tmp_path: Path) -> None:

    text = "import torch\ntorch.ones(3, device='cuda').numpy()\n"
    finished = estimate(agent, tmp_path, text, claim="cuda")
    assert finished["outcome"] == "failed"
    assert finished["ops"]["failure"]["frames"][-1]["line"] == 2
