//! The training loop's thread over time, in pieces of one context each.
//!
//! The pieces have neither overlaps nor gaps, so the total time is conserved. While the thread
//! waits for autograd, which works on another thread on a GPU, the pieces are those of that thread.

use super::contexts::{ContextId, Contexts};
use super::correlate::Place;
use super::join::Join;
use ridgeline_recording::line_log::Moment;
use ridgeline_recording::trace::{Operator, ThreadId};

/// An interval with one context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece {
    pub start_ns: i64,
    pub end_ns: i64,
    pub context: ContextId,
    /// The operator that is shown for it; `None` while Python ran.
    pub operator: Option<u32>,
    /// The events recorded in it (see [`super::scale`]).
    pub recorded: Recorded,
}

/// Number of recorded events by kind, which determine the recording overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    pub operators: u32,
    pub line_events: u32,
    /// Nanoseconds of the recorder.
    pub recorder_ns: i64,
}

/// Returns the pieces of all windows; empty if the loop's thread is unknown.
pub(super) fn pieces(join: &Join<'_>, contexts: &mut Contexts<'_>) -> Vec<Piece> {
    let Some(main) = join.main else { return Vec::new() };
    let mut sweep = Sweep { join, contexts, only_nodes: false, pieces: Vec::new() };
    sweep.thread(main);
    let main_pieces = std::mem::take(&mut sweep.pieces);
    sweep.only_nodes = true;
    for index in 0..join.trace.threads.len() {
        let thread = ThreadId(index as u32);
        if thread != main {
            sweep.thread(thread);
        }
    }
    let mut others = sweep.pieces;
    if others.is_empty() {
        return main_pieces;
    }
    others.sort_by_key(|piece| (piece.start_ns, piece.end_ns));
    overlay(&main_pieces, &one_at_a_time(others))
}

/// Returns the piece at an instant. Pieces must be sorted and must not overlap.
pub(super) fn at(pieces: &[Piece], time_ns: i64) -> Option<&Piece> {
    let index = pieces.partition_point(|piece| piece.end_ns <= time_ns);
    pieces.get(index).filter(|piece| piece.start_ns <= time_ns)
}

struct Sweep<'a, 'b> {
    join: &'a Join<'a>,
    contexts: &'a mut Contexts<'b>,
    /// Whether to include only time within autograd nodes.
    only_nodes: bool,
    pieces: Vec<Piece>,
}

impl Sweep<'_, '_> {
    fn thread(&mut self, thread: ThreadId) {
        let operators = &self.join.trace.operators;
        let first = operators.partition_point(|operator| operator.thread < thread);
        let last = operators.partition_point(|operator| operator.thread <= thread);
        if self.only_nodes && !(first..last).any(|index| self.join.in_node(index as u32)) {
            return;
        }
        let mut walk = Walk {
            operators,
            next_operator: first,
            last_operator: last,
            running: Vec::new(),
            moments: self.join.places.moments(thread),
            next_moment: 0,
        };
        let first_of_thread = self.pieces.len();
        for &(start_ns, end_ns) in self.join.windows {
            let first_of_window = self.pieces.len();
            let mut now = start_ns;
            walk.advance(now);
            while now < end_ns {
                let place = walk.place();
                let until = walk.next_change().map_or(end_ns, |change| change.min(end_ns));
                self.add(now, until, walk.innermost(), place);
                now = until;
                let recorded = walk.advance(now);
                self.charge(first_of_window, recorded);
            }
        }
        let recorder = self.join.places.recorder(thread);
        charge_recorder(self.pieces.get_mut(first_of_thread..).unwrap_or_default(), recorder);
    }

    fn add(&mut self, start_ns: i64, end_ns: i64, operator: Option<u32>, place: Place) {
        if start_ns >= end_ns {
            return;
        }
        if self.only_nodes && !operator.is_some_and(|operator| self.join.in_node(operator)) {
            return;
        }
        let context = self.contexts.of_moment(operator, place);
        // Once the user's code runs within the operator (a custom function, a hook), the time
        // belongs to Python until the next operator.
        let operator = operator
            .filter(|&operator| self.join.place_of(operator).stack == place.stack)
            .and_then(|operator| self.join.shown_operator_of(operator));
        if let Some(before) = self.pieces.last_mut()
            && before.end_ns == start_ns
            && before.context == context
            && before.operator == operator
        {
            before.end_ns = end_ns;
            return;
        }
        let recorded = Recorded::default();
        self.pieces.push(Piece { start_ns, end_ns, context, operator, recorded });
    }

