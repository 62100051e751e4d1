use super::*;
use crate::harness::with_program;

/// Checks the kinds of the loops in the body of a function.
#[track_caller]
fn check(body: &str, expected: &[LoopKind]) {
    let body = body.replace('\n', "\n        ");
    let text = format!(
        "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        \
             self.cell = nn.GRUCell(8, 8)\n        self.one = nn.LSTMCell(8, 8)\n        self.two = nn.LSTMCell(8, 8)\n        self.lstm = nn.LSTM(8, 8)\n        self.lin = nn.Linear(8, 8)\n    def forward(self, x, h):\n        {body}\n\nNet()(1, 2)\n"
    );
    let found = with_program(&text, |program| {
        loops(program).iter().map(|one| one.kind).collect::<Vec<_>>()
    });
    assert_eq!(found, expected, "{text}");
}

#[test]
fn independent_iterations() {
    let expected = &[LoopKind::Independent];
    check(
        "out = []\nfor t in range(9):\n    y = self.lin(x[:, t])\n    out.append(y.relu())",
        expected,
    );
    check("for t in range(9):\n    out[:, t] = self.lin(x[:, t])", expected);
    check("total = 0\nfor row in x:\n    total = total + (row * row).sum()", expected);
    check("for i, row in enumerate(x):\n    total += torch.dot(row, h[i])", expected);
}

#[test]
fn a_cell_whose_inputs_exist_before_the_loop() {
    let body = "out = []\nfor t in range(9):\n    h = self.cell(x[:, t], h)\n    out.append(h)";
    check(body, &[LoopKind::Cell]);
    // The next input is the last output: the steps cannot run at once.
    check("for t in range(9):\n    h = self.cell(h, h)\n    out.append(x[t])", &[]);
    check("for t in range(9):\n    y = self.lin(h) + x[t]\n    h = self.cell(y, h)", &[]);
    // The state is changed in between, or the step is written by hand.
    check("for t in range(9):\n    h = self.cell(x[t], h)\n    h = self.lin(h)", &[]);
    check("for t in range(9):\n    h = torch.tanh(self.lin(h) + x[t])", &[]);
    // The state is reset at the end of an episode.
    check("for t in range(9):\n    h = self.cell(x[t], h * mask[t])", &[]);
    check("for t in range(9):\n    h = self.cell(x[t])\n    out.append(g)\n    g = h", &[]);
}

#[test]
fn stacked_cells() {
    let stacked = "for t in range(9):\n    h, c = self.one(x[:, t], (h, c))\n    g, d = self.two(h, (g, d))\n    out.append(self.lin(g))";
    check(stacked, &[LoopKind::Cell]);
    let between = "for t in range(9):\n    h, c = self.one(x[:, t], (h, c))\n    y = self.lin(h).relu()\n    g, d = self.two(y, (g, d))";
    check(between, &[LoopKind::Cell]);
    // The lower cell gets the previous output of the upper one.
    let back = "for t in range(9):\n    h, c = self.one(x[:, t] + g, (h, c))\n    g, d = self.two(h, (g, d))";
    check(back, &[]);
    // Each takes the other's state.
    let crossed = "for t in range(9):\n    h, c = self.one(x[:, t], (g, d))\n    g, d = self.two(x[:, t], (h, c))";
    check(crossed, &[]);
}

#[test]
fn a_recurrent_layer_called_step_by_step() {
    let body = "for t in range(9):\n    y, h = self.lstm(x[:, t:t + 1], h)\n    out.append(y)";
    check(body, &[LoopKind::Cell]);
    // Truncated backpropagation: the graph is cut between chunks.
    let body =
        "for t in range(0, 90, 30):\n    y, h = self.lstm(x[:, t:t + 30], h)\n    out.append(y)";
    check(body, &[]);
}

