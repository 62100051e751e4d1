//! Drives the built `ridgeline` from outside, as a person at a terminal or a script does.

mod analyze;
mod annotate;
mod bad_days;
mod check;
mod commands;
mod compare;
mod demo;
mod documents;
mod evaluate;
mod failures;
mod language;
mod measured_rates;
mod panel;
mod predict;
mod profile;
mod ranks;
mod reuse;
mod schema;
mod usage;
mod whatif;
