//! What this machine has, and what a run may use of it by default.

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use crate::agent::RunLimits;

/// This machine, as far as limits and advice depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Memory in bytes; within a container, its limit. `None` where the system does not say.
    pub memory_bytes: Option<u64>,
    /// Memory that is free now, in bytes; within a container, of its limit.
    pub available_bytes: Option<u64>,
    /// Cores that this process may use.
    pub cores: u32,
}

impl Machine {
    /// Asks the system.
    pub fn query() -> Machine {
        let memory = MemoryRefreshKind::nothing().with_ram();
        let system = System::new_with_specifics(RefreshKind::nothing().with_memory(memory));
        let container = system.cgroup_limits();
        let known = |bytes: u64| (bytes > 0).then_some(bytes);
        let within = |machine: u64, container: Option<u64>| match (known(machine), container) {
            (Some(machine), Some(container)) => Some(machine.min(container)),
            (machine, container) => machine.or(container),
        };
        Machine {
            memory_bytes: within(
                system.total_memory(),
                container.as_ref().and_then(|limits| known(limits.total_memory)),
            ),
            available_bytes: within(
                system.available_memory(),
                // The kernel drops cached files when a program asks for memory; what the container counts
                // as used includes them.
                container.as_ref().map(|limits| limits.total_memory.saturating_sub(limits.rss)),
            ),
            cores: std::thread::available_parallelism()
                .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        }
    }
}

/// Seconds that a run may take: five iterations of anything that fits a save-and-see loop.
const SECONDS: u64 = 120;
/// Of the program's output: enough to find an error, too little to fill a disk.
const LOG_BYTES: u64 = 1_000_000;
/// 48 MB of line log.
const LINE_EVENTS: u64 = 2_000_000;

/// What a run may use where the configuration does not say: three quarters of the memory, so that
/// the person's editor stays alive.
pub fn default_limits(machine: &Machine) -> RunLimits {
    RunLimits {
        seconds: SECONDS,
        // Where the memory is unknown there is nothing to take a share of, so there is no limit.
        memory_bytes: machine.memory_bytes.map_or(u64::MAX, |bytes| bytes / 4 * 3),
        log_bytes: LOG_BYTES,
        line_events: LINE_EVENTS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::query();
        assert!(machine.cores >= 1);
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 28), "{machine:?}");
        assert!(machine.available_bytes <= machine.memory_bytes);
    }

    #[test]
    fn a_run_may_use_three_quarters_of_the_memory() {
        let machine =
            Machine { memory_bytes: Some(16_000_000_000), available_bytes: None, cores: 2 };
        assert_eq!(default_limits(&machine).memory_bytes, 12_000_000_000);
    }

    #[test]
    fn without_a_known_memory_there_is_no_limit() {
        let machine = Machine { memory_bytes: None, available_bytes: None, cores: 2 };
        assert_eq!(default_limits(&machine).memory_bytes, u64::MAX);
    }
}
