//! Starts other programs and makes sure that they and their children do not outlive their use.
//!
//! Each program leads its own session, so the terminal's signals do not reach it and its whole
//! group can be killed at once. On Linux the kernel also kills it when this process dies for any
//! reason. That mechanism (`PR_SET_PDEATHSIG`) is tied to the *thread* that forked, not to the
//! process, so all programs are started from one thread that never exits.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// An environment variable that all processes of a tree inherit. It identifies a descendant that
/// changed its session and lost its parent.
pub(crate) const MARKER_VARIABLE: &str = "RIDGELINE_PROCESS_TREE";

/// What ends a program if this process dies without ending it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnParentExit {
    /// The kernel kills it (Linux).
    Kill,
    /// It exits at the end of its input, and can clean up what it started, unlike after a kill.
    EndsItself,
}

/// A running program with all its descendants. Dropping it kills all of them.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    pub(crate) child: Child,
    /// Process ID of the program, which is also its group's and its session's ID.
    pid: u32,
    marker: String,
}

/// Starts `command` in a new session.
///
/// # Errors
/// If the program cannot be started.
pub(crate) async fn spawn(
    mut command: Command,
    when_this_dies: OnParentExit,
) -> io::Result<ProcessTree> {
    let marker = new_marker();
    command.env(MARKER_VARIABLE, &marker).kill_on_drop(true);
    isolate(&mut command, when_this_dies);
    let runtime = tokio::runtime::Handle::current();
    let (reply, answer) = oneshot::channel();
    spawner()?
        .send(Box::new(move || {
            let _entered = runtime.enter();
            // If the receiver was dropped, the child is dropped here, which kills it.
            let _ = reply.send(command.spawn());
        }))
        .map_err(|_| io::Error::other("the thread that starts programs has exited"))?;
    let child = answer
        .await
        .map_err(|_| io::Error::other("the thread that starts programs did not respond"))??;
    let pid = child.id().ok_or_else(|| io::Error::other("the program exited immediately"))?;
    Ok(ProcessTree { child, pid, marker })
}

impl ProcessTree {
    /// Kills the program and all its descendants.
    pub(crate) fn kill(&mut self) {
        // After its exit status was collected, its process ID may be reused.
        let root = self.child.id().map(|_| self.pid);
        let _ = self.child.start_kill();
        kill_tree(root, &self.marker);
    }

    /// Kills orphans of the program: descendants whose parent died and that were reparented to this
    /// process.
    pub(crate) fn kill_orphans(&self) {
        kill_orphans(self.child.id(), &self.marker);
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Result of a program that ran to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("it could not be started: {0}")]
    Start(#[from] io::Error),
    #[error("it did not respond within {} seconds", .0.as_secs())]
    TooSlow(Duration),
    #[error("it used more than {:.0} GB of memory", *.0 as f64 / 1e9)]
    TooLarge(u64),
}

/// Runs `command` without input for at most `limit`. Keeps at most `output_limit` bytes of stdout
/// and of stderr; the rest is read and discarded.
pub(crate) async fn run_bounded(
    command: Command,
    limit: Duration,
    output_limit: usize,
) -> Result<Finished, RunError> {
    run_within(command, limit, u64::MAX, output_limit).await
}

/// Same as [`run_bounded`], but kills the program if its resident memory exceeds `memory_limit`
/// bytes. Only Linux reports that size; elsewhere there is no such limit.
pub(crate) async fn run_within(
    mut command: Command,
    limit: Duration,
    memory_limit: u64,
    output_limit: usize,
) -> Result<Finished, RunError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tree = spawn(command, OnParentExit::Kill).await?;
    let stdout = tree.child.stdout.take();
    let stderr = tree.child.stderr.take();
    let pid = tree.pid;
    let work = async {
        // Wait for the program's exit, not only for the end of its output, which a daemon that it
        // left behind could keep open for ever.
        let outputs = async {
            tokio::join!(read_bounded(stdout, output_limit), read_bounded(stderr, output_limit))
        };
        tokio::pin!(outputs);
        tokio::select! {
            (stdout, stderr) = &mut outputs => {
                Ok((tree.child.wait().await?, stdout, stderr))
            }
            status = tree.child.wait() => {
                let status = status?;
                let (stdout, stderr) = tokio::time::timeout(Duration::from_secs(1), outputs)
                    .await
                    .map_err(|_| io::Error::other("it exited, but its child processes did not"))?;
                Ok((status, stdout, stderr))
            }
        }
    };
    let ended = tokio::select! {
        ended = tokio::time::timeout(limit, work) => ended,
        () = wait_until_larger(pid, memory_limit) => return Err(RunError::TooLarge(memory_limit)),
    };
    match ended {
        Ok(Ok((status, stdout, stderr))) => Ok(Finished { status, stdout, stderr }),
        Ok(Err(error)) => Err(RunError::Start(error)),
        Err(_) => Err(RunError::TooSlow(limit)),
    }
}

/// Waits until a process's resident memory exceeds `limit` bytes.
async fn wait_until_larger(pid: u32, limit: u64) {
    const INTERVAL: Duration = Duration::from_millis(100);
    if limit == u64::MAX {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(INTERVAL).await;
        if resident_bytes(pid).is_some_and(|bytes| bytes > limit) {
            return;
        }
    }
}

