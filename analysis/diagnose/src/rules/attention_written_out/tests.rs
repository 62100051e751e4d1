use super::*;
use crate::harness::{Case, lines_in, operator};
use ridgeline_operators::operator::Arg;
use ridgeline_optimize::facts::Variant;
use ridgeline_optimize::stand_ins::stand_ins;

const WRITTEN_OUT: &str = "import math\nimport torch\nfrom torch.nn import functional as F\n\n\
        def attention(q, k, v, mask, drop):\n\
        \x20   scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n\
        \x20   if mask is not None:\n\
        \x20       scores = scores.masked_fill(mask == 0, float('-inf'))\n\
        \x20   weights = F.softmax(scores, dim=-1)\n\
        \x20   weights = F.dropout(weights, drop)\n\
        \x20   out = torch.matmul(weights, v)\n\
        \x20   return out\n\n\
        attention(1, 2, 3, 4, 5)\n";

#[test]
fn matmul_mask_softmax_dropout_matmul() {
    assert_eq!(lines_in(&AttentionWrittenOut, WRITTEN_OUT), [9]);
}

fn body(lines: &str) -> String {
    let body = lines.replace('\n', "\n    ");
    format!(
        "import torch\nimport torch.nn.functional as F\ndef f(self, q, k, v):\n    {body}\nf(1, 2, 3)\n"
    )
}

#[test]
fn attention_in_one_expression_or_with_methods() {
    let one = body("return F.softmax(q @ k.mT, dim=-1) @ v");
    assert_eq!(lines_in(&AttentionWrittenOut, &one), [4]);
    let two = body("a = torch.bmm(q, k)\na = a.softmax(-1)\nreturn self.drop(a).bmm(v)");
    assert_eq!(lines_in(&AttentionWrittenOut, &two), [5]);
    let three = body(
        "a = torch.einsum('bhd,bkd->bhk', q, k)\na *= 2\nw = torch.softmax(a, dim=-1)\nw = self.attn_drop(w)\nx = (w @ v).transpose(1, 2)\nreturn x",
    );
    assert_eq!(lines_in(&AttentionWrittenOut, &three), [6]);
}

#[test]
fn attention_with_layers_aliases_and_three_dimensions() {
    let layer = "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        \
             self.softmax = nn.Softmax(DIM)\n    def forward(self, q, k, v):\n        \
             w = self.softmax(q @ k)\n        return w @ v\nNet()(1, 2, 3)\n";
    assert_eq!(lines_in(&AttentionWrittenOut, &layer.replace("DIM", "dim=-1")), [7]);
    assert!(lines_in(&AttentionWrittenOut, &layer.replace("DIM", "dim=1")).is_empty());
    let other = body("return nnf.softmax(q @ k, dim=-1) @ v");
    let other = other.replace("functional as F", "functional as nnf");
    assert_eq!(lines_in(&AttentionWrittenOut, &other), [4]);
    let three = body("w = F.softmax(torch.bmm(q, k) / 8, 2)\nreturn torch.bmm(w, v)");
    assert_eq!(lines_in(&AttentionWrittenOut, &three), [4]);
    let words = body(
        "s = einsum(q, k, 'b h i d, b h j d -> b h i j') + self.bias\nw = s.softmax(dim=-1)\n\
             return einsum(w, v, 'b h i j, b h j d -> b h i d')",
    );
    assert_eq!(lines_in(&AttentionWrittenOut, &words), [5]);
}

#[test]
fn attention_that_cannot_be_fused_is_not_reported() {
    for near in [
        // The weights are used elsewhere.
        "w = F.softmax(q @ k, dim=-1)\nreturn w @ v, w",
        "w = F.softmax(q @ k, dim=-1)\nself.seen = w\nreturn w @ v",
        // Another dimension, another function, no matrix multiplication.
        "w = F.softmax(q @ k, dim=1)\nreturn w @ v",
        "w = F.softmax(self.mix(q @ k), dim=-1)\nreturn w @ v",
        "w = F.softmax(torch.tanh(q @ k), dim=-1)\nreturn w @ v",
        "w = F.softmax(q, dim=-1)\nreturn w @ v",
        "w = F.softmax(q @ k, dim=-1)\nreturn w * v",
        "w = F.softmax(q @ k, dim=-1)\nw = self.mix(w)\nreturn w @ v",
        "w = F.softmax(q @ k, dim=-1)\nreturn w",
        "return F.scaled_dot_product_attention(q, k, v)",
        // More than scaling, shifting and masking.
        "s = (q @ k) ** 2\nreturn F.softmax(s, dim=-1) @ v",
        "s = q @ k\ns **= 2\nreturn F.softmax(s, dim=-1) @ v",
        "s = 50.0 * torch.tanh(q @ k / 50.0)\nreturn F.softmax(s, dim=-1) @ v",
        "return F.softmax(q @ k + q @ v, dim=-1) @ v",
        "return F.softmax(1 / (q @ k), dim=-1) @ v",
        // Talking heads: heads are mixed before or after the softmax.
        "s = torch.einsum('bhij,hg->bgij', q @ k, self.mix)\nreturn F.softmax(s, dim=-1) @ v",
        "w = F.softmax(q @ k, dim=-1)\nreturn torch.einsum('bhij,hg->bgij', w, self.mix)",
        // The last of four dimensions is not dimension 2.
        "return F.softmax(q @ k, dim=2) @ v",
    ] {
        assert!(lines_in(&AttentionWrittenOut, &body(near)).is_empty(), "{near}");
    }
}

