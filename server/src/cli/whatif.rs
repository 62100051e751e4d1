//! `ridgeline whatif PATH`.

use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::optimize::accuracy::{Accuracy, Pair, accuracy};
use ridgeline_analysis::optimize::facts::{Cluster, Probes};
use ridgeline_analysis::optimize::network::NetworkReport;
use ridgeline_analysis::optimize::probe_list::ProbeKinds;
use ridgeline_analysis::optimize::study::{self, RecordedRun, Study, StudyOptions};
use ridgeline_analysis::present::terminal::Style;
use ridgeline_analysis::present::{network, what_ifs, what_ifs_json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::WhatifArgs;
use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{apply, output_file, profile, recorded, run, script_choice};
use crate::config::Size;
use crate::pipeline::{self, Compared, Iteration, Pipeline, Plan};
use crate::profiler::{Profiled, ProgressEvent};
use crate::what_if::{self, pairs};

/// Runs the subcommand. Naming the path on the command line is the user's consent to run it.
pub(super) fn run(args: &WhatifArgs, terminal: &Terminal) -> Result<(), Failure> {
    // Report a misspelled name before anything runs.
    let to_apply = apply::requested(&args.apply)?;
    if !to_apply.is_empty() {
        return apply::run(args, &to_apply, terminal);
    }
    let mut wanted = chosen(&args.only)?;
    let to_measure = measurable(&args.measure)?;
    if !wanted.is_empty() {
        wanted.extend(to_measure.iter().filter(|name| !args.only.iter().any(|own| own == *name)));
    }
    let request = Request {
        wanted,
        cluster: cluster(args)?,
        memory_limit: args.memory_limit.as_deref().map(size).transpose()?,
        asks_for_gpus: args.gpus.is_some(),
    };
    let path = profile::absolute(profile::named(args.path.as_deref()))?;
    let answer = match pipeline::is_recording(&path) {
        true if !to_measure.is_empty() => {
            return Err(Failure::usage(
                "`--measure` cannot be used with a recording: there is no program to run",
                "Pass the recorded script instead",
            ));
        }
        true => {
            let recorded_run = of_recording(&path)?;
            let probes = pipeline::stored_probes(&path, &recorded_run);
            request.answer(&recorded_run, &probes)?
        }
        false => of_program(args, &request, &to_measure, terminal)?,
    };
    answer.write(args.json.as_deref(), terminal)
}

/// The requested analysis of an iteration.
struct Request {
    wanted: Vec<&'static str>,
    cluster: Cluster,
    memory_limit: Option<f64>,
    /// Whether the user specified the GPUs to train on.
    asks_for_gpus: bool,
}

impl Request {
    fn answer(&self, recorded_run: &RecordedRun, probes: &Probes) -> Result<Answer, Failure> {
        let capacity = recorded_run.profile.memory.capacity_bytes.map(|bytes| bytes as f64);
        let question = StudyOptions {
            optimizations: &self.wanted,
            memory_limit: self.memory_limit.or(capacity),
            cluster: self.cluster,
            probes,
        };
        let study = recorded_run.study(&question, &|| false);
        let study = study.map_err(|why| Failure::failed(why, ""))?;
        // If it is unknown, the refusal of data-parallel training gives the reason.
        let network = self.asks_for_gpus.then(|| recorded_run.network(&question).ok()).flatten();
        Ok(Answer { study, network, ..Answer::default() })
    }
}

/// The result of the analysis.
#[derive(Default)]
struct Answer {
    study: Study,
    /// The what-ifs measured in this run.
    measured: Vec<Pair>,
    /// The accuracy over all measured what-ifs of the project.
    accuracy: Option<Accuracy>,
    /// The report on the requested network.
    network: Option<NetworkReport>,
}

impl Answer {
    fn write(&self, json: Option<&Path>, terminal: &Terminal) -> Result<(), Failure> {
        if let Some(file) = json {
            let (study, network) = (&self.study, self.network.as_ref());
            let document = what_ifs_json::document(study, &self.measured, self.accuracy, network);
            output_file::write(&document, file)?;
        }
        if output_file::is_stdout(json) {
            return Ok(());
        }
        let style = Style { color: terminal.colors(), width: terminal.width() };
        let network = self.network.as_ref().map(|report| network::page(report, style));
        let measured = what_ifs::measured(&self.measured, self.accuracy);
        let parts = [what_ifs::page(&self.study, style), network.unwrap_or_default(), measured];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        terminal.print(&parts.join("\n"))
    }
}

/// The requested names, without duplicates.
fn chosen(wanted: &[String]) -> Result<Vec<&'static str>, Failure> {
    let mut chosen = Vec::new();
    for name in wanted {
        let Some(known) = study::optimization(name) else {
            let all = study::names().join(", ");
            return Err(Failure::usage(
                format!("unknown optimization `{name}`"),
                format!("Known optimizations: {all}"),
            ));
        };
        if !chosen.contains(&known.name()) {
            chosen.push(known.name());
        }
    }
    Ok(chosen)
}

/// The optimizations to measure. Each needs an edit.
pub(super) fn measurable(wanted: &[String]) -> Result<Vec<&'static str>, Failure> {
    let chosen = chosen(wanted)?;
    let edit = |name: &str| study::optimization(name).and_then(|one| one.edit());
    let can_be_measured = |name: &&str| edit(name).is_some_and(|kind| !kind.needs_launcher());
    if let Some(name) = chosen.iter().find(|name| !can_be_measured(name)) {
        let all: Vec<&str> = study::names().into_iter().filter(can_be_measured).collect();
        let why = edit(name).map_or("it has no automatic edit", |_| what_ifs::NEEDS_LAUNCHER);
        return Err(Failure::usage(
            format!("`{name}` cannot be measured: {why}"),
            format!("Optimizations that can be measured: {}", all.join(", ")),
        ));
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
                format!("`{text}` is not a bandwidth"),
                "Use gigabits per second, such as `--bandwidth 25`, or `3.1GB/s`",
            )
        })?;
        // A single number applies to every path between two GPUs.
        cluster.link = Some(rate);
        cluster.network = Some(rate);
    }
    Ok(cluster)
}

