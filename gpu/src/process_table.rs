//! Reads Linux's process table (`/proc`) to find and kill a whole process tree.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::process::MARKER_VARIABLE;

/// A process, from `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    session: u32,
}

/// Returns all live processes that descend from `root`, are in its session, or carry `marker`,
/// except `root` itself. `root` is `None` if it has exited and its process ID may be reused.
pub(crate) fn tree_of(root: Option<u32>, marker: &str) -> Vec<u32> {
    let table = read();
    let mut members: HashSet<u32> = root.into_iter().collect();
    // The table has no useful order, so repeat until no more processes are found.
    loop {
        let before = members.len();
        for process in &table {
            if members.contains(&process.parent) || Some(process.session) == root {
                members.insert(process.pid);
            }
        }
        if members.len() == before {
            break;
        }
    }
    members.extend(table.iter().map(|process| process.pid).filter(|pid| is_marked(*pid, marker)));
    root.inspect(|root| _ = members.remove(root));
    members.remove(&std::process::id());
    members.into_iter().collect()
}

/// Returns processes of `root`'s tree that were reparented to this process when their parent died.
pub(crate) fn adopted(root: Option<u32>, marker: &str) -> Vec<u32> {
    let this_process = std::process::id();
    read()
        .into_iter()
        .filter(|process| process.parent == this_process && Some(process.pid) != root)
        .filter(|process| Some(process.session) == root || is_marked(process.pid, marker))
        .map(|process| process.pid)
        .collect()
}

pub(crate) fn kill(pids: &[u32]) {
    for pid in pids.iter().filter_map(|pid| to_pid(*pid)) {
        if pid != getpid() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Collects the exit status of a process that was reparented to this one and has exited. Returns
/// true if there is nothing left to wait for. Never waits for "any child", because tokio waits for
/// its own.
pub(crate) fn is_reaped(pid: u32) -> bool {
    let Some(pid) = to_pid(pid) else { return true };
    match waitpid(Some(pid), WaitOptions::NOHANG) {
        Ok(Some(_)) => true,
        Ok(None) => false,
        // Not a child of this process: it still has its parent, or is gone.
        Err(_) => rustix::process::test_kill_process(pid).is_err(),
    }
}

/// Returns a process's resident memory in bytes, or `None` if it is gone.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes.saturating_mul(1024))
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn read() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// The program's name is in parentheses and may itself contain parentheses and spaces, so fields
/// are counted from the last one: state, parent, group, session.
fn parse_stat(pid: u32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, session })
}

fn is_marked(pid: u32, marker: &str) -> bool {
    let expected = format!("{MARKER_VARIABLE}={marker}");
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|variables| variables.split(|byte| *byte == 0).any(|v| v == expected.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = "42 (a) b) (c) S 7 42 9 0 -1 4194304 1 2";
        assert_eq!(parse_stat(42, stat), Some(Process { pid: 42, parent: 7, session: 9 }));
    }

    #[test]
    fn a_truncated_line_is_rejected() {
        assert_eq!(parse_stat(42, "42 (sh) S 7"), None);
        assert_eq!(parse_stat(42, ""), None);
    }

    #[test]
    fn memory_is_reported_for_live_processes_only() {
        assert!(resident_bytes(std::process::id()).unwrap() > 1 << 20);
        assert_eq!(resident_bytes(u32::MAX), None);
    }

    #[test]
    fn this_process_is_in_the_table() {
        assert!(read().iter().any(|process| process.pid == std::process::id()));
    }
}
