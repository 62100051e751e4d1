//! `padding-waste`: batches with much padding, which the model processes like real tokens (Krell et
//! al., "Efficient Sequence Packing without Cross-contamination", 2021).

use crate::evidence::{Evidence, Key};
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use ridgeline_operators::operator::{Operator, Tensor};
use ridgeline_profile::Phase;
use ridgeline_recording::observed::Padding;

/// The minimum share of padding; less is usual.
const MIN_PADDING: f64 = 0.2;
/// The minimum share if the padding is only inferred from the ends of rows.
const MIN_INFERRED_PADDING: f64 = 0.35;
/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.05;

pub(super) struct PaddingWaste;

impl Rule for PaddingWaste {
    fn name(&self) -> &'static str {
        "padding-waste"
    }

    fn title(&self) -> &'static str {
        "Batches with much padding"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(manifest) = evidence.manifest() else { return Vec::new() };
        manifest.observed.padding.iter().filter_map(|one| find(evidence, one)).collect()
    }
}

fn find(evidence: &Evidence<'_>, one: &Padding) -> Option<Finding> {
    let share = (one.tokens > 0).then(|| one.padding as f64 / one.tokens as f64)?;
    let is_inferred = one.by == "ends";
    let min_share = if is_inferred { MIN_INFERRED_PADDING } else { MIN_PADDING };
    if !(min_share..=1.0).contains(&share) {
        return None;
    }
    let tokens = Tokens::of(evidence, one)?;
    let phases = [Phase::Forward, Phase::Backward];
    let time_ns: f64 = evidence
        .work
        .iter()
        .filter(|(key, _)| phases.contains(&key.2))
        .filter(|(key, _)| evidence.operator(key).is_some_and(|it| tokens.are_in(it)))
        .map(|(_, work)| work.time_ns())
        .sum();
    let cost_ns = share * time_ns;
    // Inferred padding is mentioned, because attention and losses then treat it as real tokens.
    let inference_note = "Padding is inferred: the same token fills the end of rows of different lengths and \
        appears nowhere else. ";
    let inference_note = if is_inferred { inference_note } else { "" };
    (evidence.share(cost_ns) >= MIN_SHARE).then(|| Finding {
        rule: "padding-waste",
        at: evidence.place(ridgeline_profile::FileId(one.at.file), one.at.line),
        message: format!("{:.0}% of the tokens processed here are padding", 100.0 * share),
        why: format!(
            "{inference_note}Padding tokens cost as much as real ones. Group sequences of similar length \
            into a batch (length bucketing), or pack several sequences into one row."
        ),
        cost: Some(Cost::time(cost_ns).predicted()),
        ..Finding::default()
    })
}

/// The number of rows and columns of an embedding's input.
struct Tokens {
    rows: u64,
    columns: u64,
}

impl Tokens {
    /// The size of the embedding's input on this line, or of the only embedding in the model if
    /// padding was detected by a mask.
    fn of(evidence: &Evidence<'_>, one: &Padding) -> Option<Tokens> {
        let is_here = |key: &&Key| key.0.0 == one.at.file && key.1 == one.at.line;
        let shapes = |keys: &mut dyn Iterator<Item = &Key>| -> Vec<(u64, u64)> {
            let embeddings = keys.filter_map(|key| {
                let operator = evidence.operator(key)?;
                (operator.base_name() == Some("embedding")).then(|| operator.shape(1)).flatten()
            });
            let shapes = embeddings.filter_map(|shape| match shape {
                [rows, columns] if *rows > 1 && *columns > 1 => Some((*rows, *columns)),
                _ => None,
            });
            shapes.collect()
        };
        let mut found = shapes(&mut evidence.work.keys().filter(is_here));
        if found.is_empty() && one.by == "mask" {
            found = shapes(&mut evidence.work.keys().filter(|key| key.2 == Phase::Forward));
            found.dedup();
            // With several embeddings, it is unknown which one the mask belongs to.
            found.truncate(if found.len() == 1 { 1 } else { 0 });
        }
        let (rows, columns) = *found.first()?;
        Some(Tokens { rows, columns })
    }

    fn are_in(&self, operator: &Operator) -> bool {
        operator.input_tensors().any(|tensor| self.are_in_tensor(tensor))
    }

