//! What is asked of each operator of an iteration: of the few different ones that it calls again and
//! again, once.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ptr::from_ref;

use ridgeline_operators::operator::Operator;

/// Answers by operator, which stay where they are as long as they are asked about.
pub(crate) struct Once<'o, T> {
    answers: HashMap<*const Operator, T>,
    of: PhantomData<&'o Operator>,
}

impl<'o, T: Copy> Once<'o, T> {
    /// Nothing was asked yet.
    pub(crate) fn new() -> Once<'o, T> {
        Once { answers: HashMap::new(), of: PhantomData }
    }

    /// The answer for an operator.
    pub(crate) fn of(&mut self, operator: &'o Operator, ask: impl FnOnce(&'o Operator) -> T) -> T {
        *self.answers.entry(from_ref(operator)).or_insert_with(|| ask(operator))
    }
}
