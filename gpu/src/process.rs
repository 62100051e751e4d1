//! Starting other programs so that nothing of them outlives what needed them.
//!
//! Each program becomes the leader of a session of its own: the terminal's signals do not reach it,
//! and its whole group can be ended at once. On Linux the kernel can also kill it when this process
//! dies, however that happens. That promise (`PR_SET_PDEATHSIG`) is tied to the *thread* that
//! forked, not to the process, so all programs are started from one thread that never ends.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// The variable that every process of one tree carries, so that a descendant that changed its
/// session and lost its parent can still be found.
pub(crate) const MARK_VARIABLE: &str = "RIDGELINE_PROCESS_TREE";

/// What ends a program when this process dies without ending it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenThisDies {
    /// The kernel kills it (Linux).
    Kill,
    /// It ends itself at the end of its input, in better order than a kill would: it can still end
    /// what it started.
    EndsItself,
}

/// A running program with everything that it started. Dropping it ends all of it.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    pub(crate) child: Child,
    /// Of the program itself, which is also its group's and its session's number.
    pid: u32,
    mark: String,
}

/// Starts `command` in a session of its own.
///
/// # Errors
/// Where the program cannot be started.
pub(crate) async fn spawn(
    mut command: Command,
    when_this_dies: WhenThisDies,
) -> io::Result<ProcessTree> {
    let mark = new_mark();
    command.env(MARK_VARIABLE, &mark).kill_on_drop(true);
    isolate(&mut command, when_this_dies);
    let runtime = tokio::runtime::Handle::current();
    let (reply, answer) = oneshot::channel();
    spawner()?
        .send(Box::new(move || {
            let _entered = runtime.enter();
            // Where nobody waits any more, the child is dropped here, and dropping kills it.
            let _ = reply.send(command.spawn());
        }))
        .map_err(|_| io::Error::other("the thread that starts programs has exited"))?;
    let child = answer
        .await
        .map_err(|_| io::Error::other("the thread that starts programs did not respond"))??;
    let pid = child.id().ok_or_else(|| io::Error::other("the program exited immediately"))?;
    Ok(ProcessTree { child, pid, mark })
}

impl ProcessTree {
    /// Ends the program and everything that it started, at once.
    pub(crate) fn kill(&mut self) {
        // Once its exit status was taken, its number may belong to a stranger.
        let root = self.child.id().map(|_| self.pid);
        let _ = self.child.start_kill();
        kill_tree(root, &self.mark);
    }

