//! `ridgeline report [PATH]`: the newest profile of a project as a page.

use super::ReportArgs;
use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{profile, run, show};
use crate::discover::project_root;
use crate::pipeline;

/// Runs the subcommand. It reads what an earlier run left and runs nothing.
pub fn run(args: &ReportArgs, terminal: &Terminal) -> Result<(), Failure> {
    let path = profile::absolute(&args.path)?;
    let root = if path.is_file() { project_root(&path, None) } else { path };
    let store = run::open_store()?;
    let profiled = pipeline::newest(&store, &root).map_err(|why| Failure {
        code: exit::NOTHING_TO_RUN,
        what: why,
        next: format!("`ridgeline profile {}` does that", root.display()),
    })?;
    let file = match &args.output {
        Some(file) => file.clone(),
        None => store.recordings(&root).join("report.html"),
    };
    show::write_report(&profiled, &show::Sources::read(&profiled), &file)?;
    terminal.print(&format!("{}\n", file.display()))
}
