//! Drives the built `ridgeline` from outside, as a person at a terminal or a script does.

mod analyze;
mod bad_days;
mod check;
mod compare;
mod demo;
mod evaluate;
#[allow(dead_code, reason = "the tests of the language server use the rest")]
#[path = "../lsp/http.rs"]
mod http;
mod measured_rates;
mod panel;
mod predict;
mod profile;
mod ranks;
mod sandbox;
mod schema;
mod usage;
mod whatif;
