//! `ridgeline whatif PATH`.

use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::attribution;
use ridgeline_analysis::present::terminal::Style;
use ridgeline_analysis::present::{what_ifs, what_ifs_json};
use ridgeline_analysis::whatif::facts::{Cluster, Probes};
use ridgeline_analysis::whatif::study::{self, Question, Subject};

use super::WhatifArgs;
use super::exit::Failure;
use super::terminal::Terminal;
use super::{output_file, profile, run};
use crate::config::Size;
use crate::pipeline::{self, Pipeline};

/// Runs the subcommand. Naming the path on the command line is the person's consent to run it.
pub fn run(args: &WhatifArgs, terminal: &Terminal) -> Result<(), Failure> {
    // A slip in a name is told before anything runs.
    let wanted = chosen(&args.only)?;
    let cluster = cluster(args)?;
    let memory_limit = args.memory_limit.as_deref().map(size).transpose()?;
    let path = profile::absolute(&args.path)?;
    let subject = match pipeline::is_recording(&path) {
        true => of_recording(&path)?,
        false => of_program(args, terminal)?,
    };
    let capacity = subject.profile.memory.capacity_bytes.map(|bytes| bytes as f64);
    let probes = Probes::default();
    let question = Question {
        wanted: &wanted,
        memory_limit: memory_limit.or(capacity),
        cluster,
        probes: &probes,
    };
    let study = subject.study(&question, &|| false);
    if let Some(file) = &args.json {
        output_file::write(&what_ifs_json::document(&study, &[], None), file)?;
    }
    if output_file::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    let style = Style { color: terminal.colors(), width: terminal.width() };
    terminal.print(&what_ifs::page(&study, style))
}

/// The names that were asked for, each once.
fn chosen(wanted: &[String]) -> Result<Vec<&'static str>, Failure> {
    let mut chosen = Vec::new();
    for name in wanted {
        let Some(known) = study::optimization(name) else {
            let all = study::names().join(", ");
            return Err(Failure::usage(
                format!("there is no optimization called `{name}`"),
                format!("There are {all}"),
            ));
        };
        if !chosen.contains(&known.name()) {
            chosen.push(known.name());
        }
    }
    Ok(chosen)
}

fn cluster(args: &WhatifArgs) -> Result<Cluster, Failure> {
    let mut cluster = Cluster::default();
    if let Some(gpus) = args.gpus {
        cluster.gpus = gpus;
    }
    if let Some(text) = &args.bandwidth {
        let rate = bytes_per_second(text).ok_or_else(|| {
            Failure::usage(
                format!("`{text}` is no bandwidth"),
                "Gigabits per second, such as `--bandwidth 25`, or `3.1GB/s`",
            )
        })?;
        // One number is that of every way between two GPUs.
        cluster.link = Some(rate);
        cluster.network = Some(rate);
    }
    Ok(cluster)
}

/// `25`, `25 Gbit/s`, `3.1 GB/s`, in bytes per second.
fn bytes_per_second(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "" | "Gbps" | "Gb/s" | "Gbit/s" => 1e9 / 8.0,
        "GB/s" => 1e9,
        _ => return None,
    };
    let rate = number.parse::<f64>().ok()? * scale;
    (1e3..=1e15).contains(&rate).then_some(rate)
}

fn size(text: &str) -> Result<f64, Failure> {
    let size = Size::parse(text).ok_or_else(|| {
        Failure::usage(
            format!("`{text}` is no size"),
            "A number of bytes, or text such as \"16 GB\"",
        )
    })?;
    Ok(size.bytes() as f64)
}

fn of_recording(path: &Path) -> Result<Subject, Failure> {
    let wrong = |why: String| {
        Failure::failed(
            format!("{}: {why}", path.display()),
            "Name a script, a project, a folder that a finished run left, or a trace",
        )
    };
    let recording = pipeline::load(path).map_err(|error| wrong(error.to_string()))?;
    let profile = attribution::attribute(&recording).map_err(|error| wrong(error.to_string()))?;
    let here = std::env::current_dir().unwrap_or_default();
    pipeline::subject(recording, &here, Arc::new(profile)).map_err(wrong)
}

fn of_program(args: &WhatifArgs, terminal: &Terminal) -> Result<Subject, Failure> {
    let request = profile::request(&args.path, None, &args.run)?;
    let pipeline = Pipeline::new(run::open_store()?);
    let profiled = run::block_on(|cancel| async move {
        let plan = pipeline.plan(request).await.map_err(run::failure_of)?;
        run::run_plan(&pipeline, &plan, terminal, &cancel).await
    })??;
    let wrong = |why: String| Failure::failed(why, "");
    let folder = profiled.recording.as_deref();
    let folder = folder.ok_or_else(|| wrong("the run left no recording".to_owned()))?;
    let recording = pipeline::load(folder).map_err(|error| wrong(error.to_string()))?;
    pipeline::subject(recording, &profiled.root, profiled.profile).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths() {
        for (text, expected) in [
            ("8", Some(1e9)),
            ("100 Gbit/s", Some(12.5e9)),
            ("12.5GB/s", Some(12.5e9)),
            ("0", None),
            ("-1", None),
            ("fast", None),
            ("1 MB/s", None),
            ("9999999999", None),
        ] {
            assert_eq!(bytes_per_second(text), expected, "{text}");
        }
    }
}