    /// Ends what the program's own children left behind: processes whose parent died, so that they
    /// were handed to this process.
    pub(crate) fn kill_orphans(&self) {
        kill_orphans(self.child.id(), &self.mark);
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a program did that ran to its end.
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

/// Runs `command` without input for at most `limit`, keeping at most `output_limit` bytes of each
/// of its outputs (the rest is read and thrown away).
pub(crate) async fn run_bounded(
    command: Command,
    limit: Duration,
    output_limit: usize,
) -> Result<Finished, RunError> {
    run_within(command, limit, u64::MAX, output_limit).await
}

/// As [`run_bounded`], and ends the program when it has more than `memory_limit` bytes of main memory.
/// Only Linux says how much a process has; elsewhere there is no such limit.
pub(crate) async fn run_within(
    mut command: Command,
    limit: Duration,
    memory_limit: u64,
    output_limit: usize,
) -> Result<Finished, RunError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tree = spawn(command, WhenThisDies::Kill).await?;
    let stdout = tree.child.stdout.take();
    let stderr = tree.child.stderr.take();
    let pid = tree.pid;
    let work = async {
        // The program's end counts, not its outputs' end: a daemon that it left behind could hold
        // those for ever.
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
        () = until_larger(pid, memory_limit) => return Err(RunError::TooLarge(memory_limit)),
    };
    match ended {
        Ok(Ok((status, stdout, stderr))) => Ok(Finished { status, stdout, stderr }),
        Ok(Err(error)) => Err(RunError::Start(error)),
        Err(_) => Err(RunError::TooSlow(limit)),
    }
}

/// Waits until a process has more than `limit` bytes of main memory.
async fn until_larger(pid: u32, limit: u64) {
    const BETWEEN: Duration = Duration::from_millis(100);
    if limit == u64::MAX {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(BETWEEN).await;
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

fn new_mark() -> String {
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
fn isolate(command: &mut Command, when_this_dies: WhenThisDies) {
    #[cfg(target_os = "linux")]
    let this_process = rustix::process::getpid();
    // SAFETY: between fork and exec only system calls without allocation or locks are made.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            #[cfg(target_os = "linux")]
            if when_this_dies == WhenThisDies::Kill {
                use rustix::process::{Signal, getppid, set_parent_process_death_signal};
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // This process may have died before the line above took effect.
                if getppid() != Some(this_process) {
                    return Err(io::Error::other("the parent process has exited"));
                }
            }
            Ok(())
        });
    }
}

#[cfg(windows)]
fn isolate(command: &mut Command, _when_this_dies: WhenThisDies) {
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;
    const CREATE_NO_WINDOW: u32 = 0x0800_0000;
    command.creation_flags(CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW);
}

/// Has processes whose parent dies handed to this process rather than to init, so that what a
/// killed zygote leaves behind can be found and ended. Only Linux has this.
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
fn kill_tree(root: Option<u32>, mark: &str) {
    // Descendants are looked up before the group dies, since a dead parent no longer tells them.
    // What is forked while this runs is found by the next round; three rounds outrun all but a fork
    // bomb, which the group's kill ends.
    let mut killed = Vec::new();
    for _ in 0..3 {
        let alive = crate::process_table::tree_of(root, mark);
        root.inspect(|root| kill_group(*root));
        if alive.is_empty() {
            break;
        }
        crate::process_table::kill(&alive);
        killed.extend(alive);
    }
    if !killed.is_empty() {
        reap_later(killed, root, mark.to_owned());
    }
}

#[cfg(target_os = "linux")]
fn kill_orphans(root: Option<u32>, mark: &str) {
    let orphans = crate::process_table::adopted(root, mark);
    if !orphans.is_empty() {
        crate::process_table::kill(&orphans);
        reap_later(orphans, root, mark.to_owned());
    }
}

/// Takes the exit statuses of killed processes that were handed to this one, so that no zombie
/// stays. A killed process needs a moment to end and to be handed over, so this is a thread of its
/// own, for a second. A zombie no longer carries a mark, so the numbers are kept.
#[cfg(target_os = "linux")]
fn reap_later(killed: Vec<u32>, root: Option<u32>, mark: String) {
    let _ = std::thread::Builder::new().name("process-reaper".into()).spawn(move || {
        let mut killed: std::collections::BTreeSet<u32> = killed.into_iter().collect();
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(25));
            let late = crate::process_table::adopted(root, &mark);
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
fn kill_tree(root: Option<u32>, _mark: &str) {
    root.inspect(|root| kill_group(*root));
}

#[cfg(all(unix, not(target_os = "linux")))]
fn kill_orphans(_root: Option<u32>, _mark: &str) {}

/// Windows has no groups to kill and no parent's death signal; what is left there ends when its
/// input ends, which the agent watches.
#[cfg(windows)]
fn kill_tree(_root: Option<u32>, _mark: &str) {}

#[cfg(windows)]
fn kill_orphans(_root: Option<u32>, _mark: &str) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_grows_beyond_its_limit_is_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "x=$(head -c 60000000 /dev/zero | tr '\\0' a); sleep 60; echo $x"]);
        let ended = run_within(command, Duration::from_secs(50), 30 << 20, 1000).await;
        assert!(matches!(ended, Err(RunError::TooLarge(_))), "{ended:?}");
    }
}
