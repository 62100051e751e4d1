//! Attention that is written out, in the manners of public programs, and what cannot be replaced.

use expect_test::expect;

use super::*;

const KIND: EditKind = EditKind::FusedAttention;

/// A causal mask in a buffer, and dropout, as in nanoGPT.
const CAUSAL: &str = r#"import math

import torch
import torch.nn as nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.attn_dropout = nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))
        self.heads = heads

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (one.view(B, T, self.heads, -1).transpose(1, 2) for one in self.qkv(x).split(C, 2))

        # causal self-attention: (B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v  # (B, nh, T, T) x (B, nh, T, hs)
        return y.transpose(1, 2).reshape(B, T, C)


class Other(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("bias", torch.ones(length, length))


print(Attention(64, 4, 16)(torch.randn(2, 16, 64)))
"#;

#[test]
fn causal_attention_with_dropout() {
    check(
        KIND,
        CAUSAL,
        expect![[r#"

        -        # causal self-attention: (B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)
        -        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        -        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        -        att = F.softmax(att, dim=-1)
        -        att = self.attn_dropout(att)
        -        y = att @ v  # (B, nh, T, T) x (B, nh, T, hs)
        +        y = F.scaled_dot_product_attention(
        +            q, k, v, dropout_p=self.attn_dropout.p if self.training else 0.0, is_causal=True
        +        )  # (B, nh, T, T) x (B, nh, T, hs)
                 return y.transpose(1, 2).reshape(B, T, C)
    "#]],
    );
}

/// An optional mask with a finite value and a temperature, as in translations of "Attention is all you
/// need".
#[test]
fn optional_mask_and_temperature() {
    check(
        KIND,
        r#"import torch
import torch.nn as nn


class ScaledDotProductAttention(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, q, k, v, mask=None):
        attn = torch.matmul(q / self.temperature, k.transpose(2, 3))
        if mask is not None:
            attn = attn.masked_fill(mask == 0, -1e9)
        attn = torch.softmax(attn, dim=-1)
        output = torch.matmul(attn, v)
        return output


ScaledDotProductAttention(8**0.5)(1, 2, 3)
"#,
        expect![[r#"
                 def forward(self, q, k, v, mask=None):
            -        attn = torch.matmul(q / self.temperature, k.transpose(2, 3))
            -        if mask is not None:
            -            attn = attn.masked_fill(mask == 0, -1e9)
            -        attn = torch.softmax(attn, dim=-1)
            -        output = torch.matmul(attn, v)
            +        output = nn.functional.scaled_dot_product_attention(
            +            q / self.temperature,
            +            k,
            +            v,
            +            attn_mask=mask != 0 if mask is not None else None,
            +            scale=1.0,
            +        )
                     return output
        "#]],
    );
}

/// A mask filled in place, and the scale inside of the softmax, as in "Build a large language model".
#[test]
fn mask_in_place_and_scale_in_the_softmax() {
    check(
        KIND,
        r#"import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, queries, keys, values, length):
        attn_scores = queries @ keys.transpose(2, 3)  # Dot product for each head

        mask_bool = self.mask.bool()[:length, :length]

        # Use the mask to fill attention scores
        attn_scores.masked_fill_(mask_bool, -torch.inf)

        attn_weights = torch.softmax(attn_scores / keys.shape[-1]**0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)

        context_vec = (attn_weights @ values).transpose(1, 2)
        return context_vec


Attention()(1, 2, 3, 4)
"#,
        expect![[r#"
                 def forward(self, queries, keys, values, length):
            -        attn_scores = queries @ keys.transpose(2, 3)  # Dot product for each head
            -
                     mask_bool = self.mask.bool()[:length, :length]

            -        # Use the mask to fill attention scores
            -        attn_scores.masked_fill_(mask_bool, -torch.inf)
            -
            -        attn_weights = torch.softmax(attn_scores / keys.shape[-1]**0.5, dim=-1)
            -        attn_weights = self.dropout(attn_weights)
            -
            -        context_vec = (attn_weights @ values).transpose(1, 2)
            +        context_vec = nn.functional.scaled_dot_product_attention(
            +            queries,
            +            keys,
            +            values,
            +            attn_mask=~mask_bool,
            +            dropout_p=self.dropout.p if self.training else 0.0,
            +        ).transpose(1, 2)
                     return context_vec
        "#]],
    );
}

#[test]
fn three_dimensions_equations_and_added_masks() {
    let function = |lines: &str| {
        let lines = lines.replace('\n', "\n    ");
        format!(
            "import torch\n\n\ndef attend(q, k, v, mask, scale: float):\n    {lines}\n\n\nattend(1, 2, 3, 4, 5)\n"
        )
    };
    for (before, expected) in [
        (
            "w = torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 8, 2)\nreturn torch.bmm(w, v)",
            "return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0 / 8)",
        ),
        (
            "s = torch.einsum('bhid,bhjd->bhij', q, k) * 0.125\ns += mask\nreturn torch.einsum('bhij,bhjd->bhid', s.softmax(-1), v)",
            "return torch.nn.functional.scaled_dot_product_attention(\n    q, k, v, attn_mask=mask, scale=0.125\n)",
        ),
        (
            "s = torch.where(mask, q @ k, float('-inf'))\nreturn (s.softmax(dim=-1) @ v).sum()",
            "return torch.nn.functional.scaled_dot_product_attention(\n    q, k.transpose(-2, -1), v, attn_mask=mask, scale=1.0\n).sum()",
        ),
        (
            "s = q @ k.mT\nif mask is not None:\n    s = s + mask\nreturn torch.softmax(s, -1) @ v",
            "return torch.nn.functional.scaled_dot_product_attention(\n    q, k, v, attn_mask=mask, scale=1.0\n)",
        ),
        (
            "s = (q @ k.mT).masked_fill(~mask, float('-inf')).masked_fill(v > 2, -math.inf)\nreturn torch.softmax(s.float(), -1).type_as(q) @ v",
            "return torch.nn.functional.scaled_dot_product_attention(\n    q, k, v, attn_mask=(mask) & (v <= 2), scale=1.0\n)",
        ),
    ] {
        let after = edited(&[("train.py", &function(before))], request_for(KIND));
        assert_eq!(after["train.py"].as_ref(), function(expected));
    }
}

#[test]
fn attention_that_cannot_be_replaced() {
    let function = |lines: &str| {
        let lines = lines.replace('\n', "\n    ");
        format!(
            "import torch\nimport torch.nn.functional as F\n\n\ndef attend(self, q, k, v, mask, scale):\n    {lines}\n\n\nattend(1, 2, 3, 4, 5, 6)\n"
        )
    };
    for (text, reason) in [
        // The scores are something else.
        ("return F.softmax((q @ k.mT) ** 2, dim=-1) @ v", "train.py:6 computes scores other"),
        ("s = torch.tanh(q @ k.mT)\nreturn F.softmax(s, dim=-1) @ v", "train.py:6 computes scores"),
        (
            "s = q @ k.mT * 2 + mask\ns = s / 2\nreturn F.softmax(s, -1) @ v",
            "train.py:7 scales the bias",
        ),
        // It may be a tensor.
        (
            "return F.softmax(q @ k.mT * scale, dim=-1) @ v",
            "train.py:6 scales by a value that may be",
        ),
        (
            "s = q @ k.mT / torch.sqrt(torch.tensor(8.0))\nreturn F.softmax(s, -1) @ v",
            "train.py:6 scales by",
        ),
        ("return F.softmax(q @ k.mT / self.scale, dim=-1) @ v", "train.py:6 scales by"),
        // Masked scores are not small.
        (
            "s = (q @ k.mT).masked_fill(mask, 0)\nreturn F.softmax(s, -1) @ v",
            "train.py:6 masks scores with",
        ),
        ("s = (q @ k.mT).masked_fill(mask, -100)\nreturn F.softmax(s, -1) @ v", "train.py:6 masks"),
        // Scores or weights are used.
        ("w = F.softmax(q @ k.mT, dim=-1)\nreturn w @ v, w", "train.py:7 uses scores or weights"),
        ("s = q @ k.mT\nw = F.softmax(s, dim=-1)\nself.seen = s\nreturn w @ v", "train.py:8 uses"),
        ("w = F.softmax(q @ k.mT, dim=-1)\nreturn w @ v + w.sum()", "train.py:7 uses"),
        ("w = F.softmax(q @ k.mT, dim=-1)\nw = w @ v + w\nreturn w", "train.py:7 uses"),
        ("w = F.softmax(q @ k.mT, dim=-1)\nprint(w)\nw = w @ v\nreturn w", "train.py:7 uses"),
        ("s = q @ k.mT\ns = s + s.mean()\nreturn F.softmax(s, -1) @ v", "train.py:7 uses"),
        // A part changes before the end.
        ("w = F.softmax(q @ k.mT, dim=-1)\nk = k + 1\nreturn w @ v", "train.py:7 changes a part"),
        // Other conditions.
        (
            "s = q @ k.mT\nif mask is not None:\n    s = s * 2\nreturn F.softmax(s, -1) @ v",
            "train.py:8 changes scores under",
        ),
        (
            "s = q @ k.mT\nif mask is not None:\n    s = s + mask\nelse:\n    s = s + 1\nreturn F.softmax(s, -1) @ v",
            "train.py:11 computes scores",
        ),
        ("s = q @ k.mT; w = F.softmax(s, dim=-1)\nreturn w @ v", "train.py:6 shares its line"),
        // No attention.
        ("w = F.softmax(q, dim=-1)\nreturn w * v", "no attention written out"),
        ("w = F.softmax(q @ k.mT, dim=1)\nreturn w @ v", "no attention written out"),
        (
            "w = F.softmax(q @ k.mT, dim=-1)\nw = self.mix(w)\nreturn w @ v",
            "no attention written out",
        ),
    ] {
        let text = function(text);
        let (texts, entry) = project(&[("train.py", &text)]);
        let refused = rewrite(&texts, &entry, &request_for(KIND));
        let Err(Refusal::NotUnderstood(why)) = refused else { panic!("{text}: {refused:?}") };
        assert!(why.starts_with(reason), "{text}: {why}");
    }
}

#[test]
fn fallback_next_to_the_fused_call_stays() {
    let text = "import torch\nimport torch.nn.functional as F\ndef f(flash, q, k, v):\n    if flash:\n        return F.scaled_dot_product_attention(q, k, v)\n    return F.softmax(q @ k.mT, dim=-1) @ v\nf(True, 1, 2, 3)\n";
    let (texts, entry) = project(&[("train.py", text)]);
    let refused = rewrite(&texts, &entry, &request_for(KIND));
    let expected = "train.py:6 is for inputs that the fused operator next to it does not support";
    assert_eq!(refused, Err(Refusal::Done(expected.to_owned())));
}

/// Each name may be followed to several others, and each expression has two sides.
#[test]
fn long_chains_of_scores_are_given_up() {
    let lines: String = (0..200).map(|_| "    s = (s + s) * (s + s)\n").collect();
    let text = format!(
        "import torch\ndef f(q, k, v):\n    s = q @ k\n{lines}    return torch.softmax(s, -1) @ v\nf(1, 2, 3)\n"
    );
    let (texts, entry) = project(&[("train.py", &text)]);
    let refused = rewrite(&texts, &entry, &request_for(KIND));
    assert!(matches!(refused, Err(Refusal::NotUnderstood(_))), "{refused:?}");
}
