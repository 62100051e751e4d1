//! Fused attention: the scores never leave the chip (Dao et al., "FlashAttention", 2022), and only
//! queries, keys, values and the output are read and written.

use super::matmul::{Kind, Matmul};
use super::{Kernels, Work};
use crate::operator::{ElementType, Operator, elements};

/// Counts FLOPs like PyTorch: two matrix multiplications forward, five backward because the scores
/// are recomputed. A causal mask does not reduce the count.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let attention = read(name, operator)?;
    let (scores, values) = if attention.backward { (3.0, 2.0) } else { (1.0, 1.0) };
    let pairs = attention.heads * attention.queries * attention.keys;
    Some(2.0 * pairs * (scores * attention.width + values * attention.value_width))
}

struct Attention {
    heads: f64,
    queries: f64,
    keys: f64,
    width: f64,
    value_width: f64,
    backward: bool,
}

fn read(name: &str, operator: &Operator) -> Option<Attention> {
    if !name.contains("scaled_dot_product") || name.contains("fused_attention_overrideable") {
        return None;
    }
    let backward = name.ends_with("_backward");
    let first = usize::from(backward);
    let (query, key, value) =
        (operator.shape(first)?, operator.shape(first + 1)?, operator.shape(first + 2)?);
    let [batch @ .., queries, width] = query else { return None };
    let [.., keys, _] = key else { return None };
    Some(Attention {
        heads: elements(batch),
        queries: *queries as f64,
        keys: *keys as f64,
        width: *width as f64,
        value_width: *value.last()? as f64,
        backward,
    })
}

pub(super) fn launch(name: &str, operator: &Operator, work: &Work, kernels: &mut Kernels) {
    let Some(attention) = read(name, operator) else { return };
    kernels.matmul(Matmul {
        kind: if attention.backward { Kind::AttentionBackward } else { Kind::Attention },
        batch: attention.heads,
        rows: attention.queries,
        columns: attention.keys,
        inner: work.flops / (2.0 * attention.heads * attention.queries * attention.keys).max(1.0),
        element: operator.element().unwrap_or(ElementType::Float32),
        tf32: false,
        bytes: work.bytes.unwrap_or(0.0),
        aligned: true,
    });
}
