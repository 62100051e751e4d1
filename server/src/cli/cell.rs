//! `ridgeline cell`: the part of the `%%ridgeline` magic (`server/python`) that is not in the
//! kernel. It runs nothing.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;

use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::present::headline::headline;
use ridgeline_analysis::present::terminal as present;
use ridgeline_analysis::profile::{FileId, Profile, Provenance};
use ridgeline_analysis::python::SourceIndex;
use ridgeline_gpu::agent;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::exit::Failure;
use super::profile::{absolute, project_of};
use super::terminal::Terminal;
use super::{run, show};
use crate::pipeline;

/// The maximum size of a request in bytes. It has the texts of the cells.
const REQUEST_LIMIT: u64 = 256 << 20;
/// Other cells are printed if their lines take this share of the iteration.
const PRINTED_SHARE: f64 = 0.05;

#[derive(Deserialize)]
struct Begin {
    /// The notebook's file, or the folder of a kernel whose notebook is unknown.
    path: PathBuf,
}

#[derive(Deserialize)]
struct End {
    recording: PathBuf,
    root: PathBuf,
    /// The path of the cell that ran, as in the recording.
    cell: String,
    /// The texts of this and other cells, by path. The file may have others, or may not be known.
    texts: HashMap<String, String>,
}

/// Prepares a recording.
pub(super) fn begin(terminal: &Terminal) -> Result<(), Failure> {
    let Begin { path } = request()?;
    let path = absolute(&path)?;
    let root = project_of(&path);
    let store = run::open_store()?;
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string(), "");
    let agent = agent::unpack(store.cache()).map_err(|error| failed(&error))?;
    let recording = store.new_recording(&root).map_err(|error| failed(&error))?;
    let request = pipeline::cell_request(&root, path, recording).map_err(run::failure_of)?;
    let mut request = serde_json::to_value(request).map_err(|error| failed(&error))?;
    if let Some(request) = request.as_object_mut() {
        request.insert("op".to_owned(), json!("run"));
        request.insert("id".to_owned(), json!(0));
    }
    terminal.print(&format!("{}\n", json!({ "agent": agent, "request": request })))
}

/// Prints a recorded cell, and other cells with high costs.
pub(super) fn end(terminal: &Terminal) -> Result<(), Failure> {
    let End { recording, root, cell, texts } = request()?;
    let store = run::open_store()?;
    let profiled = pipeline::add(&store, &root, &recording)
        .map_err(|why| Failure::failed(format!("the recording cannot be read: {why}"), ""))?;
    let profile = &profiled.profile;
    let heading = terminal.heading();
    let mut page = format!("{heading}{}{heading:#}\n", headline(profile, Provenance::Measured));
    for (at, file) in cells_to_print(profile, &cell) {
        let Some(text) = texts.get(file) else { continue };
        let source = SourceIndex::new(text.as_str());
        let costs = CostMap::build(profile, at, &source);
        let style = show::style(terminal);
        let lines = match file == cell {
            true => present::annotated_lines(profile, &costs, &source, 1..=u32::MAX, style),
            false => present::annotated_source(profile, &costs, &source, style),
        };
        page += &format!("\n{heading}{}{heading:#}\n{lines}", printable(file));
    }
    for note in &profile.notes {
        page += &format!("\nnote: {}\n", printable(note));
    }
    terminal.print(&page)
}

/// Returns the files to print: the cell itself, and others with high costs, the highest first.
fn cells_to_print<'a>(profile: &'a Profile, cell: &str) -> Vec<(FileId, &'a str)> {
    let files = profile.files.iter().zip(&profile.lines).zip(0..);
    let mut found: Vec<(f64, FileId, &str)> = files
        .map(|((file, lines), at)| {
            let time: f64 = lines.iter().map(|line| line.self_time.total()).sum();
            (if file.path == cell { f64::INFINITY } else { time }, FileId(at), file.path.as_str())
        })
        .filter(|(time, ..)| *time >= PRINTED_SHARE * profile.iteration.time_ns)
        .collect();
    found.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    found.into_iter().map(|(_, at, path)| (at, path)).collect()
}

/// Reads a request from standard input.
fn request<T: DeserializeOwned>() -> Result<T, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(REQUEST_LIMIT).read_to_string(&mut text);
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(
            format!("the request cannot be read: {error}"),
            "Use the `%%ridgeline` magic in a notebook",
        )
    };
    read.map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}
