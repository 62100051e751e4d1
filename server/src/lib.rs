//! `ridgeline`: a language server and a command line that show what each line of PyTorch training
//! code costs.

use std::process::ExitCode;

mod batch;
mod cli;
mod config;
mod consent;
mod debounce;
mod delayed_responses;
mod diagnostics;
mod discover;
mod disk;
mod documents;
mod event;
mod event_loop;
mod file_changes;
mod findings;
mod folder_identity;
mod freed_memory;
mod git;
mod history;
mod jobs;
mod known_devices;
mod live;
mod lsp;
mod machine_load;
mod measured_rates;
mod notebook;
mod open_notebooks;
mod outbox;
mod panel;
mod pipeline;
mod pool;
mod profiler;
mod progress;
mod refresh;
mod report;
mod requests;
mod run_questions;
mod runs;
mod scheduler;
mod server;
#[cfg(test)]
mod session_tests;
mod settings;
mod state;
mod store;
mod text_mark;
mod transport;
mod trust;
mod view;
mod walk;
mod watcher;
mod what_if;
mod workspace;

/// Runs the command given on the command line.
pub fn main() -> ExitCode {
    cli::main()
}
