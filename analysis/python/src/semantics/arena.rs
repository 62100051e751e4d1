//! Lists whose elements are referred to by their indices.

use std::ops::{Index, IndexMut};

/// A list that only grows, so an index into it stays valid.
///
/// Use `arena[at]` only for indices from the same arena, as `iter().enumerate()` and
/// `iter().position(…)` return them. Use [`Arena::lookup`] for any other number.
#[derive(Clone, Debug)]
pub struct Arena<T>(Vec<T>);

impl<T> Arena<T> {
    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        self.0.push(element);
    }

    /// Returns the element at an index that may not exist. (Clippy rejects `arena[at]` if this is
    /// named `get`.)
    pub fn lookup(&self, at: usize) -> Option<&T> {
        self.0.get(at)
    }

    /// Iterates over all elements, in the order of their indices.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena(Vec::new())
    }
}

impl<T> Index<usize> for Arena<T> {
    type Output = T;

    #[expect(
        clippy::indexing_slicing,
        reason = "an arena never shrinks, so its positions stay valid"
    )]
    fn index(&self, at: usize) -> &T {
        &self.0[at]
    }
}

impl<T> IndexMut<usize> for Arena<T> {
    #[expect(
        clippy::indexing_slicing,
        reason = "an arena never shrinks, so its positions stay valid"
    )]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at]
    }
}

impl<'a, T> IntoIterator for &'a Arena<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
