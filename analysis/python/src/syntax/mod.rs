//! A file and its syntax tree: lines, statements and scopes, updated on edits, and the mapping of
//! lines from another version of the file.

pub mod anchor;
pub mod cell_magics;
pub mod expression_label;
pub mod imports;
pub mod index;
pub mod kind;
mod kinds;
pub mod lines;
pub mod parse;
pub mod statements;
