//! Strings that occur often, stored once.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A string of one [`Strings`]. Two ids of the same table are equal where the strings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(NonZeroU32);

/// All strings of a trace, each of them once, in the order in which they first occurred. A clone
/// shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings(Arc<Table>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    text: String,
    /// Where each string ends in `text`; it begins where the one before it ends.
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
    /// The string of an id; empty where the id is of another table.
    pub fn get(&self, id: StringId) -> &str {
        self.0.get(id)
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.0.ends.len()
    }

    /// Whether there is no string at all.
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }

    /// The bytes of all strings together.
    pub fn text_bytes(&self) -> usize {
        self.0.text.len()
    }

    /// All strings with their ids, in the order in which they first occurred.
    pub fn iter(&self) -> impl Iterator<Item = (StringId, &str)> {
        (1..=self.len()).filter_map(|number| {
            let id = StringId(NonZeroU32::new(u32::try_from(number).ok()?)?);
            Some((id, self.get(id)))
        })
    }
}

/// Fills a [`Strings`].
#[derive(Debug, Default)]
pub struct Interner {
    strings: Table,
    table: HashTable<StringId>,
    // Seeded at random, so that a hostile trace cannot choose strings that collide.
    hasher: DefaultHashBuilder,
}

impl Interner {
    /// The id of a string, which is stored where it is new; nothing after 4 billion strings.
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

    /// The bytes of what has been stored so far.
    pub fn text_bytes(&self) -> usize {
        self.strings.text.len()
    }

    /// How many strings have been stored so far.
    pub fn len(&self) -> usize {
        self.strings.ends.len()
    }

    /// Whether no string has been stored so far.
    pub fn is_empty(&self) -> bool {
        self.strings.ends.is_empty()
    }

    /// The finished table.
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
    fn an_id_of_another_table_is_empty() {
        let id = Interner::default().intern("kernel").unwrap();
        assert_eq!(Strings::default().get(id), "");
    }
}
