//! A cache of values computed once per distinct operator of an iteration.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ptr::from_ref;

use ridgeline_operators::operator::Operator;

/// Values by operator address. The operators are borrowed and cannot move while the cache exists.
pub(crate) struct Once<'o, T> {
    values: HashMap<*const Operator, T>,
    of: PhantomData<&'o Operator>,
}

impl<'o, T: Copy> Once<'o, T> {
    /// Creates an empty cache.
    pub(crate) fn new() -> Once<'o, T> {
        Once { values: HashMap::new(), of: PhantomData }
    }

    /// Returns the value for an operator, computing it at the first call.
    pub(crate) fn of(
        &mut self,
        operator: &'o Operator,
        compute: impl FnOnce(&'o Operator) -> T,
    ) -> T {
        *self.values.entry(from_ref(operator)).or_insert_with(|| compute(operator))
    }
}
