//! `ridgeline report [PATH]`: writes the newest profile of a project as an HTML page.

use std::path::Path;

use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::study::RecordedRun;
use ridgeline_analysis::present::panel;

use super::ReportArgs;
use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{output_file, profile, run, show};
use crate::panel::answer::findings_without_edits;
use crate::profiler::Profiled;
use crate::store::Store;
use crate::{findings, pipeline, report, what_if};

/// Runs the subcommand. It reads the results of an earlier run and runs nothing.
pub(super) fn run(args: &ReportArgs, terminal: &Terminal) -> Result<(), Failure> {
    let path = profile::absolute(&args.path)?;
    let root = profile::project_of(&path);
    let store = run::open_store()?;
    let profiled = pipeline::newest(&store, &root).map_err(|why| Failure {
        code: exit::NOTHING_TO_RUN,
        what: why,
        next: format!("Run `ridgeline profile {}` first", root.display()),
    })?;
    let file = match &args.output {
        Some(file) => file.clone(),
        None => store.recordings(&profiled.root).join("report.html"),
    };
    let recorded_run = what_if::recorded_run(&profiled);
    let found = findings::of_run(&profiled, &recorded_run);
    write(&profiled, &show::Sources::read(&profiled), &found, &recorded_run, &store, &file)?;
    terminal.print(&format!("{}\n", file.display()))
}

/// Writes the page of a measurement, with its findings and what-ifs.
pub(super) fn write(
    profiled: &Profiled,
    sources: &show::Sources,
    found: &Result<Vec<Finding>, String>,
    recorded_run: &Result<RecordedRun, String>,
    store: &Store,
    file: &Path,
) -> Result<(), Failure> {
    let found = found.as_ref().ok().map(|found| findings_without_edits(found));
    let found = found.map(|found| panel::Findings { found, message: None });
    // The reason for missing what-ifs is already reported with the findings.
    let what_ifs = match recorded_run {
        Ok(recorded_run) => what_if::study_of(profiled, recorded_run, Some(store)),
        Err(why) => Err(why.clone()),
    };
    let page = report::page(profiled, &sources.texts(), found.as_ref(), Some(&what_ifs), store)
        .map_err(|error| Failure::failed(format!("could not write the report: {error:#}"), ""))?;
    output_file::save(file, page.as_bytes())
}