#[test]
fn comprehensions_whose_results_are_joined() {
    let expected = &[LoopKind::Independent];
    check("y = torch.stack([self.lin(x[:, t]).relu() for t in range(9)], dim=1)", expected);
    check("y = torch.cat([self.lin(row) for row in x])", expected);
    check("y = sum(torch.dot(row, h) for row in x)", expected);
    check("y = torch.cat([layer(x) for layer in self.layers])", &[]);
    check("y = torch.cat([self.heads[i](x) for i in range(9)])", &[]);
    check("y = torch.cat([self.lin(x[i:i + 9]) for i in range(0, 99, 9)])", &[]);
    check("y = torch.cat([self.lin(x[i]) for i in range(9) if i > 3])", &[]);
    check("y = torch.stack([self.lin(x) for _ in range(9)])", &[]);
    check("y = torch.cat([p.flatten() for p in self.parameters()])", &[]);
    check("y = [self.lin(row) for row in x]", &[]);
}

#[test]
fn chunks_and_random_draws_are_intentional() {
    check("for i in range(0, 99, 9):\n    out.append(self.lin(x[i:i + 9]) @ h)", &[]);
    check("for i in range(8):\n    total = total + self.lin(x[i * 9:(i + 1) * 9]).sum()", &[]);
    check("for part in x.split(9):\n    out.append(self.lin(part))", &[]);
    check("for part in torch.chunk(x, 9):\n    out.append(self.lin(part))", &[]);
    check("for i in range(9):\n    out.append(x[i, torch.randperm(9)[:4]])", &[]);
    check("for row in x.split(1, dim=1):\n    out.append(self.lin(row))", &[LoopKind::Independent]);
    check("for i in range(9):\n    out.append(self.lin(x[i, 2:5]))", &[LoopKind::Independent]);
}

#[test]
fn loops_over_layers_and_training_loops_are_skipped() {
    check("for layer in self.layers:\n    x = layer(x)", &[]);
    check("for i in range(9):\n    out.append(self.layers[i](x))", &[]);
    check("for i in range(9):\n    out.append(getattr(self, f'l{i}')(x[i]))", &[]);
    check("for b in x:\n    loss = self.lin(b).sum()\n    loss.backward()", &[]);
    check("for _ in range(9):\n    out.append(self.lin(x))", &[]);
    check("for t in range(9):\n    out.append(x[t] + out[-1])", &[]);
    check("for t in range(9):\n    out.append(torch.autograd.grad(x[t], h))", &[]);
    check("for m in self.modules():\n    total += m.weight.sum()", &[]);
}

#[test]
fn branching_iterations() {
    let expected = &[LoopKind::Branching];
    check("for t in range(9):\n    if t > 3:\n        out.append(self.lin(x[t]))", expected);
    check(
        "for t in range(9):\n    y = x[t]\n    if flag:\n        y = y * 2\n    out.append(y)",
        expected,
    );
    check(
        "for row in x:\n    if row.sum() > 0:\n        total += row.mean()\n    else:\n        total += row.norm()",
        expected,
    );
    check(
        "for i in range(9):\n    if x[i, 0] < 0:\n        y = x[i].relu()\n    elif h is None:\n        y = x[i]\n    else:\n        y = x[i] * h\n    out[i] = y",
        expected,
    );
    check(
        "for i in range(9):\n    if not h[i]:\n        continue\n    out.append(x[i] * 2)",
        expected,
    );
}

