//! Commands that stop something: their answer waits for its end, so that what the end shows comes first.
//! lsp-mode of Emacs loses what it reads in one piece behind an answer that it waits for, see
//! [`Outbox::request`](crate::outbox::Outbox::request).

use std::time::Duration;

use serde_json::Value;

use crate::consent::Gate;
use crate::pool::Reply;
use crate::scheduler::WorkspaceId;

/// How long an answer waits at the most.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
/// Answers that wait at once; others do not wait.
const MOST: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: WorkspaceId,
    number: u64,
    reply: Reply<Option<Value>>,
}

impl Stopping {
    /// Has an answer wait for the end of a workspace's work; false where it was sent at once.
    pub(crate) fn wait(
        &mut self,
        id: WorkspaceId,
        number: u64,
        reply: Reply<Option<Value>>,
    ) -> bool {
        let has_room = self.waiting.len() < MOST;
        if has_room {
            self.waiting.push(Waiting { id, number, reply });
        } else {
            answer(reply);
        }
        has_room
    }

    /// Sends the answers whose work has ended.
    pub(crate) fn answer_ended(&mut self, gate: &Gate) {
        self.answer(|waiting| !gate.is_busy(waiting.id));
    }

    /// Sends an answer that has waited long enough.
    pub(crate) fn overdue(&mut self, number: u64) {
        self.answer(|waiting| waiting.number == number);
    }

    fn answer(&mut self, is_due: impl Fn(&Waiting) -> bool) {
        let (due, waiting) = self.waiting.drain(..).partition(is_due);
        self.waiting = waiting;
        let due: Vec<Waiting> = due;
        due.into_iter().for_each(|waiting| answer(waiting.reply));
    }
}

fn answer(reply: Reply<Option<Value>>) {
    // The client may have cancelled.
    let _ = reply.send(Ok(None));
}
