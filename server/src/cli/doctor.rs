//! `ridgeline doctor`: what was found on this machine, and what to do.

use std::fmt::Write as _;

use ridgeline_analysis::units;
use ridgeline_gpu::devices::{Driver, Gpu};
use ridgeline_gpu::doctor::{Report, examine};
use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::{Consent, Search, Surroundings};

use super::DoctorArgs;
use super::exit::{self, Failure};
use super::terminal::{Terminal, printable};
use super::{profile, run};
use crate::config;

/// Runs the subcommand. Asking for it in a folder is the consent to ask that folder's Python.
pub fn run(args: &DoctorArgs, terminal: &Terminal) -> Result<(), Failure> {
    let root = profile::absolute(&args.path)?;
    let root = if root.is_file() { crate::discover::project_root(&root, None) } else { root };
    let store = run::open_store()?;
    let loaded = config::load(&root);
    let configured = match (&args.python, &loaded) {
        (Some(python), _) => Some(profile::absolute(python)?),
        (None, Ok(loaded)) => crate::pipeline::configured_python(&root, &loaded.config),
        (None, Err(_)) => None,
    };
    let search = Search {
        workspace: root.clone(),
        root,
        configured,
        editor: None,
        private: environment::installed(store.cache()),
    };
    let surroundings =
        Surroundings { variables: std::env::vars_os().collect(), windows: cfg!(windows) };
    let bar = terminal.spinner("looking at Python, torch and the GPUs");
    let report = run::block_on(|cancel| async move {
        tokio::select! {
            () = cancel.cancelled() => Err(Failure::interrupted()),
            report = examine(&search, &surroundings, Consent::Given, store.cache()) => Ok(report),
        }
    })??;
    bar.finish_and_clear();
    let configuration = match &loaded {
        Ok(loaded) => match &loaded.file {
            Some(file) => file.display().to_string(),
            None => "none (the defaults hold)".to_owned(),
        },
        Err(error) => format!("cannot be used: {error}"),
    };
    terminal.print(&printable_lines(&describe(&report, &configuration, terminal)))?;
    let usable = report.interpreter.as_ref().is_ok_and(|found| found.usable().is_ok());
    match (loaded, usable) {
        (Err(error), _) => Err(Failure::usage(error.to_string(), "")),
        (Ok(_), false) => Err(Failure {
            code: exit::NO_PYTHON,
            what: "there is no Python with a torch that can be used".to_owned(),
            next: String::new(),
        }),
        (Ok(_), true) => Ok(()),
    }
}
