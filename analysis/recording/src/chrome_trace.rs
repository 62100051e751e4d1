//! Reads Kineto's Chrome trace, plain or gzip, of 2021 to today.
//!
//! The bytes stream through: one thread inflates, the other reads events, and only a window of a
//! few hundred kilobytes is held besides the [`Trace`] itself. A file that ends too early gives what
//! was read and says so; everything else that is wrong is an error that says where.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::read::MultiGzDecoder;

use super::chrome_trace_events::{Builder, Event};
use super::chrome_trace_header::{Header, HeaderKey};
use super::chrome_trace_json::{Scanner, Stop};
use super::trace::Trace;

/// What to keep, and when to give up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Keep the frames of Python: often half of all events.
    pub python_frames: bool,
    /// Kept events; beyond it the trace is refused.
    pub max_events: u64,
    /// Bytes of different names, shapes and call stacks; beyond it the trace is refused.
    pub max_string_bytes: usize,
    /// Bytes of memory for what is kept of the trace and for reading it out afterwards; beyond it the
    /// trace is refused.
    pub max_memory_bytes: u64,
    /// Bytes of one event or one member of the header; beyond it the trace is refused.
    pub max_value_bytes: usize,
    /// Bytes of JSON; beyond it the trace is refused.
    pub max_json_bytes: u64,
    /// How many times larger the JSON may be than its gzip data. Real traces reach 30; what is
    /// made to fill memory reaches 1000.
    pub max_expansion: u64,
    /// Bytes of JSON that the inflating thread hands over at a time.
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

/// What reading a trace may take where nobody says otherwise: some 4 GB of JSON with arguments,
/// or 30 million events without any.
pub const DEFAULT_MEMORY_BYTES: u64 = 2_000_000_000;

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file has no bytes.
    #[error("the trace is empty")]
    Empty,
    /// The bytes could not be had.
    #[error("cannot read the trace: {0}")]
    Read(#[source] io::Error),
    /// The gzip data is damaged.
    #[error("the trace's gzip data is damaged after {offset} bytes of JSON: {source}")]
    Damaged {
        /// Bytes of JSON before the damage.
        offset: u64,
        /// What inflating said.
        source: io::Error,
    },
    /// It is not JSON, or not that of a trace.
    #[error("the trace is invalid at byte {offset}: expected {expected}")]
    Invalid {
        /// Bytes of JSON before it.
        offset: u64,
        /// What would have been right.
        expected: &'static str,
    },
    /// It is JSON, but no trace.
    #[error("the file has no `traceEvents` list: it is not a profiler trace")]
    NoEvents,
    /// It ended before the first event.
    #[error("the trace is truncated at byte {offset}, before its events")]
    EndsEarly {
        /// Bytes of JSON.
        offset: u64,
    },
    /// One value is too long.
    #[error("the value at byte {offset} exceeds {limit} bytes")]
    ValueTooLong {
        /// Where it begins.
        offset: u64,
        /// [`Options::max_value_bytes`].
        limit: usize,
    },
    /// A limit of [`Options`] is reached.
    #[error("the trace has more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// [`Options::max_memory_bytes`] is reached.
    #[error(
        "the trace needs more than {} MB of memory: its first {events} events already do",
        limit / 1_000_000
    )]
    TooMuchMemory {
        /// The limit.
        limit: u64,
        /// Events that were kept until then.
        events: u64,
    },
    /// It inflates to far more than a trace would.
    #[error("the trace's gzip data decompresses to more than {limit} times its size")]
    Bomb {
        /// [`Options::max_expansion`].
        limit: u64,
    },
}

impl Trace {
    /// Reads a Chrome trace as JSON or as gzip of JSON, told apart by its first bytes.
    ///
    /// The document may be an object with `traceEvents` or the list of events itself. Reading goes on
    /// a thread of its own. Errors are those of [`TraceError`]; a file that ends too early is none,
    /// once events have begun: then [`Trace::truncated_at`] says where.
    pub fn read(source: impl Read + Send, options: &Options) -> Result<Trace, TraceError> {
        // Chunks go to and fro, so that no more than these are ever allocated.
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

const CHUNKS_IN_FLIGHT: usize = 4;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Below this a high expansion is no threat.
const EXPANSION_FREE_BYTES: u64 = 4 << 20;

/// What the reading thread sends.
enum Chunk {
    Bytes(Vec<u8>),
    /// The file was cut off; there is no more.
    Cut,
    Failed(TraceError),
}

fn fill_chunks(
    mut source: impl Read,
    options: &Options,
    filled: &SyncSender<Chunk>,
    empty: &Receiver<Vec<u8>>,
) {
    let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
    if let Err(error) = source.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic) {
        let _ = filled.send(Chunk::Failed(TraceError::Read(error)));
        return;
    }
    let zipped = magic == GZIP_MAGIC;
    let whole = Counted { inner: Cursor::new(magic).chain(source), bytes: 0 };
    let mut source = if zipped {
        Source::Gzip(Box::new(MultiGzDecoder::new(whole)))
    } else {
        Source::Plain(whole)
    };
    let mut total = 0u64;
    loop {
        let mut chunk = empty.try_recv().unwrap_or_default();
        chunk.clear();
        chunk.reserve_exact(options.chunk_bytes);
        let result =
            source.by_ref().take(options.chunk_bytes.max(1) as u64).read_to_end(&mut chunk);
        let got = chunk.len() as u64;
        total = total.saturating_add(got);
        // The reader hung up once it had an error or all it wanted: then there is nothing to tell.
        if got > 0 && filled.send(Chunk::Bytes(chunk)).is_err() {
            return;
        }
        let last = match result {
            Err(error) => source.explain(error, total),
            Ok(_) if total > options.max_json_bytes => {
                let limit = options.max_json_bytes;
                Chunk::Failed(TraceError::TooMany { what: "bytes of JSON", limit })
            }
            Ok(_) if total > source.most_json_bytes(options) => {
                Chunk::Failed(TraceError::Bomb { limit: options.max_expansion })
            }
            Ok(_) if got == 0 => return,
            Ok(_) => continue,
        };
        let _ = filled.send(last);
        return;
    }
}

enum Source<R> {
    Plain(Counted<R>),
    Gzip(Box<MultiGzDecoder<Counted<R>>>),
}

impl<R: Read> Source<R> {
    fn explain(&self, error: io::Error, total: u64) -> Chunk {
        match self {
            Source::Gzip(_) if error.kind() == io::ErrorKind::UnexpectedEof => Chunk::Cut,
            // flate2 names what is wrong with the data by these.
            Source::Gzip(_)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData
                ) =>
            {
                Chunk::Failed(TraceError::Damaged { offset: total, source: error })
            }
            _ => Chunk::Failed(TraceError::Read(error)),
        }
    }

