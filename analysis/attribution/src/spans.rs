//! One profiled iteration as it was recorded: what ran where and when, from which line.
//!
//! Unlike a profile it is not freed from what recording cost, because what runs when is a matter of
//! the very iteration that was recorded.

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

/// So many threads and so many streams are looked at; what else there is, is left out.
const MOST_TRACKS: usize = 64;

/// Operators within more operators than this are left out.
const MOST_DEPTH: usize = 64;

/// One profiled iteration.
#[derive(Clone, Debug, Default)]
pub struct RecordedIteration {
    /// Nanoseconds, by the clock of the recording.
    pub start_ns: i64,
    /// Nanoseconds, by the clock of the recording; not before the start.
    pub end_ns: i64,
    /// From top to bottom.
    pub tracks: Vec<Track>,
    /// By track, then start; what is within another comes after it.
    pub spans: Vec<Span>,
    /// How many spans have no place on a track.
    pub left_out: usize,
}

/// Something on which one thing runs after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Track {
    /// Which part of the iteration it is.
    Phases,
    /// The thread of the training loop.
    MainThread,
    /// A thread of autograd's, by number from 1.
    AutogradThread(usize),
    /// Another thread, by the operating system's number.
    Thread(Option<i64>),
    /// A stream of a GPU.
    Stream {
        /// The GPU's number.
        device: i64,
        /// The stream's number.
        stream: i64,
    },
    /// When a GPU had nothing to do.
    Idle {
        /// The GPU's number.
        device: i64,
    },
}

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An operator, a call of the runtime, a kernel: by name.
    Named(StringId),
    /// A part of the iteration.
    Phase,
    /// Nothing ran.
    Idle,
}

/// A stretch of time on a track, within the iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Index into [`RecordedIteration::tracks`].
    pub track: usize,
    /// How many spans of the track it is within or beside.
    pub depth: usize,
    /// Nanoseconds, by the clock of the recording.
    pub start_ns: i64,
    /// Nanoseconds, not before the start.
    pub end_ns: i64,
    /// What it is.
    pub what: What,
    /// The user's line that it belongs to; while a GPU was idle, the one on which the host stood
    /// longest at a stretch.
    pub line: Option<(FileId, u32)>,
    /// The part of the iteration that it belongs to.
    pub phase: Phase,
}

/// The iteration whose memory is shown, else the last one; nothing where none was profiled.
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
    let of_contexts: Vec<(Option<(FileId, u32)>, Phase)> = contexts
        .iter()
        .map(|(_, context)| {
            let line = lines.innermost(&log.stacks, context.line);
            let place = line.and_then(|line| lines.location(line));
            (place.map(|(file, line)| (FileId(file), line)), context.phase)
        })
        .collect();
    for (span, context) in draft.iteration.spans.iter_mut().zip(&draft.contexts) {
        let known = context.and_then(|context| of_contexts.get(context.0 as usize));
        if let Some((line, phase)) = known {
            // A phase has many lines.
            span.line = line.filter(|_| span.what != What::Phase);
            span.phase = *phase;
        }
    }
    Some(draft.iteration)
}

struct Draft {
    window: (i64, i64),
    iteration: RecordedIteration,
    /// By span: what says its line and its phase.
    contexts: Vec<Option<ContextId>>,
}

/// What is to become a span.
#[derive(Clone, Copy, Debug)]
struct Event {
    start_ns: i64,
    end_ns: i64,
    name: StringId,
    context: Option<ContextId>,
}

impl Draft {
    /// Adds a span to the newest track, as far as it is within the iteration.
    fn add(
        &mut self,
        (start_ns, end_ns): (i64, i64),
        depth: usize,
        what: What,
        context: Option<ContextId>,
    ) {
        let (start_ns, end_ns) = (start_ns.max(self.window.0), end_ns.min(self.window.1));
        if start_ns > end_ns {
            return;
        }
        if depth >= MOST_DEPTH {
            self.iteration.left_out += 1;
            return;
        }
        let track = self.iteration.tracks.len().saturating_sub(1);
        let (line, phase) = (None, Phase::Other);
        self.iteration.spans.push(Span { track, depth, start_ns, end_ns, what, line, phase });
        self.contexts.push(context);
    }