#[test]
fn fallback_next_to_the_fused_call_is_not_reported() {
    let text = "import torch\nimport torch.nn.functional as F\ndef f(flash, q, k, v):\n    \
            if flash:\n        return F.scaled_dot_product_attention(q, k, v)\n    \
            return F.softmax(q @ k, dim=-1) @ v\nf(True, 1, 2, 3)\n";
    assert_eq!(lines_in(&AttentionWrittenOut, text), [0; 0]);
}

const ROWS: &[u64] = &[96, 512, 64];
const SCORES: &[u64] = &[96, 512, 512];

fn measured(on_gpu: bool, others_us: f64) -> Case {
    let example = if on_gpu { Case::new(WRITTEN_OUT).on_gpu() } else { Case::new(WRITTEN_OUT) };
    example
        .call(6, Phase::Forward, &operator("bmm", &[ROWS, &[96, 64, 512], SCORES]), 1000.0)
        .call(6, Phase::Forward, &operator("div", &[SCORES, SCORES]), 800.0)
        .call(9, Phase::Forward, &operator("softmax", &[SCORES, SCORES]), 800.0)
        .call(11, Phase::Forward, &operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0)
        .call(14, Phase::Forward, &operator("add", &[&[9], &[9], &[9]]), others_us)
}

#[test]
fn cost_on_a_gpu_comes_from_the_what_if() {
    let found = measured(true, 10.0).measured(&AttentionWrittenOut);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].at.line, 9);
    assert!(found[0].cost.is_some_and(|cost| cost.is_predicted && cost.time_ns > 5e5));
    assert!(measured(true, 1e6).measured(&AttentionWrittenOut).is_empty());
}

#[test]
fn cost_on_a_cpu_is_the_scaling_and_the_softmax() {
    let found = measured(false, 10.0).measured(&AttentionWrittenOut);
    assert_eq!(found[0].cost, Some(Cost::time(1.6e6).predicted()));
    // A probe of another layer does not change the cost.
    let mut other = measured(false, 10.0);
    other.probes.stand_ins.push((operator("linear", &[&[64, 8], &[4, 8], &[64, 4]]), 9e3));
    assert_eq!(other.measured(&AttentionWrittenOut)[0].cost, found[0].cost);
}

#[test]
fn probe_of_the_fused_operator_determines_the_cost() {
    let mut case = measured(false, 10.0);
    let stand_ins = stand_ins(&case.graph, &[], false);
    assert_eq!(stand_ins.len(), 1);
    for (operator, time_ns) in [(0, 500e3), (1, 400e3), (2, 400e3), (3, 500e3)] {
        case.probes.operators.insert((operator, Variant::Same), time_ns);
    }
    // The fused operator takes 450 µs, a quarter of the 1.8 ms that the probes measured for the
    // others: three quarters of their 3.6 ms are saved.
    case.probes.stand_ins.push((stand_ins[0].operator.clone(), 450e3));
    let cost = case.measured(&AttentionWrittenOut)[0].cost.expect("a cost");
    assert!(cost.is_predicted && (cost.time_ns - 2.7e6).abs() < 1e3, "{cost:?}");
    // The fused operator is not faster.
    case.probes.stand_ins[0].1 = 1.8e6;
    assert!(case.measured(&AttentionWrittenOut).is_empty());
}

#[test]
fn cpu_has_no_fused_operator_with_dropout() {
    let with = |on_gpu: bool, share: f64| {
        let mut dropout = operator("dropout", &[SCORES, SCORES]);
        dropout.inputs.extend([Arg::Number(share), Arg::Bool(true)]);
        let example = if on_gpu { Case::new(WRITTEN_OUT).on_gpu() } else { Case::new(WRITTEN_OUT) };
        example
            .call(6, Phase::Forward, &operator("bmm", &[ROWS, &[96, 64, 512], SCORES]), 1000.0)
            .call(9, Phase::Forward, &operator("softmax", &[SCORES, SCORES]), 800.0)
            .call(10, Phase::Forward, &dropout, 800.0)
            .call(11, Phase::Forward, &operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0)
            .measured(&AttentionWrittenOut)
    };
    assert!(with(false, 0.1).is_empty());
    assert_eq!(with(false, 0.0).len(), 1);
    assert_eq!(with(true, 0.1).len(), 1);
}

#[test]
fn softmax_that_did_not_run_is_not_reported() {
    let other = Case::new(WRITTEN_OUT).on_gpu().call(
        14,
        Phase::Forward,
        &operator("softmax", &[SCORES, SCORES]),
        900.0,
    );
    assert!(other.measured(&AttentionWrittenOut).is_empty());
}

#[test]
fn multihead_attention_whose_weights_are_unused() {
    let text = |call: &str| {
        format!(
            "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        \
             super().__init__()\n        self.attn = nn.MultiheadAttention(768, 12)\n    \
             def forward(self, x):\n        {call}\nnet = Net()\nnet(1)\n"
        )
    };
    let found = |call: &str| {
        Case::new(&text(call))
            .call(8, Phase::Forward, &operator("bmm", &[ROWS, &[96, 64, 512], SCORES]), 1000.0)
            .call(8, Phase::Forward, &operator("softmax", &[SCORES, SCORES]), 800.0)
            .call(8, Phase::Forward, &operator("bmm", &[SCORES, ROWS, ROWS]), 1000.0)
            .measured(&AttentionWrittenOut)
    };
    let unused = found("return self.attn(x, x, x)[0]");
    assert_eq!(unused.len(), 1);
    assert_eq!(unused[0].at.line, 8);
    assert_eq!(unused[0].fix, Some(EditKind::WithoutAttentionWeights));
    assert!(unused[0].cost.is_some_and(|cost| cost.is_predicted && cost.time_ns > 1e5));
    assert_eq!(found("return self.attn(x, x, x)"), []);
    assert_eq!(found("return self.attn(x, x, x, need_weights=False)[0]"), []);
}
