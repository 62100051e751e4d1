//! What this machine has, and what a run may use of it by default.

use crate::agent::RunLimits;

/// This machine, as far as limits and advice depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Memory in bytes; within a container, its limit. `None` where the system does not say.
    pub memory_bytes: Option<u64>,
    /// Memory that is free now, in bytes.
    pub available_bytes: Option<u64>,
    /// Cores that this process may use.
    pub cores: u32,
}

impl Machine {
    /// Asks the system.
    pub fn query() -> Machine {
        todo!()
    }
}

/// What a run may use where the configuration does not say.
pub fn default_limits(_machine: &Machine) -> RunLimits {
    todo!()
}
