//! Small questions to the disk from the event loop, such as what a path leads to. A network file system can
//! take seconds to answer or never do it, and edits wait behind the event loop: whoever asks gets an answer
//! in time or none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::documents::real_path;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same while an earlier question has no answer yet.
const PATIENCE_WITH_A_SLOW_DISK: Duration = Duration::from_millis(10);
/// Questions without an answer at once; more are not asked.
const MOST_OPEN: usize = 16;

/// Asks in threads of their own. Clones know of each other's questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    open: Arc<AtomicUsize>,
}

struct Question(Arc<AtomicUsize>);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Disk {
    /// Does something with the disk; `None` if that takes too long. What was begun goes on all the same.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let patience = match self.open.fetch_add(1, Ordering::Relaxed) {
            0 => PATIENCE,
            _ => PATIENCE_WITH_A_SLOW_DISK,
        };
        let question = Question(self.open.clone());
        if self.open.load(Ordering::Relaxed) > MOST_OPEN {
            return None;
        }
        let (done, answer) = sync_channel(1);
        let asked = std::thread::Builder::new().name("disk".to_owned()).spawn(move || {
            let answer = work();
            // First it is answered: who has the answer can ask the next question with patience.
            drop(question);
            let _ = done.send(answer);
        });
        let answered = asked.ok().and_then(|_| answer.recv_timeout(patience).ok());
        if answered.is_none() {
            tracing::warn!("the disk did not respond in time");
        }
        answered
    }

    /// A path without links. A disk that does not answer gives the path as it is.
    pub(crate) fn real_path(&self, path: &Path) -> PathBuf {
        let asked = path.to_owned();
        self.ask(move || real_path(&asked)).unwrap_or_else(|| path.to_owned())
    }

    /// Whether a path leads to a file.
    pub(crate) fn is_file(&self, path: &Path) -> bool {
        let asked = path.to_owned();
        self.ask(move || asked.is_file()).unwrap_or_default()
    }

    /// Whether a path leads to a folder.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        let asked = path.to_owned();
        self.ask(move || asked.is_dir()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Waits until no question is open; one that is lost would stay open for ever.
    fn all_answered(disk: &Disk) {
        while disk.open.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_answer_comes_back_and_a_panic_is_none() {
        let disk = Disk::default();
        assert_eq!(disk.ask(|| 7), Some(7));
        assert_eq!(disk.ask(|| -> u32 { panic!("on purpose") }), None);
        assert_eq!(disk.ask(|| 8), Some(8));
        all_answered(&disk);
    }

    #[test]
    fn a_disk_that_hangs_is_not_asked_without_end() {
        let disk = Disk::default();
        let (release, held) = channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        for _ in 0..MOST_OPEN {
            let held = held.clone();
            let hang = move || {
                let _ = held.lock().expect("no test panics with it").recv();
            };
            assert_eq!(disk.ask(hang), None);
        }
        let (asked, was_asked) = channel::<()>();
        assert_eq!(disk.ask(move || asked.send(())), None);
        assert!(was_asked.recv().is_err(), "it was asked all the same");
        assert_eq!(disk.real_path(Path::new("/a/../b")), Path::new("/a/../b"));
        assert!(!disk.is_file(Path::new("/dev/null")));
        drop(release);
        all_answered(&disk);
        assert_eq!(disk.ask(|| 1), Some(1));
    }
}