    fn phases(&mut self, pieces: &[Piece], contexts: &Contexts<'_>) {
        let of = |piece: &Piece| contexts.get(piece.context).map(|context| context.phase);
        if pieces.is_empty() {
            return;
        }
        self.iteration.tracks.push(Track::Phases);
        for stretch in pieces.chunk_by(|a, b| a.end_ns == b.start_ns && of(a) == of(b)) {
            if let (Some(first), Some(last)) = (stretch.first(), stretch.last()) {
                let context = Some(first.context);
                self.add((first.start_ns, last.end_ns), 0, What::Phase, context);
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
            if shown > MOST_TRACKS {
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

    /// A thread's operators and its calls of the runtime within the iteration, in order.
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
            });
        }
        for (index, call) in self.within(&trace.runtime_calls, thread) {
            events.push(Event {
                start_ns: call.start_ns,
                end_ns: call.end_ns(),
                name: call.name,
                context: launches.contexts.get(index).copied(),
            });
        }
        // Stable, so that of two equal stretches the operator is around the call.
        events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.end_ns)));
        events
    }

    /// The intervals of a thread that the iteration has a part of, with their indices. They are
    /// sorted by thread, then start.
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

    /// Adds events in order of their starts, each at the least depth at which nothing runs. What
    /// nests is so within what is around it, and a kernel that begins before the one before it has
    /// ended (programmatic dependent launches do) lies beside it.
    fn nested(&mut self, events: &[Event]) {
        let mut ends: Vec<i64> = Vec::new();
        for event in events {
            let depth = ends.iter().position(|end_ns| *end_ns <= event.start_ns);
            let depth = depth.unwrap_or(ends.len());
            match ends.get_mut(depth) {
                Some(end_ns) => *end_ns = event.end_ns,
                None if depth < MOST_DEPTH => ends.push(event.end_ns),
                None => {}
            }
            let what = What::Named(event.name);
            self.add((event.start_ns, event.end_ns), depth, what, event.context);
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
            let event = Event { start_ns, end_ns, name: activity.name, context };
            streams.entry(stream).or_default().push(event);
        }
        for (number, ((device, stream), mut events)) in streams.into_iter().enumerate() {
            if number >= MOST_TRACKS {
                self.iteration.left_out += events.len();
                continue;
            }
            events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.end_ns)));
            self.iteration.tracks.push(Track::Stream { device, stream });
            self.nested(&events);
        }
    }

    /// When no stream of a GPU ran anything. Who kept it waiting is where the host stood longest.
    fn idle(&mut self, join: &Join<'_>, pieces: &[Piece]) {
        let (start_ns, end_ns) = self.window;
        let mut busy: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for activity in &join.trace.activities {
            if activity.end_ns() > start_ns && activity.start_ns < end_ns {
                let device = join.trace.details(activity).device.unwrap_or(0);
                let stretches = busy.entry(device).or_default();
                stretches.push((activity.start_ns, activity.end_ns()));
            }
        }
        for (device, mut stretches) in busy.into_iter().take(MOST_TRACKS) {
            stretches.sort_unstable();
            stretches.push((end_ns, end_ns));
            self.iteration.tracks.push(Track::Idle { device });
            let mut idle_from = start_ns;
            for (busy_from, busy_until) in stretches {
                if idle_from < busy_from {
                    let host = longest_in(pieces, idle_from, busy_from);
                    self.add((idle_from, busy_from), 0, What::Idle, host);
                }
                idle_from = idle_from.max(busy_until);
            }
        }
    }
}

