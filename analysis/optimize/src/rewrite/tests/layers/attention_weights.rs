//! Attention without its weights.

use super::*;

const WEIGHTS: EditKind = EditKind::WithoutAttentionWeights;

fn net(forward: &str) -> String {
    class("self.attn = nn.MultiheadAttention(n, 2, batch_first=True)", forward)
}

#[track_caller]
fn check_forwards(forwards: &[&str], expected: Expect) {
    let all = forwards.iter().map(|forward| result_of(WEIGHTS, &net(forward)));
    expected.assert_eq(&all.collect::<String>());
}

#[test]
fn unused_weights_are_not_computed() {
    check_forwards(
        &[
            "return x + self.attn(x, x, x)[0]",
            "y, _ = self.attn(x, x, x)\nreturn y",
            "y, weights = self.attn(x, x, x, attn_mask=mask)\nreturn y",
            "(y, _) = self.attn(x, x, x, need_weights=True)\nreturn y",
            "y, _ = self.attn(x, x, x, None, True)\nreturn y",
            "y, _ = self.attn(x, x, x)\nz, _ = self.attn(y, y, y)\nreturn z",
        ],
        expect![[r#"
            return x + self.attn(x, x, x, need_weights=False)[0]
            y, _ = self.attn(x, x, x, need_weights=False)
            y, weights = self.attn(x, x, x, attn_mask=mask, need_weights=False)
            (y, _) = self.attn(x, x, x, need_weights=False)
            y, _ = self.attn(x, x, x, None, False)
            y, _ = self.attn(x, x, x, need_weights=False)
            z, _ = self.attn(y, y, y, need_weights=False)
        "#]],
    );
}

#[test]
fn used_weights_stay() {
    check_forwards(
        &[
            "return self.attn(x, x, x)",
            "return self.attn(x, x, x)[1]",
            "y = self.attn(x, x, x)\nreturn y[0]",
            "y, weights = self.attn(x, x, x)\nreturn y, weights",
            "y, self.weights = self.attn(x, x, x)\nreturn y",
            "y, _ = self.attn(x, x, x)\nself.seen.append(_)\nreturn y",
            "y, _ = self.attn(x, x, x, need_weights=False)\nreturn y",
            "y, _ = self.attn(x, x, x, need_weights=self.training)\nreturn y",
            "y, _ = self.attn(*args)\nreturn y",
            "y, _ = self.attn(x, x, x, **options)\nreturn y",
        ],
        expect![[r#"
            refused: no call of nn.MultiheadAttention here returns weights that nothing uses
            refused: no call of nn.MultiheadAttention here returns weights that nothing uses
            refused: no call of nn.MultiheadAttention here returns weights that nothing uses
            refused: no call of nn.MultiheadAttention here returns weights that nothing uses
            refused: no call of nn.MultiheadAttention here returns weights that nothing uses
            refused: no call of nn.MultiheadAttention here returns weights that nothing uses
            refused: train.py:11 already returns no weights
            refused: train.py:11 takes need_weights from `self.training`: set it there
            refused: train.py:11 passes starred arguments to the attention
            refused: train.py:11 passes starred arguments to the attention
        "#]],
    );
}
