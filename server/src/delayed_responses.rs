//! Responses to commands that wait, so that messages and questions are sent first: until something
//! has stopped, or until a question about a run is asked. The reason is lsp-mode of Emacs, which
//! loses what it reads in the same chunk after a response that it waits for, see
//! [`Outbox::request`](crate::outbox::Outbox::request).

use std::time::Duration;

use serde_json::Value;

use crate::pool::Reply;
use crate::scheduler::WorkspaceId;

/// The maximum time that a response waits.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
/// The maximum number of waiting responses. Further ones are sent immediately.
const WAITING_LIMIT: usize = 16;

/// What a response waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The workspace's work has ended.
    Stopped,
    /// The program to ask about was found.
    ProgramFound,
}

/// The responses that wait.
#[derive(Debug, Default)]
pub(crate) struct DelayedResponses {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: WorkspaceId,
    until: Until,
    number: u64,
    reply: Reply<Option<Value>>,
}

impl DelayedResponses {
    /// Delays a response of a workspace. Returns false if it was sent immediately.
    pub(crate) fn wait(
        &mut self,
        id: WorkspaceId,
        until: Until,
        number: u64,
        reply: Reply<Option<Value>>,
    ) -> bool {
        let has_room = self.waiting.len() < WAITING_LIMIT;
        if has_room {
            self.waiting.push(Waiting { id, until, number, reply });
        } else {
            answer(reply);
        }
        has_room
    }

    /// Sends the responses that need not wait any longer.
    pub(crate) fn answer_due(&mut self, is_due: impl Fn(WorkspaceId, Until) -> bool) {
        self.answer(|waiting| is_due(waiting.id, waiting.until));
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
