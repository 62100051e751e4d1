//! Drives the built `ridgeline` from outside, as a person at a terminal or a script does.

mod analyze;
mod demo;
mod profile;
mod sandbox;
mod schema;
mod usage;
