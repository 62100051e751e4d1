"""Complete estimates of many kinds of training programs, for the CPU and for CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_driver import Agent, log
from estimate_helpers import complete_estimate, estimate, operators

# `D` is the device. A program defines `parameters` and `loss_of()`, or has its own loop.
BEGIN = """\
import copy, math
import torch
from torch import nn
from torch.nn import functional as F
D = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
LOOP = """\
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
for step in range(4):
    optimizer.zero_grad()
    loss_of().backward()
    optimizer.step()
"""

PROGRAMS = {
    "checkpointing": """
from torch.utils.checkpoint import checkpoint
net = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)).to(D)
parameters = net.parameters()
def loss_of():
    x = torch.randn(16, 32, device=D, requires_grad=True)
    return checkpoint(net, checkpoint(net, x, use_reentrant=False), use_reentrant=True).sum()
""",
    "custom_autograd_function": """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]
w = nn.Parameter(torch.randn(64, 128, device=D))
parameters = [w]
def loss_of():
    return Square.apply(w).sum()
""",
    "graphed_callables": """
net = nn.Linear(32, 128).to(D)
if D.type == "cuda":
    net = torch.cuda.make_graphed_callables(net, (torch.randn(8, 32, device=D),))
parameters = list(net.parameters())
def loss_of():
    return net(torch.randn(8, 32, device=D)).sum()
""",
    "generator_and_nested_containers": """
net = nn.ModuleDict({"a": nn.Linear(8, 256), "b": nn.Linear(256, 1)}).to(D)
parameters = net.parameters()
def batches():
    while True:
        yield {"x": [torch.randn(128, 8)], "y": (torch.randn(128, 1), {"mask": None})}
source = batches()
def loss_of():
    batch = next(source)
    y = net["b"](net["a"](batch["x"][0].to(D)).relu_())
    return F.mse_loss(y, batch["y"][0].to(D))
""",
    "sparse_embeddings": """
table = nn.Embedding(5000, 64, sparse=True).to(D)
bag = nn.EmbeddingBag(5000, 64, mode="mean").to(D)
first = torch.optim.SparseAdam(table.parameters())
second = torch.optim.Adagrad(bag.parameters())
for step in range(3):
    ids = torch.randint(5000, (32, 100), device=D)
    (table(ids).sum() + bag(ids).sum()).backward()
    first.step(); second.step()
    first.zero_grad(); second.zero_grad()
LOOP = False
""",
    "einsum_complex_and_fft": """
w = nn.Parameter(torch.randn(64, 64, dtype=torch.complex64, device=D))
parameters = [w]
def loss_of():
    x = torch.fft.fft(torch.randn(16, 100, 64, device=D), dim=-1)
    y = torch.einsum("btd,de->bte", x, w)
    s = torch.stft(torch.randn(4, 4000, device=D), 400, return_complex=True)
    z = torch.view_as_real(y.conj().resolve_conj())
    return y.abs().mean() + torch.fft.ifft(y).real.mean() + z.sum() + 0 * s.abs().mean()
""",
    "torch_func": """
from torch.func import functional_call, grad, vmap
net = nn.Linear(64, 64).to(D)
parameters = list(net.parameters())
def loss_of():
    weights = dict(net.named_parameters())
    def one(weights, x):
        return functional_call(net, weights, (x,)).square().sum()
    per_sample = vmap(grad(one), in_dims=(None, 0))(weights, torch.randn(128, 64, device=D))
    norms = vmap(lambda g: g.norm())(per_sample["weight"].detach())
    return functional_call(net, weights, (torch.randn(128, 64, device=D),)).sum() * norms.mean()
""",
    "optimizers": """
def weight():
    return nn.Parameter(torch.randn(100, 100, device=D))
ws = [weight() for _ in range(9)]
optimizers = [
    torch.optim.AdamW([ws[0]], fused=True), torch.optim.Adam([ws[1]], foreach=True),
    torch.optim.Adam([ws[2]], amsgrad=True, foreach=False), torch.optim.RMSprop([ws[3]]),
    torch.optim.Adagrad([ws[4]]), torch.optim.NAdam([ws[5]]), torch.optim.Rprop([ws[6]]),
    torch.optim.Adadelta([ws[7]]), torch.optim.SGD([ws[8]], lr=0.1, nesterov=True, momentum=0.9),
]
schedules = [torch.optim.lr_scheduler.OneCycleLR(optimizers[0], 0.1, total_steps=100),
             torch.optim.lr_scheduler.ReduceLROnPlateau(optimizers[1])]
for step in range(3):
    loss = sum((w ** 2).sum() for w in ws)
    loss.backward()
    nn.utils.clip_grad_norm_(ws, 1.0); nn.utils.clip_grad_value_(ws, 1.0)
    for optimizer in optimizers:
        optimizer.step(); optimizer.zero_grad()
    schedules[0].step(); schedules[1].step(loss.item())
LOOP = False
""",
    "lbfgs_with_a_closure": """
net = nn.Linear(500, 10).to(D)
optimizer = torch.optim.LBFGS(net.parameters(), line_search_fn="strong_wolfe")
x = torch.randn(256, 500, device=D)
for step in range(3):
    def closure():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss
    optimizer.step(closure)
LOOP = False
""",
    "three_optimizers": """
g, d, e = (nn.Linear(64, 64).to(D) for _ in range(3))
og, od, oe = (torch.optim.Adam(m.parameters()) for m in (g, d, e))
for step in range(6):
    z = torch.randn(32, 64, device=D)
    od.zero_grad(); d(g(z).detach()).sum().backward(); od.step()
    og.zero_grad(); d(g(z)).sum().backward(); og.step()
    oe.zero_grad(); e(g(z)).sum().backward(); oe.step()
LOOP = False
""",
    "gradient_penalty": """
d = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(D)
parameters = d.parameters()
def loss_of():
    x = torch.randn(64, 64, device=D, requires_grad=True)
    (slope,) = torch.autograd.grad(d(x).sum(), x, create_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()
""",
    "accumulation_and_autocast": """
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(True), nn.Flatten(),
                    nn.Linear(16 * 900, 10)).to(D).to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler(D.type, enabled=D.type == "cuda")
for step in range(8):
    x = torch.randn(8, 3, 32, 32, device=D).to(memory_format=torch.channels_last)
    with torch.autocast(D.type, dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), torch.randint(10, (8,), device=D)) / 2
    scaler.scale(loss).backward()
    if step % 2:
        scaler.step(optimizer); scaler.update(); optimizer.zero_grad(set_to_none=True)
LOOP = False
""",
    "transformers": """
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
net = nn.TransformerEncoder(layer, 2).to(D)
attention = nn.MultiheadAttention(64, 4, batch_first=True).to(D)
parameters = [*net.parameters(), *attention.parameters()]
def loss_of():
    x = torch.randn(8, 50, 64, device=D)
    mask = torch.arange(50, device=D)[None] >= torch.randint(20, 50, (8, 1), device=D)
    y = net(x, src_key_padding_mask=mask)
    causal = nn.Transformer.generate_square_subsequent_mask(50, device=D)
    y, weights = attention(y, y, y, attn_mask=causal)
    return y.sum() + weights.mean()
""",
    "float64_views_and_in_place": """
w = nn.Parameter(torch.randn(64, 64, dtype=torch.float64, device=D))
parameters = [w]
def loss_of():
    x = torch.zeros(64, 64, dtype=torch.float64, device=D)
    x[:, ::2] = w[:, 1::2]
    x.view(-1)[5:100].add_(1).mul_(2)
    x = x.t().unfold(0, 4, 2).permute(2, 0, 1).contiguous().transpose_(0, 1)
    a, b = x.split([2, 2], dim=1)
    y = torch.cat([a, b.flip(0)]).clamp_(-1, 1).sum()
    return y + w.diagonal().prod() + w.expand(3, 64, 64).mean()
""",
    "indices_and_masks": """
w = nn.Parameter(torch.randn(1000, 32, device=D))
parameters = [w]
def loss_of():
    ids = torch.randint(1000, (64,), device=D)
    scores = w[ids] @ w.t()
    top, at = scores.topk(5)
    kept = scores[scores > 0]
    rows, columns = torch.nonzero(scores > 1, as_tuple=True)
    first = scores.gather(1, at).scatter_add(1, at % 5, top).index_select(0, ids % 64)
    y = torch.where(scores > 0, scores, torch.zeros_like(scores)).masked_fill(scores < -1, 0.0)
    hot = F.one_hot(ids % 7, 7).float() * torch.bincount(ids % 7, minlength=7)
    names, counts = ids.unique(return_counts=True)
    order = scores.argsort(dim=1)[:, :3].cumsum(1)
    return (first.sum() + y.mean() + kept.sum() + scores[rows, columns].mean() + hot.sum()
            + scores.sort().values.median() + 0 * counts.sum() + 0 * order.sum())
""",
    "convolutions_and_norms": """
net = nn.Sequential(
    nn.Conv2d(4, 16, 3, padding=1, groups=4), nn.GroupNorm(4, 16), nn.Mish(),
    nn.Conv2d(16, 16, 3, padding=2, dilation=2, bias=False), nn.InstanceNorm2d(16, affine=True),
    nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.AvgPool2d(2),
    nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.PReLU(), nn.AdaptiveAvgPool2d(7), nn.PixelShuffle(1),
).to(D)
one, three = nn.Conv1d(4, 8, 5).to(D), nn.Conv3d(1, 4, 3).to(D)
parameters = [*net.parameters(), *one.parameters(), *three.parameters()]
def loss_of():
    x = torch.randn(2, 4, 32, 32, device=D)
    grid = torch.rand(2, 32, 32, 2, device=D)
    return (net(x).sum() + one(x.flatten(2)).mean() + three(x[:1]).mean()
            + F.grid_sample(x, grid, align_corners=False).mean() + F.unfold(x, 3).sum()
            + F.interpolate(x, size=(17, 9)).mean())
""",
    "linear_algebra_and_losses": """
w = nn.Parameter(torch.randn(16, 16, device=D))
parameters = [w]
def loss_of():
    spd = w @ w.t() + torch.eye(16, device=D)
    u, s, v = torch.linalg.svd(w)
    loss = (torch.linalg.cholesky(spd).sum() + torch.linalg.solve(spd, w).sum() + s.sum()
            + torch.linalg.norm(w) + torch.logdet(spd) + torch.cdist(w, w).sum())
    t = torch.randint(16, (16,), device=D)
    x = w.log_softmax(1)
    return (loss + F.nll_loss(x, t) + F.kl_div(x, w.softmax(1), reduction="batchmean")
            + F.smooth_l1_loss(w, w.detach()) + F.binary_cross_entropy_with_logits(w, w.sigmoid())
            + F.triplet_margin_loss(w, w + 1, w - 1) + F.cosine_similarity(w, w + 1).sum()
            + F.huber_loss(w, w.detach() + 1) + F.multi_margin_loss(w, t))
""",
    "ctc_and_lengths": """
net = nn.Linear(32, 20).to(D)
parameters = net.parameters()
def loss_of():
    x = net(torch.randn(50, 4, 32, device=D)).log_softmax(2)
    targets = torch.randint(1, 20, (4, 10), device=D)
    lengths = torch.tensor([50, 48, 40, 30])
    return F.ctc_loss(x, targets, lengths, torch.tensor([10, 9, 8, 7]))
""",
    "hooks_parametrizations_and_averages": """
from torch.nn.utils import parametrizations, parametrize, weight_norm
net = nn.Sequential(parametrizations.spectral_norm(nn.Linear(64, 64)),
                    parametrizations.weight_norm(nn.Linear(64, 64)), nn.Dropout(0.5)).to(D)
average = copy.deepcopy(net)
swa = torch.optim.swa_utils.AveragedModel(net)
net.register_forward_hook(lambda module, inputs, output: output * 2)
net[0].register_full_backward_hook(lambda module, before, after: None)
parameters = list(net.parameters())
parameters[0].register_hook(lambda gradient: gradient * 0.5)
def loss_of():
    with torch.no_grad():
        for a, b in zip(average.parameters(), net.parameters()):
            a.lerp_(b, 0.01)
    swa.update_parameters(net)
    return net(torch.randn(128, 64, device=D)).sum()
""",
    "scripted_and_compiled": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 64)
    def forward(self, x):
        return torch.tanh(self.a(x))
