//! This machine's resources, and the default limits of a run.

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use crate::agent::RunLimits;

/// Resources of this machine that limits and advice depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Total memory in bytes, or a container's limit. `None` if the system does not report it.
    pub memory_bytes: Option<u64>,
    /// Free memory in bytes, within a container's limit.
    pub available_bytes: Option<u64>,
    /// CPU cores that this process may use.
    pub cores: u32,
}

impl Machine {
    /// Queries the system.
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
                // Excludes the page cache, which counts as used in the container but is dropped
                // when a program needs memory.
                container.as_ref().map(|limits| limits.total_memory.saturating_sub(limits.rss)),
            ),
            cores: std::thread::available_parallelism()
                .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        }
    }
}

/// Time limit of a run in seconds: five iterations of anything that suits profiling on every save.
const TIME_LIMIT_SECONDS: u64 = 120;
/// Limit of the program's output in bytes: enough to find an error, too little to fill a disk.
const LOG_LIMIT_BYTES: u64 = 1_000_000;
/// Limit of the line log in events, 48 MB.
const LINE_EVENT_LIMIT: u64 = 2_000_000;

/// Returns the default limits of a run. Three quarters of the memory, so the user's editor
/// survives.
pub fn default_limits(machine: &Machine) -> RunLimits {
    RunLimits {
        seconds: TIME_LIMIT_SECONDS,
        // If the total memory is unknown, there is no limit.
        memory_bytes: machine.memory_bytes.map_or(u64::MAX, |bytes| bytes / 4 * 3),
        log_bytes: LOG_LIMIT_BYTES,
        line_events: LINE_EVENT_LIMIT,
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
    fn there_is_no_limit_if_the_memory_size_is_unknown() {
        let machine = Machine { memory_bytes: None, available_bytes: None, cores: 2 };
        assert_eq!(default_limits(&machine).memory_bytes, u64::MAX);
    }
}
