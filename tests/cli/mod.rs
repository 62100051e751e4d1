//! Tests of the built `ridgeline` command line.

mod analyze;
mod annotate;
mod check;
mod commands;
mod compare;
mod demo;
mod documents;
mod environment_failures;
mod evaluate;
mod failures;
mod language;
mod measured_rates;
mod notebook;
mod panel;
mod predict;
mod profile;
mod ranks;
mod reuse;
mod schema;
mod usage;
mod whatif;