scripted = torch.jit.script(Net().to(D))
compiled = torch.compile(Net().to(D))
parameters = [*scripted.parameters(), *compiled.parameters()]
def loss_of():
    x = torch.randn(128, 64, device=D)
    return (scripted(x) + compiled(x)).sum()
""",
    "saved_states": """
import io
net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).to(D)
net.load_state_dict(copy.deepcopy(net.state_dict()))
parameters = list(net.parameters())
first = torch.optim.Adam(parameters)
first.load_state_dict(first.state_dict())
del first
def loss_of():
    return net(torch.randn(128, 64, device=D)).sum()
""",
    "metrics_and_numpy": """
import numpy
net = nn.Linear(64, 10).to(D)
parameters = net.parameters()
best, history = float("inf"), []
def loss_of():
    global best
    y = torch.randint(10, (1000,), device=D)
    out = net(torch.from_numpy(numpy.random.rand(1000, 64).astype("float32")).to(D))
    loss = F.cross_entropy(out, y)
    accuracy = (out.argmax(1) == y).float().mean().item()
    correct = (out.argmax(1) == y).sum().item() / len(y)
    if torch.isnan(loss):
        raise ValueError("the loss is not a number")
    assert torch.isfinite(loss).all()
    history.append(loss.detach().cpu().numpy())
    best = min(best, loss.item())
    print(f"{loss.item():.3f} {accuracy:.1%} {correct} {best:.2f} {int(loss)} {loss}")
    return loss
