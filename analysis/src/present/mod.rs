//! What a person reads: hints, lenses, hovers, the terminal's pages and the report, as plain values
//! with byte offsets. It knows no editor and no protocol.

pub mod failure;
#[cfg(test)]
mod fixture;
pub mod hints;
pub mod hover;
pub mod json;
pub mod lenses;
mod page;
pub mod printable;
pub mod report;
mod share;
pub mod terminal;
pub mod trace_summary;
