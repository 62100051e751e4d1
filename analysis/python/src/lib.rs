//! Analyzes PyTorch programs from their source text, with tree-sitter.
//!
//! [`syntax`] is one file while it is edited. [`semantics`] covers all files of a program.
//! [`torch_sites`] finds scripts that train and what they train with. [`batch_site`] finds the
//! number that is the batch size. Positions are byte offsets, lines are 1-based.
//!
//! It does not know what a line costs or where files are stored.

pub mod batch_site;
mod cpu_option;
mod declared_options;
pub mod semantics;
mod subcommands;
pub mod syntax;
mod torch_sites;

pub use cpu_option::cpu_option;
pub use declared_options::{DeclaredOption, declared_options};
pub use subcommands::{Subcommand, subcommands, training_subcommand};
pub use syntax::anchor::{LineMap, Place};
pub use syntax::expression_label::{expression_anchor, expression_label};
pub use syntax::imports::{Import, imports};
pub use syntax::index::{SourceIndex, TextEdit};
pub use syntax::lines::{Lines, character_at, fingerprint};
pub use syntax::statements::{Scope, ScopeKind, Statement, StatementKind};
pub use torch_sites::{
    ProgramOutline, Project as ProjectFiles, Reached, TrainingScript, reach, training_cell,
    training_script,
};
