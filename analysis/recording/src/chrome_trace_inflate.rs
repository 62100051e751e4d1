//! Reads a trace file in chunks of JSON, inflating it if it is gzip.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender};

use flate2::read::MultiGzDecoder;

use super::chrome_trace::{Options, TraceError};

pub(super) const CHUNKS_IN_FLIGHT: usize = 4;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// JSON size below which a high expansion is harmless, in bytes.
const EXPANSION_FREE_BYTES: u64 = 4 << 20;

/// A message of the inflating thread.
pub(super) enum Chunk {
    Bytes(Vec<u8>),
    /// The gzip data is truncated; there are no more chunks.
    Truncated,
    Failed(TraceError),
}

pub(super) fn fill_chunks(
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
    let is_gzip = magic == GZIP_MAGIC;
    let counted = Counted { inner: Cursor::new(magic).chain(source), bytes: 0 };
    let mut source = if is_gzip {
        Source::Gzip(Box::new(MultiGzDecoder::new(counted)))
    } else {
        Source::Plain(counted)
    };
    let mut total = 0u64;
    loop {
        let mut chunk = empty.try_recv().unwrap_or_default();
        chunk.clear();
        chunk.reserve_exact(options.chunk_bytes);
        let result =
            source.by_ref().take(options.chunk_bytes.max(1) as u64).read_to_end(&mut chunk);
        let received = chunk.len() as u64;
        total = total.saturating_add(received);
        // The receiver is gone after an error or once it is done.
        if received > 0 && filled.send(Chunk::Bytes(chunk)).is_err() {
            return;
        }
        let last = match result {
            Err(error) => source.explain(error, total),
            Ok(_) if total > options.max_json_bytes => {
                let limit = options.max_json_bytes;
                Chunk::Failed(TraceError::TooMany { what: "bytes of JSON", limit })
            }
            Ok(_) if total > source.max_json_bytes_so_far(options) => {
                Chunk::Failed(TraceError::Bomb { limit: options.max_expansion })
            }
            Ok(_) if received == 0 => return,
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
            Source::Gzip(_) if error.kind() == io::ErrorKind::UnexpectedEof => Chunk::Truncated,
            // flate2 reports invalid data with these kinds.
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

    fn max_json_bytes_so_far(&self, options: &Options) -> u64 {
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

/// Counts the bytes read through it.
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
