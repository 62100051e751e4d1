//! What a PyTorch program says, read from its texts by tree-sitter.
//!
//! [`syntax`] is one text as it is being edited, [`semantics`] is what the texts of a program mean together,
//! [`torch_sites`] finds scripts that train and what they train with, [`batch_site`] the number that is the
//! batch size. Positions are byte offsets, lines are counted from 1.
//!
//! It does not know what a line costs, nor where a file is kept.

pub mod batch_site;
mod cpu_option;
pub mod semantics;
pub mod syntax;
mod torch_sites;

pub use cpu_option::cpu_option;
pub use syntax::anchor::{LineMap, Place};
pub use syntax::imports::{Import, imports};
pub use syntax::index::{SourceIndex, TextEdit};
pub use syntax::lines::{Lines, character_at, fingerprint};
pub use syntax::statements::{Scope, ScopeKind, Statement, StatementKind};
pub use torch_sites::{
    ProgramOutline, Project as ProjectFiles, Reached, TrainingScript, reach, training_script,
};
