//! `lines.bin`: where the user's program stood, at every time. `docs/recording.md` is its
//! description.
//!
//! The log is a sequence of small events; what attribution asks is "which stack, at this time, on
//! this thread". So reading replays the events once and keeps, per thread, the moments at which
//! the stack changed. Stacks are shared in a tree, which keeps a recording of a million events at
//! some tens of megabytes however deep its stacks are.

use std::collections::HashMap;

/// The first eight bytes of the file.
pub const MAGIC: [u8; 8] = *b"RDGLINES";
/// The version of the format that this crate reads.
pub const VERSION: u32 = 1;
/// The size of a record, in bytes, in version 1.
pub const RECORD_SIZE: usize = 24;
/// Bytes before the first record.
pub const HEADER_SIZE: usize = 16;

/// Frames beyond this depth count as their 512th: no training loop nests its own functions deeper,
/// and work on a stack stays bounded.
pub const MAX_DEPTH: u16 = 512;

/// Index into [`Stacks`]; [`StackId::EMPTY`] is a time at which no user code was on the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// No user frame.
    pub const EMPTY: StackId = StackId(0);
}

/// Index into [`Markers`]; [`MarkerId::NONE`] is a time outside every module and phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkerId(pub u32);

impl MarkerId {
    /// Outside every module and phase.
    pub const NONE: MarkerId = MarkerId(0);
}

/// A frame on a stack: a function, and the line on which it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The stack below this frame.
    pub caller: StackId,
    /// Index into the manifest's codes.
    pub code: u32,
    /// From 1.
    pub line: u32,
}

/// What a program may be inside of, besides functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// A call of a module instance, by index into the manifest's modules.
    Module(u32),
    /// A phase by its number in the line log: 0 data, 1 forward, 2 backward, 3 optimizer.
    Phase(u32),
}

/// All stacks that occurred, as a tree: each is its innermost frame and the stack below.
#[derive(Clone, Debug)]
pub struct Stacks {
    frames: Vec<StackFrame>,
    depths: Vec<u16>,
    ids: HashMap<StackFrame, StackId>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        Stacks { frames: vec![StackFrame::default()], depths: vec![0], ids: HashMap::new() }
    }
}

impl Stacks {
    /// How many stacks there are, the empty one included.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is no stack but the empty one.
    pub fn is_empty(&self) -> bool {
        self.frames.len() == 1
    }

    /// The innermost frame, or nothing for the empty stack.
    pub fn top(&self, stack: StackId) -> Option<StackFrame> {
        if stack == StackId::EMPTY { None } else { self.frames.get(stack.0 as usize).copied() }
    }

    /// Number of frames, at most [`MAX_DEPTH`].
    pub fn depth(&self, stack: StackId) -> u16 {
        self.depths.get(stack.0 as usize).copied().unwrap_or(0)
    }

    /// The stacks of all frames, innermost first: the stack itself, its caller's, and so on.
    pub fn walk(&self, stack: StackId) -> impl Iterator<Item = (StackId, StackFrame)> + '_ {
        let mut next = stack;
        std::iter::from_fn(move || {
            let frame = self.top(next)?;
            let here = next;
            next = frame.caller;
            Some((here, frame))
        })
    }

    /// Every stack with its innermost frame, callers before what they called.
    pub fn iter(&self) -> impl Iterator<Item = (StackId, StackFrame)> + '_ {
        (1u32..).zip(self.frames.iter().skip(1)).map(|(id, frame)| (StackId(id), *frame))
    }

    fn enter(&mut self, frame: StackFrame) -> StackId {
        if let Some(&known) = self.ids.get(&frame) {
            return known;
        }
        // Ids cannot run out: each takes a record of 24 bytes, or an event of a trace.
        let id = StackId(self.frames.len() as u32);
        self.frames.push(frame);
        self.depths.push(self.depth(frame.caller).saturating_add(1));
        self.ids.insert(frame, id);
        id
    }
}

/// All nestings of modules and phases that occurred, as a tree.
#[derive(Clone, Debug)]
pub struct Markers {
    markers: Vec<(MarkerId, Marker)>,
    depths: Vec<u16>,
    ids: HashMap<(MarkerId, Marker), MarkerId>,
}

impl Default for Markers {
    fn default() -> Markers {
        let nothing = (MarkerId::NONE, Marker::Phase(u32::MAX));
        Markers { markers: vec![nothing], depths: vec![0], ids: HashMap::new() }
    }
}

impl Markers {
    /// How many nestings there are, the empty one included.
    pub fn len(&self) -> usize {
        self.markers.len()
    }

    /// Whether there is no nesting but the empty one.
    pub fn is_empty(&self) -> bool {
        self.markers.len() == 1
    }