    /// Whether a shape has batch and positions next to each other in either order, or flattened
    /// into one dimension, or is the scores of positions by positions.
    fn are_in_tensor(&self, tensor: &Tensor) -> bool {
        let shape = tensor.shape.as_slice();
        let (rows, columns) = (self.rows, self.columns);
        let all = rows.checked_mul(columns);
        let begins = |pair: [u64; 2]| shape.starts_with(&pair);
        let is_pair = begins([rows, columns]) || begins([columns, rows]);
        let is_flat = shape.len() >= 2 && shape.first().copied() == all;
        // `[batch * heads, positions, …]` and `[batch, heads, positions, …]`.
        let first_is_batch = shape.first().is_some_and(|first| first % rows == 0);
        let has_positions =
            shape.len() >= 3 && shape.get(1..).unwrap_or_default().contains(&columns);
        is_pair || is_flat || (first_is_batch && has_positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_recording::manifest::Location;

    const TEXT: &str = "import torch\n\nx = embedding(tokens)\ny = layer(x)\nz = other(w)\n";
    const ROWS: &[u64] = &[16, 24, 128];

    fn example(padding: u64) -> Case {
        let (table, layer): (&[u64], &[u64]) = (&[1000, 128], &[128, 128]);
        let at = Location { file: 0, line: 3 };
        Case::new(TEXT)
            .with_manifest(|it| {
                let by = "padding_idx".to_owned();
                it.observed.padding = vec![Padding { at, module: 0, tokens: 1000, padding, by }];
            })
            .call(3, Phase::Forward, &operator("embedding", &[table, &[16, 24], ROWS]), 100.0)
            .call(4, Phase::Forward, &operator("linear", &[ROWS, layer, ROWS]), 500.0)
            .call(4, Phase::Backward, &operator("mm", &[&[384, 128], layer, &[384, 128]]), 400.0)
            .call(5, Phase::Forward, &operator("linear", &[&[16, 7], &[7, 7], &[16, 7]]), 1000.0)
    }

    #[test]
    fn cost_is_the_padding_share_of_token_operators() {
        let found = example(400).measured(&PaddingWaste);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 3);
        assert!(found[0].message.starts_with("40%"), "{}", found[0].message);
        // The table lookup, the layer and its gradient, but not the other layer.
        assert_eq!(found[0].cost, Some(Cost::time(0.4 * 1e6).predicted()));
    }

    #[test]
    fn masked_model_uses_its_only_embedding() {
        let masked = |by: &str| {
            let by = by.to_owned();
            example(400).with_manifest(|it| {
                let one = &mut it.observed.padding[0];
                (one.at.line, one.by) = (5, by);
            })
        };
        let found = masked("mask").measured(&PaddingWaste);
        assert_eq!((found.len(), found[0].at.line), (1, 5));
        assert_eq!(found[0].cost, Some(Cost::time(0.4 * 1e6).predicted()));
        assert!(masked("ends").measured(&PaddingWaste).is_empty());
        // Another embedding, possibly of another model.
        let table: &[u64] = &[9, 4];
        let other = operator("embedding", &[table, &[8, 12], &[8, 12, 4]]);
        let two = masked("mask").call(4, Phase::Forward, &other, 1.0);
        assert!(two.measured(&PaddingWaste).is_empty());
    }

    #[test]
    fn inferred_padding_is_explained() {
        let inference_note = |padding: u64| {
            let found =
                example(padding).with_manifest(|it| it.observed.padding[0].by = "ends".to_owned());
            found.measured(&PaddingWaste)
        };
        // A quarter is not enough for inferred padding.
        assert!(inference_note(250).is_empty() && example(250).measured(&PaddingWaste).len() == 1);
        let found = inference_note(400);
        assert!(found[0].why.starts_with("Padding is inferred"), "{}", found[0].why);
    }

    #[test]
    fn little_padding_and_small_costs_are_not_reported() {
        assert!(example(150).measured(&PaddingWaste).is_empty());
        let large = operator("linear", &[&[16, 7], &[7, 7], &[16, 7]]);
        let example = example(400).call(5, Phase::Forward, &large, 100_000.0);
        assert!(example.measured(&PaddingWaste).is_empty());
    }

    #[test]
    fn inconsistent_counts_are_not_reported() {
        assert!(example(2000).measured(&PaddingWaste).is_empty());
        let none = example(400).with_manifest(|it| it.observed.padding[0].tokens = 0);
        assert!(none.measured(&PaddingWaste).is_empty());
        let elsewhere = example(400).with_manifest(|it| it.observed.padding[0].at.line = 5);
        assert!(elsewhere.measured(&PaddingWaste).is_empty());
    }

    #[test]
    fn token_shapes() {
        let tokens = Tokens { rows: 16, columns: 24 };
        let has = |shape: &[u64]| tokens.are_in_tensor(&crate::harness::float(shape));
        assert!(has(&[16, 24, 128]) && has(&[24, 16, 128]) && has(&[384, 128]));
        assert!(has(&[64, 24, 24]) && has(&[16, 4, 24, 24]));
        assert!(!has(&[16, 128]) && !has(&[128, 24]) && !has(&[384]));
    }
}
