//! `lines.bin`: the user's call stack over time. `docs/recording.md` describes the format.
//!
//! The log is a sequence of small events, while attribution asks "which stack, at this time, on
//! this thread". So reading replays the events once and stores, per thread, the moments at which
//! the stack changed. Stacks share a tree, so a recording of a million events takes some tens of
//! megabytes however deep its stacks are.

mod stacks;

pub use stacks::{MAX_DEPTH, Marker, MarkerId, Markers, StackFrame, StackId, Stacks};

use super::manifest::{Expression, Manifest};

/// The first eight bytes of the file.
pub const MAGIC: [u8; 8] = *b"RDGLINES";
/// The version of the format that this crate reads.
pub const VERSION: u32 = 1;
/// The minimum size of a record in bytes, which is its size in version 1.
pub const RECORD_SIZE: usize = 24;
/// Bytes before the first record.
pub const HEADER_SIZE: usize = 16;

/// The state of a thread from this time until its next moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time in nanoseconds of the realtime clock.
    pub time_ns: i64,
    /// The user's call stack.
    pub stack: StackId,
    /// The enclosing modules and phases.
    pub marker: MarkerId,
    /// Whether the moment is the arrival at a line, which counts as one execution of it.
    pub arrived: bool,
    /// Whether the moment is the begin of the innermost frame's expression.
    pub evaluates: bool,
    /// Whether the moment is the start of the innermost module or phase.
    pub entered: bool,
}

/// The moments of one thread, in order of time.
#[derive(Clone, Debug, Default)]
pub struct ThreadLines {
    /// Thread id as in the trace.
    pub tid: i64,
    /// Whether it runs the training loop.
    pub main: bool,
    /// The moments, in non-decreasing order of time.
    pub moments: Vec<Moment>,
    /// Intervals in which the recorder ran instead of the program, sorted and without overlaps.
    pub recorder: Vec<(i64, i64)>,
}

impl ThreadLines {
    /// Returns the index of the moment in effect at a time, or `None` before the first.
    pub fn index_at(&self, time_ns: i64) -> Option<usize> {
        self.moments.partition_point(|moment| moment.time_ns <= time_ns).checked_sub(1)
    }

    /// Adds an interval of the recorder, and merges intervals that overlap it.
    fn recorder_ran(&mut self, until_ns: i64, took_ns: u32) {
        let mut from_ns = until_ns.saturating_sub(took_ns.into());
        while let Some((before, _)) = self.recorder.pop_if(|(_, end)| *end > from_ns) {
            from_ns = from_ns.min(before);
        }
        self.recorder.push((from_ns, until_ns));
    }

    /// Returns the state at a time; empty before the first moment.
    pub fn at(&self, time_ns: i64) -> (StackId, MarkerId) {
        self.index_at(time_ns)
            .and_then(|index| self.moments.get(index))
            .map_or((StackId::EMPTY, MarkerId::NONE), |moment| (moment.stack, moment.marker))
    }
}

/// The whole log.
#[derive(Clone, Debug, Default)]
pub struct LineLog {
    /// Threads, by their index in records.
    pub threads: Vec<ThreadLines>,
    /// The stacks of the moments.
    pub stacks: Stacks,
    /// The nestings of the moments.
    pub markers: Markers,
    /// Boundaries between iterations: time and number.
    pub boundaries: Vec<(i64, u32)>,
    /// Number of records read.
    pub events: u64,
    /// Whether the file ends within a record, because its writer was stopped.
    pub cut_short: bool,
}

/// The reason why a line log could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LineLogError {
    /// The file does not start with [`MAGIC`].
    #[error("lines.bin: not a line log (it does not start with RDGLINES)")]
    Magic,
    /// The version is not supported.
    #[error(
        "lines.bin: format {found} is not supported; this Ridgeline reads {VERSION}. Profile \
        again"
    )]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// Its records are smaller than those of version 1.
    #[error("lines.bin: records have {found} bytes; expected at least {RECORD_SIZE}")]
    RecordSize {
        /// The record size in the file.
        found: u32,
    },
}

