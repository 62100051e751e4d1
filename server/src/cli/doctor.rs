//! `ridgeline doctor`: what was found on this machine, and what to do.

use std::fmt::Write as _;

use ridgeline_analysis::printable::printable;
use ridgeline_analysis::units;
use ridgeline_gpu::devices::{Driver, Gpu};
use ridgeline_gpu::doctor::{Report, examine};
use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::{Consent, Search, Surroundings};

use super::DoctorArgs;
use super::exit::{self, Failure};
use super::terminal::Terminal;
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
    terminal.print(&describe(&report, &configuration, terminal))?;
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

fn describe(report: &Report, configuration: &str, terminal: &Terminal) -> String {
    let heading = terminal.heading();
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{heading}{name:<14}{heading:#}{}", printable(value));
    };
    row("Ridgeline", env!("CARGO_PKG_VERSION"));
    row("Configuration", configuration);
    match &report.interpreter {
        Ok(found) => {
            let (major, minor, patch) = found.version;
            let path = found.path.display();
            row("Python", &format!("{major}.{minor}.{patch} at {path} ({})", found.origin));
            match &found.torch {
                Some(torch) => {
                    let built_for = match (&torch.cuda, &torch.hip) {
                        (Some(cuda), _) => format!("built for CUDA {cuda}"),
                        (None, Some(hip)) => format!("built for ROCm {hip}"),
                        (None, None) => "built for the CPU alone".to_owned(),
                    };
                    row("torch", &format!("{}, {built_for}", torch.version));
                }
                None => row("torch", "none"),
            }
        }
        Err(error) => row("Python", &error.to_string()),
    }
    match &report.agent {
        Some(Ok(facts)) => {
            let mode = match facts.mode {
                ridgeline_gpu::agent::Mode::Fork => "runs are forked from a warm process",
                ridgeline_gpu::agent::Mode::Standby => "each run has a process of its own",
            };
            let why = facts.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            row("Agent", &format!("{mode}{why}"));
        }
        Some(Err(error)) => row("Agent", &format!("does not start: {error}")),
        None => row("Agent", "not tried, since there is no Python for it"),
    }
    let machine = &report.machine;
    let memory =
        machine.memory_bytes.map_or("unknown".to_owned(), |size| units::bytes(size as f64));
    let free = machine
        .available_bytes
        .map(|size| format!(", {} free", units::bytes(size as f64)))
        .unwrap_or_default();
    row("Cores", &machine.cores.to_string());
    row("Memory", &format!("{memory}{free}"));
    row("CUDA driver", &describe_driver(&report.devices.driver));
    match &report.devices.nvml {
        Ok(version) => row("NVML", version),
        Err(why) => row("NVML", why),
    }
    for gpu in &report.devices.gpus {
        row(&format!("GPU {}", gpu.index), &describe_gpu(gpu));
    }
    if report.devices.gpus.is_empty() {
        row("GPU", "none: training loops run on the CPU");
    }
    for (number, advice) in report.advice.iter().enumerate() {
        let what_to_do = if number == 0 { "What to do" } else { "" };
        row(what_to_do, advice);
    }
    if report.advice.is_empty() {
        row("What to do", "nothing: all is well");
    }
    text
}

fn describe_driver(driver: &Driver) -> String {
    match driver {
        Driver::Absent => "none on this machine".to_owned(),
        Driver::Ready { cuda: (major, minor) } => format!("ready, for CUDA up to {major}.{minor}"),
        Driver::NoDevice => "works, and sees no GPU".to_owned(),
        Driver::Mismatch => {
            "its library and its kernel module are of different versions; restart the machine"
                .to_owned()
        }
        Driver::Incomplete { symbol } => format!("lacks `{symbol}`: it is too old"),
        Driver::Failed { code } => format!("fails with error {code}"),
        Driver::Unresponsive { reason } => format!("does not answer: {reason}"),
    }
}

fn describe_gpu(gpu: &Gpu) -> String {
    let mark = if gpu.is_simulated { " (simulated)" } else { "" };
    let mut parts = vec![format!("{}{mark}", gpu.name)];
    parts.extend(gpu.memory_bytes.map(|size| units::bytes(size as f64)));
    parts.extend(gpu.used_bytes.map(|size| format!("{} in use", units::bytes(size as f64))));
    parts.extend(gpu.multiprocessors.map(|count| format!("{count} multiprocessors")));
    parts
        .extend(gpu.capability.map(|(major, minor)| format!("compute capability {major}.{minor}")));
    parts.join(", ")
}