#[cfg(target_os = "linux")]
fn resident_bytes(pid: u32) -> Option<u64> {
    crate::process_table::resident_bytes(pid)
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes(_pid: u32) -> Option<u64> {
    None
}

async fn read_bounded(source: Option<impl AsyncRead + Unpin>, limit: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut source) = source else { return kept };
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = source.read(&mut buffer).await {
        let room = limit.saturating_sub(kept.len()).min(count);
        kept.extend(buffer.iter().take(room));
    }
    kept
}

type Job = Box<dyn FnOnce() + Send>;

fn spawner() -> io::Result<&'static mpsc::Sender<Job>> {
    static SPAWNER: OnceLock<Result<mpsc::Sender<Job>, String>> = OnceLock::new();
    SPAWNER
        .get_or_init(|| {
            let (sender, jobs) = mpsc::channel::<Job>();
            std::thread::Builder::new()
                .name("process-spawner".into())
                .spawn(move || {
                    for job in jobs {
                        job();
                    }
                })
                .map(|_| sender)
                .map_err(|error| error.to_string())
        })
        .as_ref()
        .map_err(|error| io::Error::other(error.clone()))
}

fn new_marker() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{started}-{count}", std::process::id())
}

#[cfg(unix)]
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
fn isolate(command: &mut Command, when_this_dies: OnParentExit) {
    #[cfg(target_os = "linux")]
    let this_process = rustix::process::getpid();
    // SAFETY: between fork and exec there are only system calls, without allocation or locks.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            #[cfg(target_os = "linux")]
            if when_this_dies == OnParentExit::Kill {
                use rustix::process::{Signal, getppid, set_parent_process_death_signal};
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // This process may have died before the call above took effect.
                if getppid() != Some(this_process) {
                    return Err(io::Error::other("the parent process has exited"));
                }
            }
            Ok(())
        });
    }
}

#[cfg(windows)]
fn isolate(command: &mut Command, _when_this_dies: OnParentExit) {
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;
    const CREATE_NO_WINDOW: u32 = 0x0800_0000;
    command.creation_flags(CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW);
}

/// Reparents orphaned descendants to this process instead of init, so the children of a killed
/// zygote can be found and killed. Only Linux supports this.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpid, set_child_subreaper};
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            if let Err(error) = set_child_subreaper(Some(getpid())) {
                tracing::warn!(%error, "orphaned processes of the agent cannot be adopted");
            }
        });
    }
}

#[cfg(unix)]
fn kill_group(pid: u32) {
    let leader = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(leader) = leader {
        let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
}

#[cfg(target_os = "linux")]
fn kill_tree(root: Option<u32>, marker: &str) {
    // Descendants are looked up before the group is killed, because the table no longer lists them
    // under a dead parent. Processes that are forked meanwhile are found in the next round. Three
    // rounds catch everything except a fork bomb, which killing the group ends.
    let mut killed = Vec::new();
    for _ in 0..3 {
        let alive = crate::process_table::tree_of(root, marker);
        root.inspect(|root| kill_group(*root));
        if alive.is_empty() {
            break;
        }
        crate::process_table::kill(&alive);
        killed.extend(alive);
    }
    if !killed.is_empty() {
        reap_later(killed, root, marker.to_owned());
    }
}

#[cfg(target_os = "linux")]
fn kill_orphans(root: Option<u32>, marker: &str) {
    let orphans = crate::process_table::adopted(root, marker);
    if !orphans.is_empty() {
        crate::process_table::kill(&orphans);
        reap_later(orphans, root, marker.to_owned());
    }
}

/// Collects the exit statuses of killed processes that were reparented to this one, so no zombies
/// remain. A killed process needs a moment to exit and be reparented, so this is a separate thread
/// that runs for up to a second. Zombies no longer have a marker, so the process IDs are
/// remembered.
#[cfg(target_os = "linux")]
fn reap_later(killed: Vec<u32>, root: Option<u32>, marker: String) {
    let _ = std::thread::Builder::new().name("process-reaper".into()).spawn(move || {
        let mut killed: std::collections::BTreeSet<u32> = killed.into_iter().collect();
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(25));
            let late = crate::process_table::adopted(root, &marker);
            crate::process_table::kill(&late);
            killed.extend(late);
            killed.retain(|pid| !crate::process_table::is_reaped(*pid));
            if killed.is_empty() {
                break;
            }
        }
    });
}

#[cfg(all(unix, not(target_os = "linux")))]
fn kill_tree(root: Option<u32>, _marker: &str) {
    root.inspect(|root| kill_group(*root));
}

#[cfg(all(unix, not(target_os = "linux")))]
fn kill_orphans(_root: Option<u32>, _marker: &str) {}

/// Windows has no process groups to kill and no parent-death signal. Remaining processes exit when
/// their input ends, which the agent watches.
#[cfg(windows)]
fn kill_tree(_root: Option<u32>, _marker: &str) {}

#[cfg(windows)]
fn kill_orphans(_root: Option<u32>, _marker: &str) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_over_its_memory_limit_is_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "x=$(head -c 60000000 /dev/zero | tr '\\0' a); sleep 60; echo $x"]);
        let ended = run_within(command, Duration::from_secs(50), 30 << 20, 1000).await;
        assert!(matches!(ended, Err(RunError::TooLarge(_))), "{ended:?}");
    }
}
