//! Small disk queries from the event loop, such as resolving a path. A network file system can take
//! seconds to answer, or never answer, and edits wait behind the event loop. So queries have a
//! timeout.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::documents::real_path;

/// The timeout of a query.
const TIMEOUT: Duration = Duration::from_millis(250);
/// The timeout while an earlier query is still pending.
const TIMEOUT_WITH_A_SLOW_DISK: Duration = Duration::from_millis(10);
/// The maximum number of pending queries. Further queries are refused.
const PENDING_LIMIT: usize = 16;

/// Runs each query in its own thread. Clones share the count of pending queries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pending: Arc<AtomicUsize>,
}

struct PendingQuery(Arc<AtomicUsize>);

impl Drop for PendingQuery {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Disk {
    /// Runs `work` on the disk. Returns `None` if it takes too long; it continues in the
    /// background.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let timeout = match self.pending.fetch_add(1, Ordering::Relaxed) {
            0 => TIMEOUT,
            _ => TIMEOUT_WITH_A_SLOW_DISK,
        };
        let query = PendingQuery(self.pending.clone());
        if self.pending.load(Ordering::Relaxed) > PENDING_LIMIT {
            return None;
        }
        let (done, answer) = sync_channel(1);
        let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(move || {
            let answer = work();
            // The count goes down before the answer is sent, so the next query gets the full
            // timeout.
            drop(query);
            let _ = done.send(answer);
        });
        let answered = thread.ok().and_then(|_| answer.recv_timeout(timeout).ok());
        if answered.is_none() {
            tracing::warn!("the disk did not respond in time");
        }
        answered
    }

    /// Returns the path without symbolic links. If the disk does not answer, the path is returned
    /// unchanged.
    pub(crate) fn real_path(&self, path: &Path) -> PathBuf {
        let queried = path.to_owned();
        self.ask(move || real_path(&queried)).unwrap_or_else(|| path.to_owned())
    }

    pub(crate) fn is_file(&self, path: &Path) -> bool {
        let path = path.to_owned();
        self.ask(move || path.is_file()).unwrap_or_default()
    }

    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        let path = path.to_owned();
        self.ask(move || path.is_dir()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Waits until no query is pending. A lost one would stay pending forever.
    fn wait_until_idle(disk: &Disk) {
        while disk.pending.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn answers_are_returned_and_a_panic_gives_none() {
        let disk = Disk::default();
        assert_eq!(disk.ask(|| 7), Some(7));
        assert_eq!(disk.ask(|| -> u32 { panic!("on purpose") }), None);
        assert_eq!(disk.ask(|| 8), Some(8));
        wait_until_idle(&disk);
    }

    #[test]
    fn a_hanging_disk_gets_a_limited_number_of_queries() {
        let disk = Disk::default();
        let (release, held) = channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        for _ in 0..PENDING_LIMIT {
            let held = held.clone();
            let hang = move || {
                let _ = held.lock().expect("no test panics with it").recv();
            };
            assert_eq!(disk.ask(hang), None);
        }
        let (ran, has_run) = channel::<()>();
        assert_eq!(disk.ask(move || ran.send(())), None);
        assert!(has_run.recv().is_err(), "the query ran despite the limit");
        assert_eq!(disk.real_path(Path::new("/a/../b")), Path::new("/a/../b"));
        assert!(!disk.is_file(Path::new("/dev/null")));
        drop(release);
        wait_until_idle(&disk);
        assert_eq!(disk.ask(|| 1), Some(1));
    }
}
