//! Commands that stop something. Their response waits until it has stopped, so that messages about
//! the end are sent first. The reason is lsp-mode of Emacs, which loses what it reads in the same
//! chunk after a response that it waits for, see
//! [`Outbox::request`](crate::outbox::Outbox::request).

use std::time::Duration;

use serde_json::Value;

use crate::consent::Gate;
use crate::pool::Reply;
use crate::scheduler::WorkspaceId;

/// The maximum time that a response waits.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
/// The maximum number of waiting responses. Further ones are sent immediately.
const WAITING_LIMIT: usize = 16;

/// The responses that wait until something has stopped.
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
    /// Delays a response until a workspace's work has ended. Returns false if it was sent
    /// immediately.
    pub(crate) fn wait(
        &mut self,
        id: WorkspaceId,
        number: u64,
        reply: Reply<Option<Value>>,
    ) -> bool {
        let has_room = self.waiting.len() < WAITING_LIMIT;
        if has_room {
            self.waiting.push(Waiting { id, number, reply });
        } else {
            answer(reply);
        }
        has_room
    }

    /// Sends the responses of workspaces whose work has ended.
    pub(crate) fn answer_ended(&mut self, gate: &Gate) {
        self.answer(|waiting| !gate.is_busy(waiting.id));
    }

    /// Sends a response that has waited long enough.
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
