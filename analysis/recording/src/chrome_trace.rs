//! Reads Kineto's Chrome trace, plain or gzip, from 2021 to today.
//!
//! The file is read as a stream: one thread inflates, the other parses events, and besides the
//! [`Trace`] only a window of a few hundred kilobytes is in memory. A truncated file gives the part
//! that was read and the position of the truncation; everything else that is wrong is an error with
//! its position.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::chrome_trace_builder::Builder;
use super::chrome_trace_events::Event;
use super::chrome_trace_header::{Header, HeaderKey};
use super::chrome_trace_inflate::{CHUNKS_IN_FLIGHT, Chunk, fill_chunks};
use super::chrome_trace_json::{Scanner, Stop};
use super::trace::Trace;

/// What to read, and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to read Python frames, often half of all events.
    pub python_frames: bool,
    /// Maximum number of events that are stored. A trace with more is rejected, here and for all
    /// limits below.
    pub max_events: u64,
    /// Maximum bytes of distinct names, shapes and call stacks.
    pub max_string_bytes: usize,
    /// Maximum bytes of memory for the trace and for summarizing it afterwards.
    pub max_memory_bytes: u64,
    /// Maximum bytes of one event or one header member.
    pub max_value_bytes: usize,
    /// Maximum bytes of JSON.
    pub max_json_bytes: u64,
    /// Maximum ratio of JSON to gzip data. Real traces reach 30, decompression bombs reach 1000.
    pub max_expansion: u64,
    /// Bytes of JSON that the inflating thread sends at a time.
    pub chunk_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            python_frames: true,
            max_events: 100_000_000,
            max_string_bytes: 256 << 20,
            max_memory_bytes: DEFAULT_MEMORY_BYTES,
            max_value_bytes: 32 << 20,
            max_json_bytes: 16 << 30,
            max_expansion: 300,
            chunk_bytes: 256 << 10,
        }
    }
}

/// The default of [`Options::max_memory_bytes`], enough for about 4 GB of JSON with arguments, or
/// 30 million events without arguments.
pub const DEFAULT_MEMORY_BYTES: u64 = 2_000_000_000;

/// The reason why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file has no bytes.
    #[error("the trace is empty")]
    Empty,
    /// Reading the file failed.
    #[error("cannot read the trace: {0}")]
    Read(#[source] io::Error),
    /// The gzip data is damaged.
    #[error("the trace's gzip data is damaged after {offset} bytes of JSON: {source}")]
    Damaged {
        /// Number of JSON bytes before the damage.
        offset: u64,
        /// The error of the decoder.
        source: io::Error,
    },
    /// It is not JSON, or not the JSON of a trace.
    #[error("the trace is invalid at byte {offset}: expected {expected}")]
    Invalid {
        /// Byte offset of the error in the JSON.
        offset: u64,
        /// The expected input.
        expected: &'static str,
    },
    /// It is JSON, but not a trace.
    #[error("the file has no `traceEvents` list: it is not a profiler trace")]
    NoEvents,
    /// It is truncated before the first event.
    #[error("the trace is truncated at byte {offset}, before its events")]
    EndsEarly {
        /// Bytes of JSON in the file.
        offset: u64,
    },
    /// One value is too long.
    #[error("the value at byte {offset} exceeds {limit} bytes")]
    ValueTooLong {
        /// Byte offset of the value in the JSON.
        offset: u64,
        /// [`Options::max_value_bytes`].
        limit: usize,
    },
    /// A limit of [`Options`] was exceeded.
    #[error("the trace has more than {limit} {what}")]
    TooMany {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// [`Options::max_memory_bytes`] was exceeded.
    #[error(
        "the trace needs more than {} MB of memory: its first {events} events already do",
        limit / 1_000_000
    )]
    TooMuchMemory {
        /// The limit.
        limit: u64,
        /// Number of events stored until then.
        events: u64,
    },
    /// The gzip data is a decompression bomb.
    #[error("the trace's gzip data decompresses to more than {limit} times its size")]
    Bomb {
        /// [`Options::max_expansion`].
        limit: u64,
    },
}