""",
    "distributions": """
w = nn.Parameter(torch.randn(64, 100, device=D))
parameters = [w]
def loss_of():
    choice = torch.distributions.Categorical(logits=w)
    action = choice.sample()
    normal = torch.distributions.Normal(w, torch.ones_like(w))
    return -(choice.log_prob(action).mean() + normal.rsample().mean() + choice.entropy().mean())
""",
    "recurrent_cells": """
cell, gru = nn.LSTMCell(32, 64).to(D), nn.GRUCell(64, 64).to(D)
rnn = nn.RNN(64, 32, nonlinearity="relu").to(D)
parameters = [*cell.parameters(), *gru.parameters(), *rnn.parameters()]
def loss_of():
    h = c = g = torch.zeros(16, 64, device=D)
    seen = []
    for step in range(5):
        h, c = cell(torch.randn(16, 32, device=D), (h, c))
        g = gru(h, g)
        seen.append(g)
    return rnn(torch.stack(seen))[0].sum()
""",
    "truncated_back_propagation": """
cell = nn.Linear(64, 64).to(D)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
state = torch.zeros(128, 64, device=D)
for step in range(4):
    state = state.detach()
    for _ in range(3):
        state = torch.tanh(cell(state))
    optimizer.zero_grad()
    state.sum().backward()
    optimizer.step()