/// Of the pieces of a stretch of time, the context of the longest.
fn longest_in(pieces: &[Piece], start_ns: i64, end_ns: i64) -> Option<ContextId> {
    let first = pieces.partition_point(|piece| piece.end_ns <= start_ns);
    let within = pieces.get(first..)?.iter().take_while(|piece| piece.start_ns < end_ns);
    let longest = within.max_by_key(|piece| {
        piece.end_ns.min(end_ns).saturating_sub(piece.start_ns.max(start_ns))
    })?;
    Some(longest.context)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Write as _;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{TraceBuilder, recording};
    use crate::tests::{LOOP, operators};

    /// Spans are within the iteration and in order, and what is deeper is within what is around it.
    pub(crate) fn assert_in_order(iteration: &RecordedIteration) {
        let mut before = (0, i64::MIN);
        for span in &iteration.spans {
            assert!(span.track < iteration.tracks.len() && span.depth < MOST_DEPTH, "{span:?}");
            assert!(iteration.start_ns <= span.start_ns, "{span:?}");
            assert!(span.start_ns <= span.end_ns && span.end_ns <= iteration.end_ns, "{span:?}");
            assert!(before <= (span.track, span.start_ns), "{span:?} comes after {before:?}");
            before = (span.track, span.start_ns);
        }
    }

    #[track_caller]
    fn check(trace: TraceBuilder, end_ns: i64, expected: Expect) {
        let recording = recording(trace, LOOP, end_ns);
        let iteration = recorded_iteration(&recording).expect("an iteration");
        assert_in_order(&iteration);
        let mut text = String::new();
        for (index, track) in iteration.tracks.iter().enumerate() {
            writeln!(text, "{track:?}").expect("a text");
            for span in iteration.spans.iter().filter(|span| span.track == index) {
                let what = match span.what {
                    What::Named(id) => recording.trace.text(id),
                    What::Phase => "",
                    What::Idle => "idle",
                };
                let what = what.rsplit(' ').next().unwrap_or_default();
                let indent = "  ".repeat(span.depth + 1);
                let line = span.line.map(|(_, line)| format!(" line {line}")).unwrap_or_default();
                let (from, to) = (span.start_ns, span.end_ns);
                let phase = span.phase.name();
                writeln!(text, "{indent}{from}..{to} {what} {phase}{line}").expect("a text");
            }
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn operators_are_within_each_other_and_know_their_lines() {
        check(
            operators(),
            800,
            expect![[r#"
            Phases
              0..50  data
              50..110  other
              110..300  forward
              300..310  other
              310..600  backward
              600..610  other
              610..700  optimizer
              700..800  other
            MainThread
              140..190 aten::linear forward line 21
              220..280 aten::linear forward line 22
              330..430 AddmmBackward0 backward line 22
              430..440 torch::autograd::AccumulateGrad backward line 22
              450..550 AddmmBackward0 backward line 21
                460..510 aten::mm backward line 21
              620..670 aten::add_ optimizer line 33
        "#]],
        );
    }

    #[test]
    fn only_the_iteration_is_shown() {
        check(
            operators(),
            480,
            expect![[r#"
            Phases
              0..50  data
              50..110  other
              110..300  forward
              300..310  other
              310..480  backward
            MainThread
              140..190 aten::linear forward line 21
              220..280 aten::linear forward line 22
              330..430 AddmmBackward0 backward line 22
              430..440 torch::autograd::AccumulateGrad backward line 22
              450..480 AddmmBackward0 backward line 21
                460..480 aten::mm backward line 21
        "#]],
        );
    }

    #[test]
    fn a_gpu_has_streams_and_idles() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::linear", 140, 50).sequence(1);
        trace.node("AddmmBackward0", 330, 100).sequence(1).forward_thread(1).thread(1);
        trace.kernel("gemm", 150, 200, 100);
        trace.kernel("dgemm", 340, 350, 400);
        trace.launch_thread(1);
        trace.leaked_kernel("gemm", -20, 30);
        check(
            trace,
            800,
            expect![[r#"
                Phases
                  0..50  data
                  50..110  other
                  110..300  forward
                  300..310  other
                  310..600  backward
                  600..610  other
                  610..700  optimizer
                  700..800  other
                MainThread
                  140..190 aten::linear forward line 21
                    150..152 cudaLaunchKernel forward line 21
                AutogradThread(1)
                  330..430 AddmmBackward0 backward line 21
                    340..342 cudaLaunchKernel backward line 21
                Stream { device: 0, stream: 7 }
                  0..10 gemm other
                  200..300 gemm forward line 21
                  350..750 dgemm backward line 21
                Idle { device: 0 }
                  10..200 idle forward line 21
                  300..350 idle backward line 21
                  750..800 idle other line 34
            "#]],
        );
    }

    #[test]
    fn kernels_that_overlap_lie_beside_each_other() {
        let mut trace = TraceBuilder::new();
        trace.op("aten::linear", 140, 50);
        for kernel in 0..4 {
            trace.kernel("gemm", 150, 200 + 90 * kernel, 100);
        }
        let recording = recording(trace, LOOP, 800);
        let iteration = recorded_iteration(&recording).expect("an iteration");
        let of_stream = |span: &&Span| matches!(iteration.tracks[span.track], Track::Stream { .. });
        let depths = iteration.spans.iter().filter(of_stream).map(|span| span.depth);
        assert_eq!(depths.collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn what_is_too_deep_is_counted() {
        let mut trace = TraceBuilder::new();
        for depth in 0..100 {
            trace.op("aten::deep", depth, 300 - 2 * depth);
        }
        let recording = recording(trace, LOOP, 800);
        let iteration = recorded_iteration(&recording).expect("an iteration");
        let deepest = iteration.spans.iter().map(|span| span.depth).max();
        assert_eq!((deepest, iteration.left_out), (Some(63), 36));
    }
}