impl Trace {
    /// Reads a Chrome trace, as JSON or as gzip of JSON, detected from its first bytes.
    ///
    /// The document may be an object with `traceEvents`, or the list of events itself. Inflating
    /// runs on another thread. A file that is truncated after events have begun is not an error;
    /// [`Trace::truncated_at`] has the position.
    ///
    /// # Errors
    /// Those of [`TraceError`].
    pub fn read(source: impl Read + Send, options: &Options) -> Result<Trace, TraceError> {
        // Chunks are recycled through `empty`, so only this many are ever allocated.
        let (filled_sender, filled) = sync_channel(CHUNKS_IN_FLIGHT);
        let (empty, empty_receiver) = sync_channel(CHUNKS_IN_FLIGHT + 2);
        thread::scope(|scope| {
            thread::Builder::new()
                .name("inflate".to_owned())
                .spawn_scoped(scope, move || {
                    fill_chunks(source, options, &filled_sender, &empty_receiver);
                })
                .map_err(TraceError::Read)?;
            let mut window = Window::new(filled, empty, options);
            read_document(&mut window, options)
            // Dropping the window closes its channel, which ends the thread.
        })
    }
}

/// The part of the JSON that is in memory.
struct Window<'o> {
    filled: Receiver<Chunk>,
    empty: SyncSender<Vec<u8>>,
    options: &'o Options,
    bytes: Vec<u8>,
    /// Offset of the next value in `bytes`.
    at: usize,
    /// Number of JSON bytes before `bytes`.
    dropped: u64,
    has_ended: bool,
    /// Whether the gzip data was truncated, even if the JSON was complete.
    is_truncated: bool,
}

/// The result of reading a value from the window, if there was no error.
enum Progress<T> {
    Read(T),
    /// The JSON ended within the value.
    Ended,
}

impl<'o> Window<'o> {
    fn new(filled: Receiver<Chunk>, empty: SyncSender<Vec<u8>>, options: &'o Options) -> Self {
        let (bytes, at, dropped) = (Vec::new(), 0, 0);
        Window { filled, empty, options, bytes, at, dropped, has_ended: false, is_truncated: false }
    }

    fn offset(&self, at: usize) -> u64 {
        self.dropped.saturating_add(at as u64)
    }

    /// Returns the number of JSON bytes received so far.
    fn end_offset(&self) -> u64 {
        self.offset(self.bytes.len())
    }

    /// Reads a value that may extend beyond the window. If it does, more bytes are received and the
    /// value is read again from its start. Only a complete value advances the window.
    fn read<T>(
        &mut self,
        mut value: impl FnMut(&mut Scanner<'_>) -> Result<T, ValueError>,
    ) -> Result<Progress<T>, TraceError> {
        loop {
            let mut scanner = Scanner::new(&self.bytes, self.at);
            match value(&mut scanner) {
                Ok(read) => {
                    self.at = scanner.at();
                    return Ok(Progress::Read(read));
                }
                Err(ValueError::Stop(Stop::Incomplete)) => {
                    if self.has_ended {
                        return Ok(Progress::Ended);
                    }
                    self.fetch()?;
                }
                Err(ValueError::Stop(Stop::Invalid { at, expected })) => {
                    return Err(TraceError::Invalid { offset: self.offset(at), expected });
                }
                Err(ValueError::Trace(error)) => return Err(error),
            }
        }
    }

    /// Drops the bytes that were read and receives at least one chunk, and at least as many bytes
    /// as before. So reading a long value repeatedly takes time linear in its length.
    fn fetch(&mut self) -> Result<(), TraceError> {
        self.bytes.drain(..self.at);
        self.dropped = self.offset(self.at);
        self.at = 0;
        let limit = self.options.max_value_bytes;
        if self.bytes.len() > limit {
            return Err(TraceError::ValueTooLong { offset: self.dropped, limit });
        }
        let wanted = self.bytes.len().saturating_mul(2).max(1);
        while self.bytes.len() < wanted && !self.has_ended {
            match self.filled.recv() {
                Ok(Chunk::Bytes(chunk)) => {
                    self.bytes.extend_from_slice(&chunk);
                    // If the thread has ended, the chunk is not needed.
                    let _ = self.empty.try_send(chunk);
                }
                Ok(Chunk::Failed(error)) => return Err(error),
                Ok(Chunk::Truncated) => (self.has_ended, self.is_truncated) = (true, true),
                Err(_) => self.has_ended = true,
            }
        }
        Ok(())
    }
}

enum ValueError {
    Stop(Stop),
    Trace(TraceError),
}

impl From<Stop> for ValueError {
    fn from(stop: Stop) -> ValueError {
        ValueError::Stop(stop)
    }
}

/// Whether a part of the document was complete.
enum Part {
    Complete,
    Ended,
}

fn read_document(window: &mut Window<'_>, options: &Options) -> Result<Trace, TraceError> {
    let mut builder = Builder::new(options);
    let mut header = Header::default();
    skip_byte_order_mark(window)?;
    let first = match window.read(|scanner| Ok(scanner.peek()?))? {
        Progress::Read(first) => first,
        Progress::Ended if window.end_offset() == 0 => return Err(TraceError::Empty),
        Progress::Ended => return Err(TraceError::EndsEarly { offset: window.end_offset() }),
    };
    let (part, found_events) = match first {
        b'{' => read_object(window, &mut builder, &mut header)?,
        b'[' => (read_events(window, &mut builder)?, true),
        _ => {
            let offset = window.offset(window.at);
            return Err(TraceError::Invalid { offset, expected: "an object or a list" });
        }
    };
    let truncated = match part {
        Part::Ended if !found_events => {
            return Err(TraceError::EndsEarly { offset: window.end_offset() });
        }
        Part::Ended => true,
        Part::Complete if !found_events => return Err(TraceError::NoEvents),
        Part::Complete => {
            expect_nothing_more(window)?;
            window.is_truncated
        }
    };
    builder.trace_mut().truncated_at = truncated.then(|| window.end_offset());
    let base_time_ns = header.base_time_ns;
    let mut trace = builder.finish(base_time_ns);
    trace.devices = header.devices;
    trace.distributed = header.distributed;
    Ok(trace)
}

fn skip_byte_order_mark(window: &mut Window<'_>) -> Result<(), TraceError> {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    while window.bytes.len() < MARK.len() && !window.has_ended {
        window.fetch()?;
    }
    if window.bytes.starts_with(MARK) {
        window.at = MARK.len();
    }
    Ok(())
}

