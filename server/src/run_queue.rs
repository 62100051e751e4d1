//! Which run comes next: one is running, and each workspace has one pending, superseded by newer
//! ones, each with its reason.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::consent::{Cause, Permit};

/// Workspaces that can wait at once; an editor has a handful of folders.
const PENDING_LIMIT: usize = 64;

/// Why a run was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The editor saved this file.
    Saved(PathBuf),
    /// Something else wrote this file.
    ChangedOutside(PathBuf),
    /// The person asked, with this file in front of them where the editor said.
    Asked(Option<PathBuf>),
    /// The person wants to know what an optimization brings, by its name, of the project of this file.
    WhatIf(String, Option<PathBuf>),
}

impl Reason {
    /// The file that it is about.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Reason::Saved(file) | Reason::ChangedOutside(file) => Some(file),
            Reason::Asked(file) | Reason::WhatIf(_, file) => file.as_deref(),
        }
    }

    /// Whether a person asked, and so expects an answer even where it is the one of before.
    pub fn is_asked(&self) -> bool {
        matches!(self, Reason::Asked(_) | Reason::WhatIf(..))
    }

    /// Who wants it.
    pub fn cause(&self) -> Cause {
        if self.is_asked() { Cause::Asked } else { Cause::Unasked }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &Path| {
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        };
        match self {
            Reason::Saved(file) => write!(f, "{} was saved", name(file)),
            Reason::ChangedOutside(file) => write!(f, "{} was changed outside", name(file)),
            Reason::Asked(_) => f.write_str("asked for"),
            Reason::WhatIf(name, _) => write!(f, "measuring what {name} brings"),
        }
    }
}

/// A number that tells runs apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunId(pub u64);

/// The run that is going.
#[derive(Debug)]
pub struct Running {
    /// Which one.
    pub id: RunId,
    /// Its workspace.
    pub root: PathBuf,
    /// Why it was started.
    pub reason: Reason,
    /// What it runs by, and what stops it.
    pub permit: Permit,
}

/// See the module.
#[derive(Debug, Default)]
pub struct RunQueue {
    running: Option<Running>,
    pending: VecDeque<(PathBuf, Reason)>,
    last: u64,
}

impl RunQueue {
    /// Asks for a run. An older wish for the same workspace is superseded, except that a person's
    /// wish is not forgotten for a save behind it.
    pub fn ask(&mut self, root: &Path, reason: Reason) {
        match self.pending.iter_mut().find(|(pending, _)| pending == root) {
            Some((_, before)) if before.is_asked() && !reason.is_asked() => {}
            Some((_, before)) => *before = reason,
            None => self.enqueue(root, reason),
        }
    }

    fn enqueue(&mut self, root: &Path, reason: Reason) {
        if self.pending.len() < PENDING_LIMIT {
            self.pending.push_back((root.to_owned(), reason));
        } else {
            tracing::warn!("too many workspaces wait; {} does not", root.display());
        }
    }

    /// Takes the next wish that gets a permit, where nothing is running; it is running from now on. What
    /// gets none, because consent was taken back while it waited, is dropped.
    pub fn start(
        &mut self,
        mut permit: impl FnMut(&Path, &Reason) -> Option<Permit>,
    ) -> Option<&Running> {
        if self.running.is_some() {
            return None;
        }
        let (root, reason, permit) = loop {
            let (root, reason) = self.pending.pop_front()?;
            if let Some(permit) = permit(&root, &reason) {
                break (root, reason, permit);
            }
        };
        self.last += 1;
        Some(self.running.insert(Running { id: RunId(self.last), root, reason, permit }))
    }

    /// The run that is going.
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// Whether a run of a workspace waits for its turn.
    pub fn is_wanted(&self, root: &Path) -> bool {
        self.pending.iter().any(|(pending, _)| pending == root)
    }

    /// Ends a run; nothing where it is not the one that is going.
    pub fn finish(&mut self, id: RunId) -> Option<Running> {
        self.running.take_if(|running| running.id == id)
    }

