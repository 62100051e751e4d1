//! Recognizes a text on disk without storing the text.

use std::fs;
use std::hash::Hasher as _;
use std::path::Path;

/// A checksum that identifies a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TextMark {
    bytes: u64,
    hash: u64,
}

/// Editors do not send it to the server.
const BYTE_ORDER_MARK: &str = "\u{feff}";

impl TextMark {
    /// Computes the checksum of a text, which ignores a byte order mark.
    pub(crate) fn of(text: &str) -> TextMark {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let mut hasher = fnv::FnvHasher::default();
        hasher.write(text.as_bytes());
        TextMark { bytes: text.len() as u64, hash: hasher.finish() }
    }

    /// Returns whether a file has this text. A file of another length is not read, because it may
    /// be of any size.
    pub(crate) fn is_on_disk(self, file: &Path) -> bool {
        let expected = self.bytes..=self.bytes + BYTE_ORDER_MARK.len() as u64;
        fs::metadata(file).is_ok_and(|metadata| expected.contains(&metadata.len()))
            && fs::read_to_string(file).is_ok_and(|found| TextMark::of(&found) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_recognized_with_and_without_a_byte_order_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("train.py");
        for text in ["x = 1\n", "\u{feff}x = 1\n"] {
            fs::write(&file, text).expect("written");
            assert!(TextMark::of("x = 1\n").is_on_disk(&file));
            assert!(!TextMark::of("x = 2\n").is_on_disk(&file));
            assert!(!TextMark::of("x = 1").is_on_disk(&file));
        }
        assert!(!TextMark::of("").is_on_disk(&folder.path().join("nothing.py")));
    }
}