#[test]
fn branches_that_depend_on_another_iteration_or_on_sizes_are_skipped() {
    let none = |body: &str| check(body, &[]);
    // The first iteration creates the state that the others continue.
    none("for t in range(9):\n    if t == 0:\n        h = x[t]\n    else:\n        h = h * x[t]");
    none("for t in range(9):\n    if x[t].sum() > 0:\n        last = x[t]\n    out.append(last)");
    none("for t in range(9):\n    if h[t]:\n        s = s * 0\n    s = self.lin(s) + x[t]");
    none("best = 0\nfor t in range(9):\n    y = x[t].sum()\n    if y > best:\n        best = y");
    none("for t in range(9):\n    if len(out) < 4:\n        out.append(x[t])");
    none("for t in range(9):\n    y = x[t]\n    if y.sum() > 4:\n        break\n    out.append(y)");
    // Boxes of an image, which may have any number of them.
    none(
        "for i in range(9):\n    if len(h[i]) == 0:\n        continue\n    out.append(x[i] * h[i])",
    );
    none("for b in x:\n    if b.shape[0] > 0:\n        total += b.sum()");
    none("for b in x:\n    if b.numel() == 0:\n        total += b.sum()");
    none("for a, b in zip(x, h):\n    if b is not None:\n        total += (a * b).sum()");
    none("for b in x:\n    if b[0] > 0:\n        total += b['boxes'].sum()");
    // Random sampling decides where the next token comes from.
    none(
        "for t in range(9):\n    if random.random() < 0.5:\n        out.append(x[t])\n    else:\n        out.append(h[t])",
    );
    none(
        "for t in range(9):\n    y = self.lin(tokens)\n    if y[0] > 0:\n        tokens = torch.cat([tokens, y])\n    out.append(x[t])",
    );
}

#[test]
fn parameter_loops() {
    let body = "for a, p in zip(self.parameters(), x.parameters()):\n    a.mul_(0.9).add_(p)";
    check(body, &[LoopKind::Parameters]);
    check("for p in self.parameters():\n    p.requires_grad_(False)", &[]);
    check("for p in self.parameters():\n    total += p.norm()", &[]);
}

#[test]
fn hand_written_updates() {
    let found = |body: &str| check(body, &[LoopKind::Parameters]);
    found("for p in self.parameters():\n    p.data -= 0.1 * p.grad");
    found("for p in self.parameters():\n    p.data = p.data - 0.1 * p.grad\n    p.grad = None");
    found(
        "for p in self.parameters():\n    if p.grad is not None:\n        p.add_(p.grad, alpha=-0.1)",
    );
    found("for p in self.parameters():\n    with torch.no_grad():\n        p -= 0.1 * p.grad");
    found("weights = list(self.parameters())\nfor w, m in zip(weights, x):\n    w.sub_(m)");
    // A hand-written optimizer keeps its parameters.
    found(
        "for p, m in zip(self.params, self.m):\n    m.mul_(0.9).add_(p.grad)\n    p.sub_(0.1 * m)",
    );
    let adam = "if p.grad is None:\n    continue\ngrad, state = p.grad, self.state[p]\nif len(state) == 0:\n    state['m'] = torch.zeros_like(p)\nstate['step'] += 1\nm = state['m']\nm.lerp_(grad, 0.1)\np.add_(m, alpha=-0.1)";
    found(&format!("for p in h['params']:\n    {}", adam.replace('\n', "\n    ")));
    found(
        "for n, p in self.named_parameters():\n    self.mean[n] = 0.9 * self.mean[n] + 0.1 * p.data",
    );
    found(
        "for n, p in self.named_parameters():\n    if p.requires_grad:\n        assert n in self.mean\n        mean = 0.9 * self.mean[n] + 0.1 * p.data\n        self.mean[n].copy_(mean)",
    );
}

#[test]
fn loops_that_update_no_parameter_or_carry_state_are_skipped() {
    let none = |body: &str| check(body, &[]);
    none("for p in self.parameters():\n    p.grad = None");
    none("for p in self.parameters():\n    p.requires_grad = False");
    none("for n, p in self.named_parameters():\n    best[n] = p.detach().clone()");
    none("for p in self.parameters():\n    total.add_(p.norm())");
    none(
        "for p in self.parameters():\n    n = p.numel()\n    p.data.copy_(flat[at:at + n])\n    at += n",
    );
    none("for p in self.parameters():\n    p.mul_(before)\n    before = p.norm()");
    none("for p in self.parameters():\n    if torch.isnan(p.grad).any():\n        p.zero_()");
    none("for p in self.parameters():\n    p.add_(torch.randn_like(p))");
    none("for p in self.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= 2");
    none(
        "count = sum(p.numel() for p in self.parameters())\nfor i in range(count):\n    x[i] -= h[i]",
    );
    none("for p in self.groups:\n    p.data -= 0.1 * p.grad");
}