    /// The innermost marker and what is around it, or nothing outside all of them.
    pub fn top(&self, id: MarkerId) -> Option<(MarkerId, Marker)> {
        if id == MarkerId::NONE { None } else { self.markers.get(id.0 as usize).copied() }
    }

    /// Every nesting as its innermost marker and what is around that, outer ones first.
    pub fn iter(&self) -> impl Iterator<Item = (MarkerId, Marker)> + '_ {
        self.markers.iter().skip(1).copied()
    }

    /// The markers around a moment, innermost first.
    pub fn walk(&self, id: MarkerId) -> impl Iterator<Item = Marker> + '_ {
        let mut next = id;
        std::iter::from_fn(move || {
            let (outer, marker) = self.top(next)?;
            next = outer;
            Some(marker)
        })
    }

    fn enter(&mut self, outer: MarkerId, marker: Marker) -> MarkerId {
        if let Some(&known) = self.ids.get(&(outer, marker)) {
            return known;
        }
        let depth = self.depths.get(outer.0 as usize).copied().unwrap_or(0);
        if depth >= MAX_DEPTH {
            return outer;
        }
        let id = MarkerId(self.markers.len() as u32);
        self.markers.push((outer, marker));
        self.depths.push(depth.saturating_add(1));
        self.ids.insert((outer, marker), id);
        id
    }
}

/// From this time on, until the next moment of the thread, the thread stood here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of the realtime clock.
    pub time_ns: i64,
    /// The user's call stack.
    pub stack: StackId,
    /// The modules and phases around.
    pub marker: MarkerId,
    /// Whether this moment is the arrival at a line, which is what "the line ran" counts.
    pub arrived: bool,
    /// Whether this moment is the beginning of the innermost module or phase.
    pub entered: bool,
}

/// What one thread did, in order of time.
#[derive(Clone, Debug, Default)]
pub struct ThreadLines {
    /// As in the trace.
    pub tid: i64,
    /// Whether it runs the training loop.
    pub main: bool,
    /// Never decreasing in time.
    pub moments: Vec<Moment>,
    /// From when to when the recorder ran instead of the program: in order of time, and none overlaps another.
    pub recorder: Vec<(i64, i64)>,
}

impl ThreadLines {
    /// Index of the moment that holds at a time, or nothing before the first.
    pub fn index_at(&self, time_ns: i64) -> Option<usize> {
        self.moments.partition_point(|moment| moment.time_ns <= time_ns).checked_sub(1)
    }

    /// Takes in that the recorder ran until a time. What it ran within that came before.
    fn recorder_ran(&mut self, until_ns: i64, took_ns: u32) {
        let mut from_ns = until_ns.saturating_sub(took_ns.into());
        while let Some((before, _)) = self.recorder.pop_if(|(_, end)| *end > from_ns) {
            from_ns = from_ns.min(before);
        }
        self.recorder.push((from_ns, until_ns));
    }

    /// Where the thread stood at a time; nowhere before its first event.
    pub fn at(&self, time_ns: i64) -> (StackId, MarkerId) {
        self.index_at(time_ns)
            .and_then(|index| self.moments.get(index))
            .map_or((StackId::EMPTY, MarkerId::NONE), |moment| (moment.stack, moment.marker))
    }
}

/// The whole log.
#[derive(Clone, Debug, Default)]
pub struct LineLog {
    /// By the index that records use.
    pub threads: Vec<ThreadLines>,
    /// The stacks that the moments name.
    pub stacks: Stacks,
    /// The nestings that the moments name.
    pub markers: Markers,
    /// Times of the boundaries between iterations, with their numbers.
    pub boundaries: Vec<(i64, u32)>,
    /// Records that were read.
    pub events: u64,
    /// The file ended within a record: its writer was stopped.
    pub cut_short: bool,
}

/// Why a line log could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LineLogError {
    /// The file does not start as a line log does.
    #[error("lines.bin: not a line log (it does not start with RDGLINES)")]
    Magic,
    /// It was written in a format that this version does not know.
    #[error(
        "lines.bin: format {found} is not supported; this Ridgeline reads {VERSION}. Profile \
        again"
    )]
    Version {
        /// The version that it names.
        found: u32,
    },
    /// Its records cannot hold what version 1 says.
    #[error("lines.bin: records have {found} bytes; expected at least {RECORD_SIZE}")]
    RecordSize {
        /// The size that it names.
        found: u32,
    },
}

