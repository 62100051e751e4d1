//! Shared by the in-process and black-box tests of the server: a strict LSP client, and an HTTP
//! client for the panel.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by a panic"
)]

pub mod http;
pub mod strict_client;