    /// Stops a workspace's run and forgets its wish. Says whether there was one.
    pub fn stop(&mut self, root: &Path) -> bool {
        let waiting = self.pending.len();
        self.pending.retain(|(pending, _)| pending != root);
        let running = self.running.as_ref().filter(|running| running.root == root);
        if let Some(running) = running {
            running.permit.end();
        }
        running.is_some() || self.pending.len() < waiting
    }

    /// Forgets a workspace's wish where nobody asked for it, and stops such a run.
    pub fn pause(&mut self, root: &Path) {
        self.pending.retain(|(pending, reason)| pending != root || reason.is_asked());
        let running = self.running.as_ref().filter(|running| running.root == root);
        if let Some(running) = running.filter(|running| !running.reason.is_asked()) {
            running.permit.end();
        }
    }

    /// Stops everything.
    pub fn stop_all(&mut self) {
        self.pending.clear();
        if let Some(running) = &self.running {
            running.permit.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(queue: &mut RunQueue) -> Option<&Running> {
        queue.start(|_, _| Some(Permit::for_test()))
    }

    fn saved(file: &str) -> Reason {
        Reason::Saved(file.into())
    }

    #[test]
    fn fifty_saves_are_two_runs() {
        let mut queue = RunQueue::default();
        let root = Path::new("/w");
        let mut started = 0;
        for save in 0..50 {
            queue.ask(root, saved(&format!("{save}.py")));
            started += u32::from(start(&mut queue).is_some());
        }
        let first = queue.running().expect("the first save's").id;
        assert!(queue.finish(first).is_some());
        let second = start(&mut queue).expect("the newest save's");
        assert_eq!(second.reason, saved("49.py"));
        let second = second.id;
        assert!(queue.finish(second).is_some());
        assert!(start(&mut queue).is_none());
        assert_eq!(started, 1);
    }

    #[test]
    fn workspaces_take_turns() {
        let mut queue = RunQueue::default();
        for root in ["/a", "/b", "/a"] {
            queue.ask(Path::new(root), saved("x.py"));
        }
        let mut order = Vec::new();
        while let Some(running) = start(&mut queue) {
            order.push(running.root.clone());
            let id = running.id;
            queue.finish(id);
        }
        assert_eq!(order, [Path::new("/a"), Path::new("/b")]);
    }

    #[test]
    fn stopping_forgets_what_waits() {
        let mut queue = RunQueue::default();
        let root = Path::new("/w");
        assert!(!queue.stop(root));
        queue.ask(root, saved("a.py"));
        let permit = start(&mut queue).expect("started").permit.clone();
        queue.ask(root, saved("b.py"));
        assert!(queue.stop(root));
        assert!(!permit.is_valid());
        let first = queue.running().expect("not ended yet").id;
        assert!(queue.finish(first).is_some());
        assert!(start(&mut queue).is_none());
    }

    #[test]
    fn a_save_does_not_supersede_a_person() {
        let mut queue = RunQueue::default();
        let root = Path::new("/w");
        queue.ask(root, Reason::Asked(None));
        queue.ask(root, saved("a.py"));
        assert_eq!(start(&mut queue).expect("started").reason, Reason::Asked(None));
    }

    #[test]
    fn what_gets_no_permit_is_dropped() {
        let mut queue = RunQueue::default();
        queue.ask(Path::new("/no"), saved("a.py"));
        queue.ask(Path::new("/yes"), saved("a.py"));
        let root = queue.start(|root, _| (root != Path::new("/no")).then(Permit::for_test));
        assert_eq!(root.map(|running| running.root.clone()), Some("/yes".into()));
        let first = queue.running().expect("the second").id;
        queue.finish(first);
        assert!(start(&mut queue).is_none());
    }

    #[test]
    fn an_old_run_ends_nothing() {
        let mut queue = RunQueue::default();
        queue.ask(Path::new("/w"), saved("a.py"));
        start(&mut queue);
        assert!(queue.finish(RunId(77)).is_none());
        assert!(queue.running().is_some());
    }
}
