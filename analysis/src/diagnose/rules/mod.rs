//! The rules, each in a file that says what it looks for and where the knowledge comes from.

use super::rule::Rule;

mod exposed_communication;
mod imbalance;
mod straggler;

/// All of them.
pub(crate) const ALL: &[&dyn Rule] = &[
    &exposed_communication::ExposedCommunication,
    &imbalance::Imbalance,
    &straggler::Straggler,
];
