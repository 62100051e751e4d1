//! Black-box tests of the built binary: command line, LSP, editors and scripts. `cargo test -p ridgeline-server --test
//! from_outside cli::` runs the part in the folder `cli`.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail by a panic in a function that it calls"
)]

mod cli;
mod editors;
mod lsp;
mod mcp;
mod notebook;
mod packages;
mod programs;
mod sandbox;
mod scripts;
