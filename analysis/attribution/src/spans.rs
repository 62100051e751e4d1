//! One profiled iteration as it was recorded: spans on tracks, with their lines.
//!
//! Unlike in a profile, recording overhead is not removed, because the order of spans is specific
//! to the recorded iteration.

use std::collections::BTreeMap;

use super::contexts::{ContextId, Contexts};
use super::device::Launches;
use super::join::Join;
use super::lines::Lines;
use super::sources_of;
use super::steps::Steps;
use super::timeline::{self, Piece};
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::line_log::LineLog;
use ridgeline_recording::trace::{Interval, ThreadId};
use ridgeline_recording::{Recording, StringId};

/// The maximum number of threads, and of streams. Others are omitted.
const MAX_TRACKS: usize = 64;

/// The maximum nesting depth. Deeper operators are omitted.
const MAX_DEPTH: usize = 64;

/// One profiled iteration.
#[derive(Clone, Debug, Default)]
pub struct RecordedIteration {
    /// Start in nanoseconds of the recording's clock.
    pub start_ns: i64,
    /// End in nanoseconds of the recording's clock, not before the start.
    pub end_ns: i64,
    /// The tracks, from top to bottom.
    pub tracks: Vec<Track>,
    /// The spans, sorted by track, then start; nested spans come after the span around them.
    pub spans: Vec<Span>,
    /// Number of spans that were omitted.
    pub left_out: usize,
}

/// A track of consecutive spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Track {
    /// The phases of the iteration.
    Phases,
    /// The thread of the training loop.
    MainThread,
    /// A thread of autograd, by number from 1.
    AutogradThread(usize),
    /// Another thread, by the operating system's thread id.
    Thread(Option<i64>),
    /// A stream of a GPU.
    Stream {
        /// Device number.
        device: i64,
        /// Stream number.
        stream: i64,
    },
    /// Idle time of a GPU.
    Idle {
        /// Device number.
        device: i64,
    },
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An operator, runtime call or kernel, by name.
    Named(StringId),
    /// A phase of the iteration.
    Phase,
    /// Idle time of a GPU.
    Idle,
}

/// An interval on a track, within the iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Index into [`RecordedIteration::tracks`].
    pub track: usize,
    /// Number of spans of the track that it is nested in or overlaps with.
    pub depth: usize,
    /// Start in nanoseconds of the recording's clock.
    pub start_ns: i64,
    /// End in nanoseconds, not before the start.
    pub end_ns: i64,
    pub what: SpanKind,
    /// The user's line that it is attributed to. For idle time, the line with the longest single
    /// piece of host time.
    pub line: Option<(FileId, u32)>,
    /// The phase that it belongs to.
    pub phase: Phase,
    /// Index of the runtime call that it is on the host, or that launched it on the GPU.
    pub call: Option<u32>,
}

/// Returns the spans of the iteration whose memory is shown, else of the last iteration. Returns
/// `None` if no iteration was profiled.
pub fn recorded_iteration(recording: &Recording) -> Option<RecordedIteration> {
    let trace = &recording.trace;
    let manifest = recording.manifest.as_ref();
    let steps = Steps::new(recording);
    let measured = steps.measured.filter(|_| manifest.is_some());
    let window = measured.or(steps.windows.last().copied())?;
    let windows = [window];
    let empty_log = LineLog::default();
    let log = recording.lines.as_ref().unwrap_or(&empty_log);
    let join = Join::new(trace, log, &windows);
    let mut contexts = Contexts::new(&join, manifest, recording.lines.is_none());
    let pieces = timeline::pieces(&join, &mut contexts);
    let launches = Launches::new(&join, &mut contexts, recording.manifest.as_ref());

    let mut draft = Draft { window, iteration: RecordedIteration::default(), contexts: Vec::new() };
    (draft.iteration.start_ns, draft.iteration.end_ns) = window;
    draft.phases(&pieces, &contexts);
    draft.threads(&join, &mut contexts, &launches);
    draft.streams(&join, &launches);
    draft.idle(&join, &pieces);

    let sources = manifest.map(sources_of).unwrap_or_default();
    let lines = Lines::new(&sources, &log.stacks);
    let context_of: Vec<(Option<(FileId, u32)>, Phase)> = contexts
        .iter()
        .map(|(_, context)| {
            let line = lines.innermost(&log.stacks, context.line);
            let place = line.and_then(|line| lines.location(line));
            (place.map(|(file, line)| (FileId(file), line)), context.phase)
        })
        .collect();
    for (span, context) in draft.iteration.spans.iter_mut().zip(&draft.contexts) {
        let known = context.and_then(|context| context_of.get(context.0 as usize));
        if let Some((line, phase)) = known {
            // A phase has many lines.
            span.line = line.filter(|_| span.what != SpanKind::Phase);
            span.phase = *phase;
        }
    }
    Some(draft.iteration)
}