/// Parses `25`, `25 Gbit/s` or `3.1 GB/s`, in bytes per second.
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

pub(super) fn size(text: &str) -> Result<f64, Failure> {
    let size = Size::parse(text).ok_or_else(|| {
        Failure::usage(
            format!("`{text}` is not a size"),
            "Use a number of bytes or a size such as \"16 GB\"",
        )
    })?;
    Ok(size.bytes() as f64)
}

fn of_recording(path: &Path) -> Result<RecordedRun, Failure> {
    let (recording, profile, graph) = recorded::read(path)?;
    let here = std::env::current_dir().unwrap_or_default();
    pipeline::recorded_run(Iteration::new(recording, graph), &here, Arc::new(profile))
        .map_err(|why| recorded::failure(path, &why))
}

fn of_program(
    args: &WhatifArgs,
    options: &Request,
    to_measure: &[&'static str],
    terminal: &Terminal,
) -> Result<Answer, Failure> {
    let request = profile::request(args.path.as_deref(), None, &args.run)?;
    let store = run::open_store()?;
    let pipeline = Pipeline::new(store.clone());
    run::block_on(|cancel| async move {
        let plan = script_choice::plan(&pipeline, request, terminal, &cancel).await?;
        let (profiled, mut answer) =
            studied(&pipeline, &plan, options, args.fresh, terminal, &cancel).await?;
        let mut measured = Vec::new();
        for name in to_measure {
            let pair = run::with_progress_bar(async |progress| {
                measured_pair(&pipeline, &plan, &profiled, &answer.study, name, &progress, &cancel)
                    .await
            });
            match pair.await {
                Ok(pair) => {
                    if let Err(why) = pairs::add(&store, &profiled.root, &pair) {
                        terminal.note(&format!("note: this measurement was not saved: {why}"));
                    }
                    measured.push(pair);
                }
                Err(failure) if failure.code == exit::INTERRUPTED => return Err(failure),
                // Continue with the others, and report the failure.
                Err(failure) => terminal.note(&format!("note: {name}: {}", failure.what)),
            }
        }
        answer.measured = measured;
        answer.accuracy =
            accuracy(&pairs::read_of_device(&store, &profiled.root, &profiled.profile.device));
        Ok(answer)
    })?
}

/// Profiles a program, or reuses its newest profile, and estimates optimizations.
async fn studied(
    pipeline: &Pipeline,
    plan: &Plan,
    options: &Request,
    is_fresh: bool,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<(Arc<Profiled>, Answer), Failure> {
    let profiled = run::reuse_or_run(pipeline, plan, is_fresh, terminal, cancel).await?;
    let recorded_run = what_if::recorded_run(&profiled).map_err(|why| Failure::failed(why, ""))?;
    if let Err(why) = &recorded_run.device {
        return Err(Failure::failed(why.clone(), ""));
    }
    let recording = profiled.recording.as_deref();
    let probed = run::with_progress_bar(async |progress| {
        pipeline
            .probe(plan, &recorded_run, (ProbeKinds::ALL, None), recording, &progress, cancel)
            .await
    });
    let probed = probed.await.map_err(run::failure_of)?;
    let profiled = Arc::new(profiled);
    let memory = pipeline.measure_edited_memory(plan, &profiled, cancel);
    memory.await.map_err(run::failure_of)?;
    probed.notes.iter().for_each(|note| terminal.note(&format!("note: {note}")));
    let mut answer = options.answer(&recorded_run, &probed.probes)?;
    what_if::correct(&mut answer.study, &profiled, Some(pipeline.store()));
    Ok((profiled, answer))
}

/// Profiles a program and estimates all optimizations.
pub(super) async fn study_of_program(
    pipeline: &Pipeline,
    plan: &Plan,
    memory_limit: Option<f64>,
    is_fresh: bool,
    terminal: &Terminal,
    cancel: &CancellationToken,
) -> Result<(Arc<Profiled>, Study), Failure> {
    let options = Request {
        wanted: Vec::new(),
        cluster: Cluster::default(),
        memory_limit,
        asks_for_gpus: false,
    };
    let (profiled, answer) = studied(pipeline, plan, &options, is_fresh, terminal, cancel).await?;
    Ok((profiled, answer.study))
}

/// Measures one optimization that was predicted.
pub(super) async fn measured_pair(
    pipeline: &Pipeline,
    plan: &Plan,
    profiled: &Arc<Profiled>,
    study: &Study,
    name: &str,
    progress: &mpsc::Sender<ProgressEvent>,
    cancel: &CancellationToken,
) -> Result<Pair, Failure> {
    let Some(prediction) = study.prediction(name).cloned() else {
        let refused = study.what_ifs.refusals.iter().find(|refused| refused.name == name);
        let why = refused.map_or("no prediction available", |refused| refused.why.as_str());
        return Err(Failure::failed(format!("not applicable: {why}"), ""));
    };
    let compared = Compared { prediction, measured: profiled.clone(), texts: Vec::new() };
    let measured = pipeline.measure(plan, &compared, progress, cancel).await;
    measured.map_err(run::failure_of)
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
