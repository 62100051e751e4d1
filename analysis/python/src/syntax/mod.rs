//! A text and its tree: lines, statements and scopes, kept up with edits, and where the lines of another
//! text are in it.

pub mod anchor;
pub mod imports;
pub mod index;
pub mod kind;
mod kinds;
pub mod lines;
pub mod parse;
pub mod statements;
