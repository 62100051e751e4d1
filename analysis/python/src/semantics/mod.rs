//! Static analysis of a program: scopes, names, functions, calls and the possible values of
//! expressions. Nothing runs.
//!
//! A [`module::Module`] is one parsed file; [`project::Modules`] are the files that a script
//! imports. A [`trace::Tracer`] follows an expression back through names, attributes, parameters,
//! objects and data files to the numbers that it may come from. The batch size, the rewrites and
//! the rules build on it.

pub mod arena;
pub mod arguments;
pub mod batch_names;
pub mod call_sites;
mod condition;
mod config_file;
mod data_file;
mod dictionary;
mod entry;
mod environment;
pub mod functions;
pub mod gather;
pub mod literal;
pub mod module;
mod names;
mod objects;
pub mod parts;
pub mod project;
mod refusal;
pub mod synthetic;
pub mod trace;

pub use entry::{Choice, Entry};
pub use project::Project;
pub use refusal::Refusal;