/// Reads the document's object: header and events. Also returns whether there were events.
fn read_object(
    window: &mut Window<'_>,
    builder: &mut Builder<'_>,
    header: &mut Header,
) -> Result<(Part, bool), TraceError> {
    let mut found_events = false;
    let mut first = true;
    window.at += 1;
    loop {
        // Skips the comma and reads the key with its colon, or nothing at the end.
        let key = window.read(|scanner| {
            if scanner.accept(b'}')? {
                return Ok(None);
            }
            if !first && !scanner.accept(b',')? {
                return Err(scanner.invalid("a comma or the end of the object").into());
            }
            let key = scanner.key()?;
            let events = key == b"traceEvents" && scanner.accept(b'[')?;
            Ok(Some(if events { HeaderKey::Events } else { HeaderKey::of(key) }))
        })?;
        first = false;
        let part = match key {
            Progress::Ended => Part::Ended,
            Progress::Read(None) => return Ok((Part::Complete, found_events)),
            Progress::Read(Some(HeaderKey::Events)) => {
                found_events = true;
                read_events_after_bracket(window, builder)?
            }
            Progress::Read(Some(key)) => {
                let read = window.read(|scanner| {
                    header.set(key, scanner.value()?);
                    Ok(())
                })?;
                match read {
                    Progress::Read(()) => Part::Complete,
                    Progress::Ended => Part::Ended,
                }
            }
        };
        if matches!(part, Part::Ended) {
            return Ok((Part::Ended, found_events));
        }
    }
}

fn read_events(window: &mut Window<'_>, builder: &mut Builder<'_>) -> Result<Part, TraceError> {
    window.at += 1;
    read_events_after_bracket(window, builder)
}

/// Reads events up to the bracket that closes their list. Accepts a comma before it, like Chrome.
fn read_events_after_bracket(
    window: &mut Window<'_>,
    builder: &mut Builder<'_>,
) -> Result<Part, TraceError> {
    let mut first = true;
    loop {
        let more = window.read(|scanner| {
            if scanner.accept(b']')? {
                return Ok(false);
            }
            if !first && !scanner.accept(b',')? {
                return Err(scanner.invalid("a comma or the end of the events").into());
            }
            match scanner.peek()? {
                b']' if !first => {
                    scanner.advance();
                    return Ok(false);
                }
                b'{' => {
                    let mut event = Event::default();
                    event.read(scanner)?;
                    builder.add(&event).map_err(ValueError::Trace)?;
                }
                _ => {
                    scanner.value()?;
                    builder.trace_mut().unusable_events += 1;
                }
            }
            Ok(true)
        })?;
        first = false;
        match more {
            Progress::Read(true) => {}
            Progress::Read(false) => return Ok(Part::Complete),
            Progress::Ended => return Ok(Part::Ended),
        }
    }
}

fn expect_nothing_more(window: &mut Window<'_>) -> Result<(), TraceError> {
    match window.read(|scanner| Ok(scanner.peek()?))? {
        Progress::Ended => Ok(()),
        Progress::Read(_) => {
            let offset = window.offset(window.at);
            Err(TraceError::Invalid { offset, expected: "the end of the trace" })
        }
    }
}