    /// Adds recorded events to the previous piece: the profiler does its bookkeeping before it
    /// takes the start time of an operator.
    fn charge(&mut self, first_of_window: usize, recorded: Recorded) {
        if let Some(piece) = self.pieces.get_mut(first_of_window..).and_then(<[Piece]>::last_mut) {
            piece.recorded.operators += recorded.operators;
            piece.recorded.line_events += recorded.line_events;
        }
    }
}

/// Adds the recorder's time to pieces. Both must be sorted by time.
fn charge_recorder(pieces: &mut [Piece], recorder: &[(i64, i64)]) {
    let mut next = 0;
    for piece in pieces {
        while recorder.get(next).is_some_and(|&(_, end_ns)| end_ns <= piece.start_ns) {
            next += 1;
        }
        let within = recorder.get(next..).unwrap_or_default().iter();
        let within = within.take_while(|(start_ns, _)| *start_ns < piece.end_ns);
        let parts = within.map(|&(start_ns, end_ns)| {
            end_ns.min(piece.end_ns).saturating_sub(start_ns.max(piece.start_ns))
        });
        piece.recorded.recorder_ns = parts.sum();
    }
}

/// Walks along a thread's operators and moments.
struct Walk<'a> {
    operators: &'a [Operator],
    next_operator: usize,
    last_operator: usize,
    running: Vec<u32>,
    moments: &'a [Moment],
    next_moment: usize,
}

impl Walk<'_> {
    /// Advances to a time and returns the events recorded on the way.
    fn advance(&mut self, now: i64) -> Recorded {
        let mut recorded = Recorded::default();
        while self.moments.get(self.next_moment).is_some_and(|moment| moment.time_ns <= now) {
            self.next_moment += 1;
            recorded.line_events += 1;
        }
        while let Some(operator) = self.upcoming().filter(|operator| operator.start_ns <= now) {
            self.drop_ended(operator.start_ns);
            self.running.push(self.next_operator as u32);
            self.next_operator += 1;
            recorded.operators += 1;
        }
        self.drop_ended(now);
        recorded
    }

    fn upcoming(&self) -> Option<Operator> {
        (self.next_operator < self.last_operator)
            .then(|| self.operators.get(self.next_operator).copied())?
    }

    fn drop_ended(&mut self, now: i64) {
        while self.innermost_end().is_some_and(|end_ns| end_ns <= now) {
            self.running.pop();
        }
    }

    fn innermost(&self) -> Option<u32> {
        self.running.last().copied()
    }

    fn innermost_end(&self) -> Option<i64> {
        Some(self.operators.get(self.innermost()? as usize)?.end_ns())
    }

    fn place(&self) -> Place {
        self.next_moment
            .checked_sub(1)
            .and_then(|index| self.moments.get(index))
            .map_or(Place::default(), Place::of)
    }

    /// Returns the next time at which anything changes.
    fn next_change(&self) -> Option<i64> {
        let moment = self.moments.get(self.next_moment).map(|moment| moment.time_ns);
        let start = self.upcoming().map(|operator| operator.start_ns);
        [moment, start, self.innermost_end()].into_iter().flatten().min()
    }
}

/// Removes overlaps: if several threads work for autograd at the same time (a loss on several
/// GPUs), an instant belongs to the thread that began first. The pieces must be sorted by start.
fn one_at_a_time(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut kept: Vec<Piece> = Vec::with_capacity(pieces.len());
    for mut piece in pieces {
        piece.start_ns = piece.start_ns.max(kept.last().map_or(i64::MIN, |last| last.end_ns));
        if piece.start_ns < piece.end_ns {
            kept.push(piece);
        }
    }
    kept
}

/// Inserts the other threads' pieces where the main thread runs no operator. Both must be sorted
/// and must not overlap.
fn overlay(main: &[Piece], others: &[Piece]) -> Vec<Piece> {
    let mut result = Vec::with_capacity(main.len() + others.len());
    let mut next = 0;
    for &piece in main {
        while others.get(next).is_some_and(|other| other.end_ns <= piece.start_ns) {
            next += 1;
        }
        if piece.operator.is_some() {
            result.push(piece);
            continue;
        }
        let mut rest = piece;
        let mut index = next;
        while let Some(other) = others.get(index).filter(|other| other.start_ns < piece.end_ns) {
            let start_ns = other.start_ns.max(piece.start_ns);
            let end_ns = other.end_ns.min(piece.end_ns);
            if rest.start_ns < start_ns {
                result.push(Piece { end_ns: start_ns, ..rest });
                rest.recorded = Recorded::default();
            }
            result.push(Piece { start_ns, end_ns, ..*other });
            rest.start_ns = end_ns;
            index += 1;
        }
        if rest.start_ns < rest.end_ns {
            result.push(rest);
        }
    }
    result
}
