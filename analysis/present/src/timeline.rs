//! The timeline of one profiled iteration, in the columns described in `docs/panel.md`.
//!
//! Columns, because a browser parses a hundred thousand spans as ten arrays of numbers almost
//! instantly, but as a hundred thousand objects in a second.

use std::collections::HashMap;

use serde::Serialize;

use super::panel::SCHEMA;
use ridgeline_attribution::spans::{RecordedIteration, Span, SpanKind, Track, recorded_iteration};
use ridgeline_base::printable::name;
use ridgeline_profile::Phase;
use ridgeline_recording::{Recording, StringId};

/// The maximum number of spans in the panel: more than an iteration of most programs has, but few
/// enough to scroll smoothly.
pub const MAX_SPANS: usize = 200_000;

/// The timeline of one iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    schema: u32,
    generation: u64,
    /// Whether the GPU was simulated, which makes its times those of a model.
    simulated: bool,
    duration_ns: u64,
    names: Vec<String>,
    tracks: Vec<TrackFacts>,
    spans: Columns,
    left_out: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct TrackFacts {
    name: String,
    kind: &'static str,
}

/// One entry for each span in every column, sorted by track, then start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Columns {
    track: Vec<usize>,
    depth: Vec<usize>,
    start_ns: Vec<u64>,
    duration_ns: Vec<u64>,
    name: Vec<usize>,
    file: Vec<i64>,
    line: Vec<u32>,
    phase: Vec<u8>,
    /// The span that launched it; -1 if there is none, or if it was left out.
    launch: Vec<i64>,
}

/// Returns the timeline of a recording with at most `most` spans; the shortest are left out. It is
/// empty if no iteration was profiled.
pub fn timeline(recording: &Recording, generation: u64, most: usize) -> Timeline {
    let empty = Timeline::empty(generation);
    let Some(iteration) = recorded_iteration(recording) else { return empty };
    let several_gpus = has_several_gpus(&iteration.tracks);
    let manifest = recording.manifest.as_ref();
    let mut timeline = Timeline {
        simulated: manifest.is_some_and(|manifest| manifest.device.simulated),
        duration_ns: since(iteration.start_ns, iteration.end_ns),
        tracks: iteration.tracks.iter().map(|track| facts(track, several_gpus)).collect(),
        left_out: iteration.left_out,
        ..empty
    };
    let threshold = threshold_of(&iteration.spans, most);
    let mut names = Names { recording, known: HashMap::new(), texts: Vec::new() };
    let mut equal_spans = threshold.room_for_equals;
    // Spans of the host by their runtime call. Their tracks come before those of streams.
    let mut launches: HashMap<u32, usize> = HashMap::new();
    for span in &iteration.spans {
        let duration_ns = since(span.start_ns, span.end_ns);
        let is_kept = duration_ns > threshold.duration_ns
            || (duration_ns == threshold.duration_ns && equal_spans.next().is_some());
        if !is_kept {
            timeline.left_out += 1;
            continue;
        }
        let is_on_gpu = matches!(iteration.tracks.get(span.track), Some(Track::Stream { .. }));
        let launch = span.call.and_then(|call| launches.get(&call)).filter(|_| is_on_gpu);
        timeline.spans.launch.push(launch.map_or(-1, |at| i64::try_from(*at).unwrap_or(-1)));
        if let Some(call) = span.call.filter(|_| !is_on_gpu) {
            launches.insert(call, timeline.spans.track.len());
        }
        timeline.spans.push(span, duration_ns, names.index(span), &iteration);
    }
    timeline.names = names.texts;
    timeline
}

impl Timeline {
    /// Returns the timeline of a measurement whose recording is not available.
    pub fn empty(generation: u64) -> Timeline {
        Timeline { schema: SCHEMA, generation, ..Timeline::default() }
    }
}

impl Columns {
    fn push(&mut self, span: &Span, duration_ns: u64, name: usize, iteration: &RecordedIteration) {
        self.track.push(span.track);
        self.depth.push(span.depth);
        self.start_ns.push(since(iteration.start_ns, span.start_ns));
        self.duration_ns.push(duration_ns);
        self.name.push(name);
        self.file.push(span.line.map_or(-1, |(file, _)| i64::from(file.0)));
        self.line.push(span.line.map_or(0, |(_, line)| line));
        self.phase.push(span.phase as u8);
    }
}

/// The shortest duration of the spans that are kept.
struct Threshold {
    duration_ns: u64,
    /// Counts the spans of exactly this duration that are kept.
    room_for_equals: std::ops::Range<usize>,
}

fn threshold_of(spans: &[Span], max_spans: usize) -> Threshold {
    let keep_all = Threshold { duration_ns: 0, room_for_equals: 0..spans.len() };
    if spans.len() <= max_spans {
        return keep_all;
    }
    let mut durations: Vec<u64> =
        spans.iter().map(|span| since(span.start_ns, span.end_ns)).collect();
    let Some(last_kept) = max_spans.checked_sub(1) else {
        return Threshold { duration_ns: u64::MAX, room_for_equals: 0..0 };
    };
    let (longer, kept, _) = durations.select_nth_unstable_by(last_kept, |a, b| b.cmp(a));
    let longer = longer.iter().filter(|duration| *duration > kept).count();
    Threshold { duration_ns: *kept, room_for_equals: 0..max_spans.saturating_sub(longer) }
}

/// Collects each name once.
struct Names<'a> {
    recording: &'a Recording,
    /// Indices by name in the trace or by phase; without both, of "idle".
    known: HashMap<(Option<StringId>, Option<Phase>), usize>,
    texts: Vec<String>,
}

impl Names<'_> {
    fn index(&mut self, span: &Span) -> usize {
        let (key, text) = match span.what {
            SpanKind::Named(id) => ((Some(id), None), self.recording.trace.text(id)),
            SpanKind::Phase => ((None, Some(span.phase)), span.phase.name()),
            SpanKind::Idle => ((None, None), "idle"),
        };
        *self.known.entry(key).or_insert_with(|| {
            self.texts.push(name(text));
            self.texts.len() - 1
        })
    }
}

fn facts(track: &Track, several_gpus: bool) -> TrackFacts {
    let on_gpu = |device: &i64, what: String| {
        if several_gpus { format!("GPU {device} {what}") } else { what }
    };
    let (kind, name) = match track {
        Track::Phases => ("phases", "phases".to_owned()),
        Track::MainThread => ("host", "main thread".to_owned()),
        Track::AutogradThread(1) => ("host", "autograd".to_owned()),
        Track::AutogradThread(number) => ("host", format!("autograd {number}")),
        Track::Thread(Some(number)) => ("host", format!("thread {number}")),
        Track::Thread(None) => ("host", "another thread".to_owned()),
        Track::Stream { device, stream } => ("stream", on_gpu(device, format!("stream {stream}"))),
        Track::Idle { .. } if !several_gpus => ("idle", "GPU idle".to_owned()),
        Track::Idle { device } => ("idle", on_gpu(device, "idle".to_owned())),
    };
    TrackFacts { name, kind }
}

fn has_several_gpus(tracks: &[Track]) -> bool {
    tracks.iter().filter(|track| matches!(track, Track::Idle { .. })).count() > 1
}

fn since(start_ns: i64, time_ns: i64) -> u64 {
    u64::try_from(time_ns.saturating_sub(start_ns)).unwrap_or(0)
}
