//! Today's text: what its statements and scopes are, and where the lines of the text that ran are
//! in it.
//!
//! Positions are byte offsets, lines are counted from 1. It does not know what a file is called or
//! where it is kept.

mod anchor;
pub mod batch_site;
mod cost_map;
mod imports;
mod index;
mod lines;
mod parse;
pub mod rewrite;
mod statements;
mod torch_sites;

pub use anchor::{LineMap, Place};
pub use cost_map::{CostMap, DefinitionCost, LoopCost, ScopeCost, StatementCost};
pub use imports::{Import, imports};
pub use index::{SourceIndex, TextEdit};
pub(crate) use lines::character_at;
pub use lines::{Lines, fingerprint};
pub use statements::{Scope, ScopeKind, Statement, StatementKind};
pub use torch_sites::{TrainingScript, training_script};