impl LineLog {
    /// Reads the bytes of `lines.bin`. `threads` are the manifest's: `(tid, whether it is the main
    /// one)`. A thread that the manifest does not know gets the id -1, which no trace has.
    ///
    /// # Errors
    /// Where the header is not a line log's. A log that was cut short is read as far as it goes.
    pub fn parse(bytes: &[u8], threads: &[(i64, bool)]) -> Result<LineLog, LineLogError> {
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
        let mut builder = LineLogBuilder::new(threads);
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

    /// The thread with this id of the trace.
    pub fn thread(&self, tid: i64) -> Option<&ThreadLines> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// The thread that runs the training loop: the one that the manifest names, else the one with
    /// most to say.
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
    /// Nanoseconds of the realtime clock.
    pub time_ns: i64,
    /// See the table in `docs/recording.md`.
    pub kind: u8,
    /// Index into the manifest's threads.
    pub thread: u16,
    /// A code, module, phase or number.
    pub a: u32,
    /// A line.
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
/// The recorder ran until now.
pub const RECORDER: u8 = 8;
/// The line clock starts, perhaps again: the stacks of all threads follow.
pub const STARTED: u8 = 9;

/// Replays records into a [`LineLog`]. Records of a thread come in order of time; those of several
/// threads may be mixed.
#[derive(Debug)]
pub struct LineLogBuilder {
    log: LineLog,
    standing: Vec<Standing>,
}

/// Where a thread stands while its records are replayed.
#[derive(Clone, Copy, Debug)]
struct Standing {
    time_ns: i64,
    stack: StackId,
    marker: MarkerId,
    /// Frames and markers beyond [`MAX_DEPTH`], which have no entry of their own.
    frames_beyond: u64,
    markers_beyond: u64,
}

impl LineLogBuilder {
    /// Starts an empty log of these threads: `(tid, whether it is the main one)`.
    pub fn new(threads: &[(i64, bool)]) -> LineLogBuilder {
        let threads = threads
            .iter()
            .map(|&(tid, main)| ThreadLines { tid, main, ..ThreadLines::default() })
            .collect();
        let log = LineLog { threads, ..LineLog::default() };
        LineLogBuilder { log, standing: Vec::new() }
    }

    /// Replays one record. Kinds that are not known are skipped.
    pub fn record(&mut self, record: Record) {
        self.log.events += 1;
        if record.kind == ITERATION {
            self.log.boundaries.push((record.time_ns, record.a));
            return;
        }
        if record.kind == STARTED {
            for standing in &mut self.standing {
                *standing = Standing { time_ns: standing.time_ns, ..Standing::NOWHERE };
            }
            return;
        }
        let index = usize::from(record.thread);
        while self.log.threads.len() <= index {
            self.log.threads.push(ThreadLines { tid: -1, ..ThreadLines::default() });
        }
        while self.standing.len() <= index {
            self.standing.push(Standing::NOWHERE);
        }
        let (Some(standing), Some(thread)) =
            (self.standing.get_mut(index), self.log.threads.get_mut(index))
        else {
            return;
        };
        let (stacks, markers) = (&mut self.log.stacks, &mut self.log.markers);
        match record.kind {
            LINE => standing.move_to(stacks, record.a, record.b),
            PUSH => standing.push(stacks, record.a, record.b),
            POP => standing.pop(stacks, record.a),
            MODULE_ENTER => standing.enter(markers, Marker::Module(record.a)),
            MODULE_EXIT => standing.exit(markers, Marker::Module(record.a)),
            PHASE_ENTER => standing.enter(markers, Marker::Phase(record.a)),
            PHASE_EXIT => standing.exit(markers, Marker::Phase(record.a)),
            RECORDER => {
                thread.recorder_ran(record.time_ns, record.a);
                return;
            }
            _ => return,
        }
        // A realtime clock can be set back; a thread's own order is the truth.
        standing.time_ns = standing.time_ns.max(record.time_ns);
        thread.moments.push(Moment {
            time_ns: standing.time_ns,
            stack: standing.stack,
            marker: standing.marker,
            arrived: record.kind == LINE,
            entered: matches!(record.kind, MODULE_ENTER | PHASE_ENTER),
        });
    }

    /// The log of everything replayed.
    pub fn finish(mut self) -> LineLog {
        self.log.boundaries.sort_unstable();
        self.log
    }
}

impl Standing {
    const NOWHERE: Standing = Standing {
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
            self.stack = stacks.enter(StackFrame { caller: self.stack, code, line });
        }
    }

    fn move_to(&mut self, stacks: &mut Stacks, code: u32, line: u32) {
        if self.frames_beyond > 0 {
            return;
        }
        // A line of a function that is not on top means that a POP or a PUSH went missing.
        match frame_of(stacks, self.stack, code) {
            Some(frame) => {
                self.stack = stacks.enter(StackFrame { caller: frame.caller, code, line });
            }
            None => self.push(stacks, code, line),
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
        let inner = markers.enter(self.marker, marker);
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

/// The innermost frame of a function on a stack.
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
