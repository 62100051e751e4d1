//! The rules, each in a file that says what it looks for and where the knowledge comes from.

use super::rule::Rule;

/// All of them.
pub(crate) const ALL: &[&dyn Rule] = &[];