    fn most_json_bytes(&self, options: &Options) -> u64 {
        match self {
            Source::Plain(_) => u64::MAX,
            Source::Gzip(decoder) => decoder
                .get_ref()
                .bytes
                .saturating_mul(options.max_expansion)
                .saturating_add(EXPANSION_FREE_BYTES),
        }
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(source) => source.read(buffer),
            Source::Gzip(source) => source.read(buffer),
        }
    }
}

/// Counts what is read through it.
struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes = self.bytes.saturating_add(read as u64);
        Ok(read)
    }
}

/// The part of the JSON that is being read.
struct Window<'o> {
    filled: Receiver<Chunk>,
    empty: SyncSender<Vec<u8>>,
    options: &'o Options,
    bytes: Vec<u8>,
    /// Where the next value begins.
    at: usize,
    /// Bytes of JSON before `bytes`.
    dropped: u64,
    ended: bool,
    /// The gzip data stopped in the middle, even if the JSON was complete.
    cut: bool,
}

/// How reading a value from the window ended, where it did not fail.
enum Progress<T> {
    Read(T),
    /// The JSON ended within the value.
    Ended,
}

impl<'o> Window<'o> {
    fn new(filled: Receiver<Chunk>, empty: SyncSender<Vec<u8>>, options: &'o Options) -> Self {
        let (bytes, at, dropped) = (Vec::new(), 0, 0);
        Window { filled, empty, options, bytes, at, dropped, ended: false, cut: false }
    }

    fn offset(&self, at: usize) -> u64 {
        self.dropped.saturating_add(at as u64)
    }

    /// The bytes of JSON so far.
    fn end_offset(&self) -> u64 {
        self.offset(self.bytes.len())
    }

    /// Reads a value that may go on beyond the window: then more is fetched, and the value is read
    /// again from its start. Only a whole value moves the window on.
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
                    if self.ended {
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

    /// Drops what was read and gets at least one chunk more, and as much as there was before: so
    /// reading a long value again and again takes time in proportion to its length.
    fn fetch(&mut self) -> Result<(), TraceError> {
        self.bytes.drain(..self.at);
        self.dropped = self.offset(self.at);
        self.at = 0;
        let limit = self.options.max_value_bytes;
        if self.bytes.len() > limit {
            return Err(TraceError::ValueTooLong { offset: self.dropped, limit });
        }
        let wanted = self.bytes.len().saturating_mul(2).max(1);
        while self.bytes.len() < wanted && !self.ended {
            match self.filled.recv() {
                Ok(Chunk::Bytes(chunk)) => {
                    self.bytes.extend_from_slice(&chunk);
                    // Where the thread has ended nobody needs the chunk back.
                    let _ = self.empty.try_send(chunk);
                }
                Ok(Chunk::Failed(error)) => return Err(error),
                Ok(Chunk::Cut) => (self.ended, self.cut) = (true, true),
                Err(_) => self.ended = true,
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
            window.cut
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
    while window.bytes.len() < MARK.len() && !window.ended {
        window.fetch()?;
    }
    if window.bytes.starts_with(MARK) {
        window.at = MARK.len();
    }
    Ok(())
}

/// Reads the document's object: its header and its events. Also says whether there were events.
fn read_object(
    window: &mut Window<'_>,
    builder: &mut Builder<'_>,
    header: &mut Header,
) -> Result<(Part, bool), TraceError> {
    let mut found_events = false;
    let mut first = true;
    window.at += 1;
    loop {
        // Passes over the comma and reads the key with its colon, or nothing at the end.
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

/// Reads events up to the bracket that closes their list. A comma before it is allowed, as Chrome
/// allows it.
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
