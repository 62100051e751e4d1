//! Some of the cases, the same for the same seed.

use sha2::{Digest as _, Sha256};

use super::case::Case;

/// At most `count` of the cases. Which ones follows from the seed and the labels alone: neither the
/// order of files nor other cases that come or go decide about a case's place.
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
