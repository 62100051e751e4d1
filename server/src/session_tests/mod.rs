//! Whole sessions within one process, with a profiler that measures what a test says. What needs a
//! real program is in `tests/lsp`.

mod apply;
mod batch;
mod clients;
mod consent;
mod consent_model;
mod diagnostics;
mod editing;
mod fake;
mod findings;
mod live;
mod measured_rates;
mod panel;
mod runs;
mod settings;
mod trust;
mod what_if;