impl LineLog {
    /// Parses `lines.bin` of a recording. A thread that its manifest does not list gets the id -1,
    /// which no trace has.
    ///
    /// # Errors
    /// If the header is invalid. A truncated log is not an error.
    pub fn parse(bytes: &[u8], manifest: &Manifest) -> Result<LineLog, LineLogError> {
        let Some((header, records)) = bytes.split_at_checked(HEADER_SIZE) else {
            return Err(LineLogError::Magic);
        };
        if !header.starts_with(&MAGIC) {
            return Err(LineLogError::Magic);
        }
        let version = u32_at(header, 8);
        if version != VERSION {
            return Err(LineLogError::Version { found: version });
        }
        let record_size = u32_at(header, 12);
        if (record_size as usize) < RECORD_SIZE {
            return Err(LineLogError::RecordSize { found: record_size });
        }
        let threads: Vec<(i64, bool)> =
            manifest.threads.iter().map(|thread| (thread.tid, thread.main)).collect();
        let mut builder = LineLogBuilder::new(&threads);
        builder.unknown = manifest.expressions.iter().map(Expression::is_unknown).collect();
        let records = records.chunks_exact(record_size as usize);
        builder.log.cut_short = !records.remainder().is_empty();
        for record in records {
            builder.record(Record {
                time_ns: i64_at(record, 0),
                kind: record.get(8).copied().unwrap_or(u8::MAX),
                thread: u16_at(record, 10),
                a: u32_at(record, 12),
                b: u32_at(record, 16),
            });
        }
        Ok(builder.finish())
    }

    /// Returns the thread with this id of the trace.
    pub fn thread(&self, tid: i64) -> Option<&ThreadLines> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Returns the thread that runs the training loop: the main thread of the manifest, else the
    /// thread with most moments.
    pub fn main_thread(&self) -> Option<&ThreadLines> {
        self.threads
            .iter()
            .find(|thread| thread.main && !thread.moments.is_empty())
            .or_else(|| self.threads.iter().max_by_key(|thread| thread.moments.len()))
    }
}

/// One record of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time in nanoseconds of the realtime clock.
    pub time_ns: i64,
    /// The record's kind, see the table in `docs/recording.md`.
    pub kind: u8,
    /// Index into the manifest's threads.
    pub thread: u16,
    /// A code, module, phase or number.
    pub a: u32,
    /// A line number, or an expression.
    pub b: u32,
}

/// The top frame moves to a line.
pub const LINE: u8 = 0;
/// A user frame is entered or resumed.
pub const PUSH: u8 = 1;
/// A user frame returned, yielded or unwound.
pub const POP: u8 = 2;
/// A module is called.
pub const MODULE_ENTER: u8 = 3;
/// A module's call ends.
pub const MODULE_EXIT: u8 = 4;
/// A phase begins.
pub const PHASE_ENTER: u8 = 5;
/// A phase ends.
pub const PHASE_EXIT: u8 = 6;
/// A boundary between iterations.
pub const ITERATION: u8 = 7;
/// The recorder ran until now, for `a` nanoseconds.
pub const RECORDER: u8 = 8;
/// The line clock starts or restarts; the stacks of all threads follow.
pub const STARTED: u8 = 9;
/// The top frame begins to evaluate an expression on its line.
pub const EXPRESSION: u8 = 10;

/// Replays records into a [`LineLog`]. The records of a thread are in order of time; those of
/// several threads may be interleaved.
#[derive(Debug)]
pub struct LineLogBuilder {
    log: LineLog,
    states: Vec<ThreadState>,
    /// By expression: whether it is unknown, mostly because the recorder stopped following it. Its
    /// records are ignored, because its time would be that of an expression in one iteration and of
    /// the line in the next.
    unknown: Vec<bool>,
}

/// The state of a thread during the replay.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    time_ns: i64,
    stack: StackId,
    marker: MarkerId,
    /// Number of frames and markers beyond [`MAX_DEPTH`], which are not stored.
    frames_beyond: u64,
    markers_beyond: u64,
}

impl LineLogBuilder {
    /// Creates an empty log with these threads: `(tid, whether it is the main thread)`.
    pub fn new(threads: &[(i64, bool)]) -> LineLogBuilder {
        let threads = threads
            .iter()
            .map(|&(tid, main)| ThreadLines { tid, main, ..ThreadLines::default() })
            .collect();
        let log = LineLog { threads, ..LineLog::default() };
        LineLogBuilder { log, states: Vec::new(), unknown: Vec::new() }
    }