struct Draft {
    window: (i64, i64),
    iteration: RecordedIteration,
    /// By span: the context of its line and phase.
    contexts: Vec<Option<ContextId>>,
}

/// A span before it is placed on a track.
#[derive(Clone, Copy, Debug)]
struct Event {
    start_ns: i64,
    end_ns: i64,
    name: StringId,
    context: Option<ContextId>,
    /// See [`Span::call`].
    call: Option<u32>,
}

impl Draft {
    /// Adds the part of a span within the iteration to the newest track.
    fn add(
        &mut self,
        (start_ns, end_ns): (i64, i64),
        depth: usize,
        what: SpanKind,
        context: Option<ContextId>,
        call: Option<u32>,
    ) {
        let (start_ns, end_ns) = (start_ns.max(self.window.0), end_ns.min(self.window.1));
        if start_ns > end_ns {
            return;
        }
        if depth >= MAX_DEPTH {
            self.iteration.left_out += 1;
            return;
        }
        let track = self.iteration.tracks.len().saturating_sub(1);
        let (line, phase) = (None, Phase::Other);
        self.iteration.spans.push(Span { track, depth, start_ns, end_ns, what, line, phase, call });
        self.contexts.push(context);
    }

    fn phases(&mut self, pieces: &[Piece], contexts: &Contexts<'_>) {
        let of = |piece: &Piece| contexts.get(piece.context).map(|context| context.phase);
        if pieces.is_empty() {
            return;
        }
        self.iteration.tracks.push(Track::Phases);
        for run in pieces.chunk_by(|a, b| a.end_ns == b.start_ns && of(a) == of(b)) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                let context = Some(first.context);
                self.add((first.start_ns, last.end_ns), 0, SpanKind::Phase, context, None);
            }
        }
    }

    fn threads(&mut self, join: &Join<'_>, contexts: &mut Contexts<'_>, launches: &Launches) {
        let trace = join.trace;
        let (main, mut threads): (Vec<ThreadId>, Vec<ThreadId>) = (0..trace.threads.len() as u32)
            .map(ThreadId)
            .partition(|thread| join.main == Some(*thread));
        let mut of_autograd = vec![false; trace.threads.len()];
        for (index, operator) in (0_u32..).zip(&trace.operators) {
            if let Some(entry) = of_autograd.get_mut(operator.thread.index())
                && join.in_node(index)
            {
                *entry = true;
            }
        }
        let is_autograd = |thread: &ThreadId| of_autograd.get(thread.index()) == Some(&true);
        threads.sort_by_key(|thread| !is_autograd(thread));
        let mut autograd_threads = 0;
        let mut shown = 0;
        for thread in main.into_iter().chain(threads) {
            let events = self.events_of(thread, join, contexts, launches);
            if events.is_empty() {
                continue;
            }
            shown += 1;
            if shown > MAX_TRACKS {
                self.iteration.left_out += events.len();
                continue;
            }
            let track = if join.main == Some(thread) {
                Track::MainThread
            } else if is_autograd(&thread) {
                autograd_threads += 1;
                Track::AutogradThread(autograd_threads)
            } else {
                Track::Thread(trace.thread_number(thread))
            };
            self.iteration.tracks.push(track);
            self.nested(&events);
        }
    }

    /// Returns a thread's operators and runtime calls within the iteration, in order.
    fn events_of(
        &self,
        thread: ThreadId,
        join: &Join<'_>,
        contexts: &mut Contexts<'_>,
        launches: &Launches,
    ) -> Vec<Event> {
        let trace = join.trace;
        let mut events = Vec::new();
        for (index, operator) in self.within(&trace.operators, thread) {
            events.push(Event {
                start_ns: operator.start_ns,
                end_ns: operator.end_ns(),
                name: operator.name,
                context: Some(contexts.of_operator(index as u32)),
                call: None,
            });
        }
        for (index, call) in self.within(&trace.runtime_calls, thread) {
            events.push(Event {
                start_ns: call.start_ns,
                end_ns: call.end_ns(),
                name: call.name,
                context: launches.contexts.get(index).copied(),
                call: u32::try_from(index).ok(),
            });
        }
        // The sort is stable: of two equal intervals, the operator is around the call.
        events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.end_ns)));
        events
    }

    /// Returns the intervals of a thread that overlap the iteration, with their indices. Intervals
    /// must be sorted by thread, then start.
    fn within<'t, T: Interval>(
        &self,
        all: &'t [T],
        thread: ThreadId,
    ) -> impl Iterator<Item = (usize, &'t T)> {
        let (start_ns, end_ns) = self.window;
        let first = all.partition_point(|interval| interval.thread() < thread);
        let last = all.partition_point(|interval| {
            (interval.thread(), interval.start_ns()) < (thread, end_ns)
        });
        all.iter()
            .enumerate()
            .skip(first)
            .take(last.saturating_sub(first))
            .filter(move |(_, interval)| interval.end_ns() > start_ns)
    }

    /// Adds events in order of their starts, each at the lowest depth that is free. So nested
    /// events are below the one around them, and a kernel that begins before the previous one has
    /// ended (as programmatic dependent launches do) is placed next to it.
    fn nested(&mut self, events: &[Event]) {
        let mut ends: Vec<i64> = Vec::new();
        for event in events {
            let depth = ends.iter().position(|end_ns| *end_ns <= event.start_ns);
            let depth = depth.unwrap_or(ends.len());
            match ends.get_mut(depth) {
                Some(end_ns) => *end_ns = event.end_ns,
                None if depth < MAX_DEPTH => ends.push(event.end_ns),
                None => {}
            }
            let what = SpanKind::Named(event.name);
            self.add((event.start_ns, event.end_ns), depth, what, event.context, event.call);
        }
    }

    fn streams(&mut self, join: &Join<'_>, launches: &Launches) {
        let mut streams: BTreeMap<(i64, i64), Vec<Event>> = BTreeMap::new();
        for (index, activity) in join.trace.activities.iter().enumerate() {
            let (start_ns, end_ns) = (activity.start_ns, activity.end_ns());
            if end_ns <= self.window.0 || start_ns >= self.window.1 {
                continue;
            }
            let details = join.trace.details(activity);
            let stream = (details.device.unwrap_or(0), details.stream.unwrap_or(0));
            let context = launches.context(index);
            let call = launches.call(index).and_then(|call| u32::try_from(call).ok());
            let event = Event { start_ns, end_ns, name: activity.name, context, call };
            streams.entry(stream).or_default().push(event);
        }
        for (number, ((device, stream), mut events)) in streams.into_iter().enumerate() {
            if number >= MAX_TRACKS {
                self.iteration.left_out += events.len();
                continue;
            }
            events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.end_ns)));
            self.iteration.tracks.push(Track::Stream { device, stream });
            self.nested(&events);
        }
    }

    /// Adds the intervals in which no stream of a GPU was busy, attributed to the line with the
    /// longest piece of host time.
    fn idle(&mut self, join: &Join<'_>, pieces: &[Piece]) {
        let (start_ns, end_ns) = self.window;
        let mut busy: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for activity in &join.trace.activities {
            if activity.end_ns() > start_ns && activity.start_ns < end_ns {
                let device = join.trace.details(activity).device.unwrap_or(0);
                let intervals = busy.entry(device).or_default();
                intervals.push((activity.start_ns, activity.end_ns()));
            }
        }
        for (device, mut intervals) in busy.into_iter().take(MAX_TRACKS) {
            intervals.sort_unstable();
            intervals.push((end_ns, end_ns));
            self.iteration.tracks.push(Track::Idle { device });
            let mut idle_from = start_ns;
            for (busy_from, busy_until) in intervals {
                if idle_from < busy_from {
                    let host = longest_in(pieces, idle_from, busy_from);
                    self.add((idle_from, busy_from), 0, SpanKind::Idle, host, None);
                }
                idle_from = idle_from.max(busy_until);
            }
        }
    }
}

/// Returns the context of the longest piece in an interval.
fn longest_in(pieces: &[Piece], start_ns: i64, end_ns: i64) -> Option<ContextId> {
    let first = pieces.partition_point(|piece| piece.end_ns <= start_ns);
    let within = pieces.get(first..)?.iter().take_while(|piece| piece.start_ns < end_ns);
    let longest = within.max_by_key(|piece| {
        piece.end_ns.min(end_ns).saturating_sub(piece.start_ns.max(start_ns))
    })?;
    Some(longest.context)
}

#[cfg(test)]
pub(super) mod tests;
