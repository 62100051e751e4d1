//! `ridgeline doctor`: reports the setup of this machine, and how to fix problems.

use std::fmt::Write as _;

use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::base::units;
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_gpu::agent::Sandbox;
use ridgeline_gpu::ceilings::{cublas_folders, measure_in_child};
use ridgeline_gpu::devices::{Driver, Gpu};
use ridgeline_gpu::doctor::{Report, examine};
use ridgeline_gpu::environment;
use ridgeline_gpu::interpreter::{Consent, Search, SystemEnvironment};

use super::DoctorArgs;
use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{profile, run};
use crate::config;
use crate::measured_rates::{Identity, Measurement, of_device};
use crate::store::Store;

/// Runs the subcommand. Running it in a folder is the consent to start that folder's Python.
pub(super) fn run(args: &DoctorArgs, terminal: &Terminal) -> Result<(), Failure> {
    let root = profile::absolute(&args.path)?;
    let root = profile::project_of(&root);
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
    let system =
        SystemEnvironment { variables: std::env::vars_os().collect(), windows: cfg!(windows) };
    let bar = terminal.spinner("checking Python, torch and the GPUs");
    let examined = examine(&search, &system, Consent::Given, store.cache(), args.full);
    let report = run::block_on(|cancel| async move {
        tokio::select! {
            () = cancel.cancelled() => Err(Failure::interrupted()),
            report = examined => Ok(report),
        }
    })??;
    bar.finish_and_clear();
    let measured = if args.measure { measure(&report, &store, terminal)? } else { Vec::new() };
    let configuration = match &loaded {
        Ok(loaded) => match &loaded.file {
            Some(file) => file.display().to_string(),
            None => "none (using defaults)".to_owned(),
        },
        Err(error) => format!("cannot be used: {error}"),
    };
    terminal.print(&describe(&report, &configuration, &store, terminal))?;
    if args.measure && report.devices.gpus.is_empty() {
        let driver = describe_driver(&report.devices.driver);
        return Err(Failure::failed(format!("no GPU to measure (CUDA driver: {driver})"), ""));
    }
    if let Some(why) = measured.into_iter().next() {
        return Err(Failure::failed(why, "Everything else on this page is still valid"));
    }
    let usable = report.interpreter.as_ref().is_ok_and(|found| found.usable().is_ok());
    match (loaded, usable) {
        (Err(error), _) => Err(Failure::usage(error.to_string(), "")),
        (Ok(_), false) => Err(Failure {
            code: exit::NO_PYTHON,
            what: "no Python with a supported torch was found".to_owned(),
            next: String::new(),
        }),
        (Ok(_), true) => Ok(()),
    }
}

/// Measures each GPU model of this machine and stores its rates. Returns why any was not measured.
fn measure(report: &Report, store: &Store, terminal: &Terminal) -> Result<Vec<String>, Failure> {
    let libraries = match &report.interpreter {
        Ok(found) => cublas_folders(&found.prefix, found.version),
        Err(_) => Vec::new(),
    };
    let ridgeline = std::env::current_exe();
    let ridgeline = ridgeline.map_err(|error| Failure::failed(error.to_string(), ""))?;
    let mut known: Vec<Identity> = Vec::new();
    let mut failed = Vec::new();
    for gpu in &report.devices.gpus {
        let device = Identity::of(gpu, &report.devices);
        if known.contains(&device) {
            continue;
        }
        known.push(device.clone());
        let bar = terminal.spinner(&format!("measuring {} (about 10 s)", printable(&gpu.name)));
        let measured = measure_in_child(&ridgeline, gpu.index, &libraries);
        let measured = run::block_on(|cancel| async move {
            tokio::select! {
                () = cancel.cancelled() => Err(Failure::interrupted()),
                measured = measured => Ok(measured),
            }
        })??;
        bar.finish_and_clear();
        match measured {
            Ok(ceilings) if ceilings.device_name == device.name => {
                let saved = Measurement::now(device, ceilings).keep(store);
                saved.map_err(|error| Failure::failed(error.to_string(), ""))?;
            }
            Ok(other) => {
                failed
                    .push(format!("{}: another GPU was measured: {}", gpu.name, other.device_name));
            }
            Err(error) => failed.push(format!("{} was not measured: {error}", gpu.name)),
        }
    }
    Ok(failed)
}

