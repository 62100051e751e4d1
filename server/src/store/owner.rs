//! Tells whether the process that a temporary file belongs to is alive.

use std::fs;
use std::hash::Hasher as _;

/// The owner of a temporary file or folder, as encoded in its name: `1a2b3c4d-4242`. Machines and
/// containers may share a home folder and use the same process IDs, so the machine is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) machine: u32,
    pub(super) process: u32,
}

impl Owner {
    pub(super) fn this() -> Owner {
        Owner { machine: machine().unwrap_or(0), process: std::process::id() }
    }

    /// Returns the owner of `.tmp-1a2b3c4d-4242-x1y2z3`, or of `batch-…`.
    pub(super) fn of(name: &str) -> Option<Owner> {
        let mut parts = name.split('-').skip(1);
        let machine = u32::from_str_radix(parts.next()?, 16).ok()?;
        Some(Owner { machine, process: parts.next()?.parse().ok()? })
    }

    /// Returns whether the process is alive, or `None` if that cannot be determined from here.
    pub(super) fn is_alive(self) -> Option<bool> {
        (machine() == Some(self.machine)).then(|| is_alive(self.process)).flatten()
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}-{}", self.machine, self.process)
    }
}

/// Returns a hash that identifies this machine and PID namespace, or `None` if unknown, as on
/// systems other than Linux.
fn machine() -> Option<u32> {
    let name = fs::read("/proc/sys/kernel/hostname").ok()?;
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(&name);
    hasher.write(processes.as_os_str().as_encoded_bytes());
    Some(hasher.finish() as u32)
}

#[cfg(unix)]
pub(super) fn is_alive(process: u32) -> Option<bool> {
    let process = rustix::process::Pid::from_raw(i32::try_from(process).ok()?)?;
    // A process that we may not signal is alive.
    let result = rustix::process::test_kill_process(process);
    Some(result != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
pub(super) fn is_alive(_process: u32) -> Option<bool> {
    None
}
