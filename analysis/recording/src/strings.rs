//! Interned strings: each distinct string of a trace is stored once.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The id of a string in a [`Strings`]. Ids of the same table are equal if the strings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(NonZeroU32);

/// All distinct strings of a trace, in the order of their first occurrence. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings(Arc<Table>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    text: String,
    /// End of each string in `text`; it starts at the end of the previous one.
    ends: Vec<usize>,
}

impl Table {
    fn get(&self, id: StringId) -> &str {
        let index = id.0.get() as usize - 1;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let end = self.ends.get(index).copied();
        end.and_then(|end| self.text.get(start.unwrap_or(0)..end)).unwrap_or_default()
    }
}

impl Strings {
    /// Returns the string of an id; empty if the id belongs to another table.
    pub fn get(&self, id: StringId) -> &str {
        self.0.get(id)
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.0.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }

    /// Returns the total size of all strings, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.0.text.len()
    }

    /// Iterates over all strings with their ids, in the order of their first occurrence.
    pub fn iter(&self) -> impl Iterator<Item = (StringId, &str)> {
        (1..=self.len()).filter_map(|number| {
            let id = StringId(NonZeroU32::new(u32::try_from(number).ok()?)?);
            Some((id, self.get(id)))
        })
    }
}

/// Builds a [`Strings`].
#[derive(Debug, Default)]
pub struct Interner {
    strings: Table,
    table: HashTable<StringId>,
    // Randomly seeded, so a malicious trace cannot choose strings that collide.
    hasher: DefaultHashBuilder,
}

impl Interner {
    /// Returns the id of a string, and stores it if it is new. Returns `None` after 4 billion
    /// strings.
    pub fn intern(&mut self, text: &str) -> Option<StringId> {
        let Interner { strings, table, hasher } = self;
        let hash = hasher.hash_one(text);
        if let Some(id) = table.find(hash, |id| strings.get(*id) == text) {
            return Some(*id);
        }
        let number = u32::try_from(strings.ends.len()).ok()?.checked_add(1)?;
        let id = StringId(NonZeroU32::new(number)?);
        strings.text.push_str(text);
        strings.ends.push(strings.text.len());
        table.insert_unique(hash, id, |id| hasher.hash_one(strings.get(*id)));
        Some(id)
    }

    /// Returns the total size of the strings so far, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.strings.text.len()
    }

    /// Returns the number of strings so far.
    pub fn len(&self) -> usize {
        self.strings.ends.len()
    }

    /// Whether there are no strings so far.
    pub fn is_empty(&self) -> bool {
        self.strings.ends.is_empty()
    }

    /// Returns the finished table.
    pub fn finish(mut self) -> Strings {
        self.strings.text.shrink_to_fit();
        self.strings.ends.shrink_to_fit();
        Strings(Arc::new(self.strings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_an_id() {
        let mut interner = Interner::default();
        let ids = ["aten::mm", "", "aten::add", "aten::mm", ""]
            .map(|text| interner.intern(text).unwrap());
        assert_eq!(ids[0], ids[3]);
        assert_eq!(ids[1], ids[4]);
        assert_ne!(ids[0], ids[2]);
        let strings = interner.finish();
        assert_eq!(strings.get(ids[2]), "aten::add");
        assert_eq!(
            strings.iter().map(|(_, text)| text).collect::<Vec<_>>(),
            ["aten::mm", "", "aten::add"]
        );
    }

    #[test]
    fn the_string_of_a_foreign_id_is_empty() {
        let id = Interner::default().intern("kernel").unwrap();
        assert_eq!(Strings::default().get(id), "");
    }
}
