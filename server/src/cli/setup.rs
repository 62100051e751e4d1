//! `ridgeline setup`: creates a private Python environment with torch in the user's cache folder.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::base::units;
use ridgeline_gpu::environment::{self, SetupError, SetupEvent};
use ridgeline_gpu::interpreter::{Interpreter, SystemEnvironment};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::exit::{self, Failure};
use super::run;
use super::terminal::Terminal;
use crate::store::Store;

/// Runs the subcommand.
pub(super) fn run(terminal: &Terminal) -> Result<(), Failure> {
    let store = run::open_store()?;
    let interpreter =
        run::block_on(
            |cancel| async move { create_environment(&store, terminal, &cancel).await },
        )??;
    let torch = interpreter.torch.as_ref().map_or("unknown", |torch| torch.version.as_str());
    terminal.print(&format!(
        "The private environment is ready: {} with torch {torch}\n\
         Ridgeline uses it where a project has no Python with torch of its own.\n",
        interpreter.path.display()
    ))
}

/// Creates the environment unless it exists, with progress on standard error.
pub(super) async fn create_environment(
    store: &Store,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<Interpreter, Failure> {
    if environment::installed(store.cache()).is_none() {
        terminal.note(&format!(
            "Creating a private Python environment with torch in {} (up to {} GB). Other Pythons \
            on this machine are not changed.",
            store.cache().display(),
            environment::NEEDED_GB
        ));
    }
    let system =
        SystemEnvironment { variables: std::env::vars_os().collect(), windows: cfg!(windows) };
    let (events, mut news) = mpsc::channel(64);
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed:.dim}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    let shown = async {
        while let Some(event) = news.recv().await {
            bar.set_message(printable(&describe(&event)).into_owned());
        }
    };
    let setup = environment::setup(store.cache(), &system, events, cancel.clone());
    let (environment, ()) = tokio::join!(setup, shown);
    bar.finish_and_clear();
    environment.map_err(|error| match error {
        SetupError::Cancelled => {
            Failure { code: exit::INTERRUPTED, what: error.to_string(), next: String::new() }
        }
        SetupError::NoPython(_) => {
            Failure { code: exit::NO_PYTHON, what: error.to_string(), next: String::new() }
        }
        SetupError::DiskFull { .. } | SetupError::Failed { .. } => {
            Failure::failed(error.to_string(), "")
        }
    })
}

fn describe(event: &SetupEvent) -> String {
    match event {
        SetupEvent::WaitingForAnother => "waiting for another setup to finish".to_owned(),
        SetupEvent::LookingForPython => "looking for a base Python".to_owned(),
        SetupEvent::Creating { base } => format!("creating it with {}", base.display()),
        SetupEvent::Installing { line, bytes } => {
            format!("installing torch ({} so far) {line}", units::bytes(*bytes as f64))
        }
        SetupEvent::Checking => "importing torch for the first time".to_owned(),
    }
}
