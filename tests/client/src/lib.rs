//! What tests of the server share, inside one process and from outside: a strict LSP client, and HTTP
//! for the panel.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by a panic"
)]

pub mod http;
pub mod strict_client;