LOOP = False
""",
}


@pytest.mark.parametrize("claim", ["cpu", "cuda"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_estimate_is_complete(agent: Agent, tmp_path: Path, name: str, claim: str) -> None:
    program = PROGRAMS[name]
    text = BEGIN + program.replace("LOOP = False\n", "")
    if "LOOP = False" not in program:
        text += LOOP
    finished = estimate(agent, tmp_path, text, claim=claim)
    printed = log(tmp_path).decode()[-3000:]
    assert finished["outcome"] == "complete", (finished["message"], printed)
    ops = finished["ops"]
    assert (ops["outcome"], ops["unsupported"], ops["notes"]) == ("complete", [], []), printed
    phases = [phase for _, phase, _, _ in operators(ops)]
    assert {1, 2, 3} <= set(phases)
    assert ops["memory"]["peak_bytes"] > 0


def test_the_same_random_numbers_in_each_estimate(agent: Agent, tmp_path: Path) -> None:
    """A program of random depth computes the same in the estimates before and after an edit."""
    text = """\
import random
import numpy
import torch
layer = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(8, 16)
    for _ in range(random.randint(1, 200) + numpy.random.randint(200)):
        x = layer(x)
    x.sum().backward()
    optimizer.step()
"""
    first = operators(complete_estimate(agent, tmp_path, text))
    assert operators(complete_estimate(agent, tmp_path, text)) == first
