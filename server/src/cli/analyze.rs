//! `ridgeline analyze TRACE`. It only reads one file, without a runtime or Python.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::attribution::part::{MAX_EVENTS, Part, part};
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::present::findings;
use ridgeline_analysis::present::json::{self, KernelTotal};
use ridgeline_analysis::present::terminal as present;
use ridgeline_analysis::present::trace_summary::{self, TraceSummary, summarize};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::semantics::Entry;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::{Options, TraceError};
use ridgeline_analysis::recording::trace::Trace;
use ridgeline_analysis::{attribution, diagnose};
use serde::Serialize;

use super::AnalyzeArgs;
use super::exit::Failure;
use super::output_file;
use super::terminal::Terminal;
use crate::pipeline::{self, Iteration};

/// Runs the subcommand.
pub(super) fn run(args: &AnalyzeArgs, terminal: &Terminal) -> Result<(), Failure> {
    let style = present::Style { color: terminal.colors(), width: terminal.width() };
    if args.trace.is_dir() {
        return analyze_recording(args, terminal, style);
    }
    let recording = Recording { trace: read_trace(args)?, ..Recording::default() };
    let mut summary = match part(&recording.trace, MAX_EVENTS) {
        Part::Whole => {
            let (mut summary, profile) = std::thread::scope(|scope| {
                let attributed = scope.spawn(|| attribution::attribute(&recording));
                let summary = summarize(&recording.trace);
                let attributed = attributed.join();
                (summary, attributed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            if let Ok(profile) = &profile {
                summary.explain(profile);
            }
            summary
        }
        // Sequentially, so that both are never in memory at once.
        Part::Iterations { trace, count, of } => {
            let mut summary = summarize(&recording.trace);
            let part = Recording { trace: *trace, ..Recording::default() };
            if let Ok(profile) = attribution::attribute(&part) {
                summary.explain(&profile);
                summary.notes.push(format!(
                    "the bottleneck and the utilization cover {count} of {of} iterations around \
                    the median, because all of them would need too much memory"
                ));
            }
            summary
        }
        Part::TooLarge => {
            let mut summary = summarize(&recording.trace);
            summary.notes.push(format!(
                "the bottleneck and the utilization are unknown: the trace has no profiler step \
                with at most {MAX_EVENTS} events to simulate. Record with a schedule and call \
                `step()`"
            ));
            summary
        }
    };
    // The process ends soon, and freeing hundreds of megabytes piece by piece would only take time.
    std::mem::forget(recording);
    if let Some(file) = &args.json {
        summary
            .notes
            .push("Findings need the program's source: run `ridgeline profile`".to_owned());
        output_file::write(&Analysis { summary: &summary, findings: () }, file)?;
    }
    if output_file::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    terminal.print(&trace_summary::page(&summary, args.top, style))
}

/// The output of `--json`.
#[derive(Serialize)]
struct Analysis<'a> {
    #[serde(flatten)]
    summary: &'a TraceSummary,
    /// Null, because findings need the program's source. The notes explain that.
    findings: (),
}

/// The findings of a recording without the texts that ran.
///
/// # Errors
/// The reason why there are none, as a sentence without a full stop.
fn found_in(iteration: Iteration, profile: Arc<Profile>) -> Result<Vec<Finding>, String> {
    let here = std::env::current_dir().unwrap_or_default();
    let recorded_run = pipeline::recorded_run(iteration, &here, profile)?;
    let no_texts: HashMap<String, Arc<str>> = HashMap::new();
    let findings =
        diagnose::diagnose(&recorded_run, &Probes::default(), &no_texts, &Entry::default());
    // The process ends soon, and freeing hundreds of megabytes piece by piece would only take time.
    std::mem::forget(recorded_run);
    Ok(findings)
}

fn read_trace(args: &AnalyzeArgs) -> Result<Trace, Failure> {
    let path: &Path = &args.trace;
    let wrong = |why: String| {
        Failure::failed(
            format!("{}: {why}", path.display()),
            "Pass a trace written by torch.profiler (`export_chrome_trace`) or a recording folder",
        )
    };
    let file = File::open(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let max_memory_bytes = args.max_memory.saturating_mul(1_000_000);
    let options = Options { max_memory_bytes, ..Options::default() };
    let trace = Trace::read(file, &options).map_err(|error| match error {
        TraceError::TooMuchMemory { .. } => Failure::failed(
            format!("{}: {error}", path.display()),
            "Raise the limit with `--max-memory MB`, or record fewer steps (`schedule(active=3)`) \
            without `with_stack`",
        ),
        error => wrong(error.to_string()),
    })?;
    let is_empty = trace.operators.is_empty()
        && trace.activities.is_empty()
        && trace.runtime_calls.is_empty()
        && trace.memory.is_empty()
        && trace.python_frames.is_empty()
        && trace.annotations.is_empty()
        && trace.counters.is_none();
    if is_empty {
        return Err(wrong("it contains no operators, kernels or memory events".to_owned()));
    }
    Ok(trace)
}

/// The first trace file of a folder.
fn first_trace(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.filter(|file| pipeline::is_recording(file) && file.is_file()).min()
}

/// Analyzes a Ridgeline recording, which has more information than its trace.
fn analyze_recording(
    args: &AnalyzeArgs,
    terminal: &Terminal,
    style: present::Style,
) -> Result<(), Failure> {
    let wrong = |why: String| {
        Failure::failed(
            format!("{}: {why}", args.trace.display()),
            "Pass the folder of a finished run or a trace file",
        )
    };
    if !pipeline::is_recording(&args.trace)
        && let Some(trace) = first_trace(&args.trace)
    {
        return Err(Failure::failed(
            format!("{}: the folder is not a recording, but contains traces", args.trace.display()),
            format!("Pass one trace file, such as `ridgeline analyze {}`", trace.display()),
        ));
    }
    let recording = pipeline::load(&args.trace).map_err(|error| wrong(error.to_string()))?;
    let attributed = attribution::attribute_with_graph(&recording, None);
    let (mut profile, graph) = attributed.map_err(|error| wrong(error.to_string()))?;
    pipeline::add_ranks(&args.trace, &recording, &mut profile);
    let kernels = args.json.as_ref().map(|_| summarize(&recording.trace).kernels);
    let profile = Arc::new(profile);
    let found = found_in(Iteration::new(recording, graph), profile.clone());
    let found = found.as_deref().map_err(String::as_str);
    if let Some(file) = &args.json {
        let kernels = kernels
            .unwrap_or_default()
            .into_iter()
            .map(|kernel| KernelTotal {
                name: kernel.name,
                calls: kernel.calls,
                total_ns: kernel.total_ns,
            })
            .collect();
        let document = json::analysis_document(&profile, &[], kernels);
        output_file::write(&document.with_findings(found, &profile), file)?;
    }
    if output_file::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    let found = found.map(|found| findings::page(found, &profile, style, true)).unwrap_or_default();
    terminal.print(&format!("{}{found}", present::summary(&profile, style)))
}
