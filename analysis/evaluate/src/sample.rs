//! Draws a deterministic sample of the cases.

use sha2::{Digest as _, Sha256};

use super::case::Case;

/// Returns at most `count` of the cases. The choice depends only on the seed and the labels:
/// neither the order of files nor added or removed cases affect the place of a case.
pub fn sample(question: &str, mut cases: Vec<Case>, count: usize, seed: u64) -> Vec<Case> {
    cases.sort_by_cached_key(|case| place(question, &case.label, seed));
    cases.truncate(count);
    cases.sort_by(|one, other| one.label.cmp(&other.label));
    cases
}

fn place(question: &str, label: &str, seed: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(question);
    hash.update([0]);
    hash.update(label);
    hash.finalize().into()
}