    /// Replays one record. Unknown kinds are skipped.
    pub fn record(&mut self, record: Record) {
        self.log.events += 1;
        if record.kind == ITERATION {
            self.log.boundaries.push((record.time_ns, record.a));
            return;
        }
        if record.kind == STARTED {
            for state in &mut self.states {
                *state = ThreadState { time_ns: state.time_ns, ..ThreadState::EMPTY };
            }
            return;
        }
        let index = usize::from(record.thread);
        while self.log.threads.len() <= index {
            self.log.threads.push(ThreadLines { tid: -1, ..ThreadLines::default() });
        }
        while self.states.len() <= index {
            self.states.push(ThreadState::EMPTY);
        }
        let (Some(state), Some(thread)) =
            (self.states.get_mut(index), self.log.threads.get_mut(index))
        else {
            return;
        };
        let (stacks, markers) = (&mut self.log.stacks, &mut self.log.markers);
        match record.kind {
            LINE => state.move_to(stacks, record.a, record.b),
            PUSH => state.push(stacks, record.a, record.b),
            EXPRESSION if self.unknown.get(record.b as usize) == Some(&true) => {}
            EXPRESSION => state.begin(stacks, record.a, record.b),
            POP => state.pop(stacks, record.a),
            MODULE_ENTER => state.enter(markers, Marker::Module(record.a)),
            MODULE_EXIT => state.exit(markers, Marker::Module(record.a)),
            PHASE_ENTER => state.enter(markers, Marker::Phase(record.a)),
            PHASE_EXIT => state.exit(markers, Marker::Phase(record.a)),
            RECORDER => {
                thread.recorder_ran(record.time_ns, record.a);
                return;
            }
            _ => return,
        }
        // The realtime clock can be set back; the order of a thread's records is correct.
        state.time_ns = state.time_ns.max(record.time_ns);
        thread.moments.push(Moment {
            time_ns: state.time_ns,
            stack: state.stack,
            marker: state.marker,
            arrived: record.kind == LINE,
            evaluates: record.kind == EXPRESSION,
            entered: matches!(record.kind, MODULE_ENTER | PHASE_ENTER),
        });
    }

    /// Returns the log of all replayed records.
    pub fn finish(mut self) -> LineLog {
        self.log.boundaries.sort_unstable();
        self.log
    }
}

impl ThreadState {
    const EMPTY: ThreadState = ThreadState {
        time_ns: i64::MIN,
        stack: StackId::EMPTY,
        marker: MarkerId::NONE,
        frames_beyond: 0,
        markers_beyond: 0,
    };

    fn push(&mut self, stacks: &mut Stacks, code: u32, line: u32) {
        if stacks.depth(self.stack) >= MAX_DEPTH {
            self.frames_beyond += 1;
        } else {
            let caller = self.stack;
            self.stack = stacks.intern(StackFrame { caller, code, line, expression: None });
        }
    }

    fn move_to(&mut self, stacks: &mut Stacks, code: u32, line: u32) {
        if self.frames_beyond > 0 {
            return;
        }
        // A line of a function that is not on top means that a POP or PUSH is missing.
        match frame_of(stacks, self.stack, code) {
            Some(frame) => {
                self.stack = stacks.intern(StackFrame { line, expression: None, ..frame });
            }
            None => self.push(stacks, code, line),
        }
    }

    fn begin(&mut self, stacks: &mut Stacks, code: u32, expression: u32) {
        if self.frames_beyond > 0 {
            return;
        }
        if let Some(frame) = frame_of(stacks, self.stack, code) {
            self.stack = stacks.intern(StackFrame { expression: Some(expression), ..frame });
        }
    }

    fn pop(&mut self, stacks: &Stacks, code: u32) {
        if self.frames_beyond > 0 {
            self.frames_beyond -= 1;
        } else if let Some(frame) = frame_of(stacks, self.stack, code) {
            self.stack = frame.caller;
        }
    }

    fn enter(&mut self, markers: &mut Markers, marker: Marker) {
        let inner = markers.intern(self.marker, marker);
        if inner == self.marker {
            self.markers_beyond += 1;
        }
        self.marker = inner;
    }

    fn exit(&mut self, markers: &Markers, marker: Marker) {
        if self.markers_beyond > 0 {
            self.markers_beyond -= 1;
            return;
        }
        let mut at = self.marker;
        while let Some((outer, here)) = markers.top(at) {
            if here == marker {
                self.marker = outer;
                return;
            }
            at = outer;
        }
    }
}

/// Returns the innermost frame of a function on a stack.
fn frame_of(stacks: &Stacks, stack: StackId, code: u32) -> Option<StackFrame> {
    stacks.walk(stack).map(|(_, frame)| frame).find(|frame| frame.code == code)
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |chunk| u16::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn i64_at(bytes: &[u8], offset: usize) -> i64 {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |chunk| i64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests;