fn describe(report: &Report, configuration: &str, store: &Store, terminal: &Terminal) -> String {
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
                        (None, None) => "CPU-only build".to_owned(),
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
                ridgeline_gpu::agent::Mode::Standby => "each run starts its own process",
            };
            let why = facts.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            row("Agent", &format!("{mode}{why}"));
            row("Sandbox", &describe_sandbox(facts.sandbox.as_ref()));
        }
        Some(Err(error)) => row("Agent", &format!("does not start: {error}")),
        None if report.interpreter.as_ref().is_ok_and(|found| found.usable().is_ok()) => {
            row("Agent", "not started; --full starts it and imports torch");
        }
        None => row("Agent", "not started: no usable Python"),
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
        for line in describe_rates(gpu, report, store) {
            row("", &line);
        }
    }
    if report.devices.gpus.is_empty() {
        row("GPU", "none: training runs on the CPU");
    }
    for (number, advice) in report.advice.iter().enumerate() {
        let what_to_do = if number == 0 { "Next steps" } else { "" };
        row(what_to_do, advice);
    }
    if report.advice.is_empty() {
        row("Next steps", "none: everything works");
    }
    text
}

/// Describes the sandbox for estimates of unsaved text.
fn describe_sandbox(sandbox: Option<&Sandbox>) -> String {
    match sandbox {
        Some(Sandbox { landlock, why: None }) => {
            format!("Landlock ABI {landlock} and seccomp confine estimates of unsaved code")
        }
        Some(Sandbox { why: Some(why), .. }) => format!(
            "not available: {why}. Unsaved code is not estimated (setting \
            `ridgeline.live.withoutSandbox`)"
        ),
        None => "unknown: not reported by the agent".to_owned(),
    }
}

/// Describes the source of a GPU's rates in predictions.
fn describe_rates(gpu: &Gpu, report: &Report, store: &Store) -> Vec<String> {
    let device = Identity::of(gpu, &report.devices);
    let Some(measured) = of_device(store, &device) else {
        let is_known = DeviceTable::shipped().find(&gpu.name).is_some();
        let rates = if is_known { "rates: datasheet" } else { "rates: unknown" };
        return vec![format!("{rates} (measure them with `ridgeline doctor --measure`)")];
    };
    let (_, refused) = measured.rates();
    let mut lines = vec![format!(
        "rates: measured on {} with driver {}: {}",
        measured.day(),
        device.driver,
        measured.summary()
    )];
    lines.extend(refused);
    lines.extend(measured.ceilings.notes);
    lines
}

fn describe_driver(driver: &Driver) -> String {
    match driver {
        Driver::Absent => "none on this machine".to_owned(),
        Driver::Ready { cuda: (major, minor) } => format!("ready, for CUDA up to {major}.{minor}"),
        Driver::NoDevice => "works, but sees no GPU".to_owned(),
        Driver::Mismatch => {
            "its library and its kernel module have different versions; reboot".to_owned()
        }
        Driver::Incomplete { symbol } => format!("lacks `{symbol}`: it is too old"),
        Driver::Failed { code } => format!("fails with error {code}"),
        Driver::Unresponsive { reason } => format!("does not respond: {reason}"),
    }
}

fn describe_gpu(gpu: &Gpu) -> String {
    let mark = if gpu.is_simulated { " (simulated)" } else { "" };
    let mut parts = vec![format!("{}{mark}", gpu.name)];
    parts.extend(gpu.memory_bytes.map(|size| units::bytes(size as f64)));
    parts.extend(gpu.is_mig_instance.then(|| "MIG instance".to_owned()));
    parts.extend(gpu.used_bytes.map(|size| format!("{} in use", units::bytes(size as f64))));
    parts.extend(gpu.multiprocessors.map(|count| format!("{count} multiprocessors")));
    parts
        .extend(gpu.capability.map(|(major, minor)| format!("compute capability {major}.{minor}")));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_is_one_line() {
        let holds = Sandbox { landlock: 7, why: None };
        let line = describe_sandbox(Some(&holds));
        assert_eq!(line, "Landlock ABI 7 and seccomp confine estimates of unsaved code");
        let why = Some("no sandbox is available on macOS".to_owned());
        let line = describe_sandbox(Some(&Sandbox { landlock: 0, why }));
        assert_eq!(
            line,
            "not available: no sandbox is available on macOS. Unsaved code is not estimated \
             (setting `ridgeline.live.withoutSandbox`)"
        );
    }
}
