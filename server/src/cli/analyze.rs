//! `ridgeline analyze TRACE`. It starts nothing but the reading of one file: no runtime, no Python.

use std::fs::File;
use std::path::Path;

use ridgeline_analysis::attribution;
use ridgeline_analysis::metrics::summary::{TraceSummary, summarize};
use ridgeline_analysis::present::json::{self, KernelTotal};
use ridgeline_analysis::present::terminal as present;
use ridgeline_analysis::present::trace_summary::trace_summary;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::trace::Trace;

use super::AnalyzeArgs;
use super::exit::Failure;
use super::output_file;
use super::terminal::Terminal;
use crate::pipeline;

/// Runs the subcommand.
pub fn run(args: &AnalyzeArgs, terminal: &Terminal) -> Result<(), Failure> {
    let style = present::Style { color: terminal.colors(), width: terminal.width() };
    if args.trace.is_dir() {
        return analyze_recording(args, terminal, style);
    }
    let summary = read_trace(&args.trace)?;
    if let Some(file) = &args.json {
        output_file::write(&summary, file)?;
    }
    if output_file::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    terminal.print(&trace_summary(&summary, args.top, style))
}

fn read_trace(path: &Path) -> Result<TraceSummary, Failure> {
    let wrong = |why: String| {
        Failure::failed(
            format!("{}: {why}", path.display()),
            "Name a trace that torch.profiler wrote (`export_chrome_trace`), or a recording's folder",
        )
    };
    let file = File::open(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let trace = Trace::read(file, &Options::default()).map_err(|error| wrong(error.to_string()))?;
    let is_empty = trace.operators.is_empty()
        && trace.activities.is_empty()
        && trace.runtime_calls.is_empty()
        && trace.memory.is_empty()
        && trace.python_frames.is_empty()
        && trace.annotations.is_empty()
        && trace.counters.is_none();
    if is_empty {
        return Err(wrong("it has no operator, no kernel and no memory event in it".to_owned()));
    }
    let mut summary = summarize(&trace);
    let recording = Recording { trace, lines: None, manifest: None };
    if let Ok(profile) = attribution::attribute(&recording) {
        summary.explain(&profile);
    }
    // The process ends soon; giving hundreds of megabytes back piece by piece only takes time.
    std::mem::forget(recording);
    Ok(summary)
}

/// A recording of Ridgeline's own says more than its trace alone.
fn analyze_recording(
    args: &AnalyzeArgs,
    terminal: &Terminal,
    style: present::Style,
) -> Result<(), Failure> {
    let wrong = |why: String| {
        Failure::failed(
            format!("{}: {why}", args.trace.display()),
            "Name a folder that a finished run left, or a trace file",
        )
    };
    let recording = pipeline::load(&args.trace).map_err(|error| wrong(error.to_string()))?;
    let profile = attribution::attribute(&recording).map_err(|error| wrong(error.to_string()))?;
    if let Some(file) = &args.json {
        let kernels = summarize(&recording.trace)
            .kernels
            .into_iter()
            .map(|kernel| KernelTotal {
                name: kernel.name,
                calls: kernel.calls,
                total_ns: kernel.total_ns,
            })
            .collect();
        output_file::write(&json::analysis_document(&profile, &[], kernels), file)?;
    }
    if output_file::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    terminal.print(&present::summary(&profile, style))
}
