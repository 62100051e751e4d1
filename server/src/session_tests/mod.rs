//! Complete sessions in one process, with a fake profiler whose results the test sets. Tests that
//! need a real program are in `tests/lsp`.

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
mod notebooks;
mod panel;
mod runs;
mod settings;
mod trust;
mod what_if;
