//! Prints the findings of a recording and the time of all rules: `cargo run --release -p
//! ridgeline-evaluate --bin diagnose -- RECORDING PROJECT ENTRY`. RECORDING is a folder as
//! described in docs/recording.md, PROJECT the root of the program and ENTRY its script.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ridgeline_attribution::{attribute, step_graph};
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_diagnose::finding::Finding;
use ridgeline_diagnose::{self as diagnose, severity};
use ridgeline_optimize::facts::Probes;
use ridgeline_optimize::study::{RecordedRun, device_of};
use ridgeline_python::semantics::{Entry, Project};
use ridgeline_recording::Recording;
use ridgeline_recording::chrome_trace::Options;
use ridgeline_recording::line_log::LineLog;
use ridgeline_recording::manifest::Manifest;
use ridgeline_recording::trace::Trace;

/// A project in a folder.
struct Folder(String);

impl Project for Folder {
    fn text(&self, path: &str) -> Option<Arc<str>> {
        fs::read_to_string(Path::new(&self.0).join(path)).ok().map(Arc::from)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recording, project, entry] = arguments.as_slice() else {
        return Err("RECORDING PROJECT ENTRY".into());
    };
    let recording = read(Path::new(recording))?;
    let project = Folder(project.clone());
    let entry = Entry { path: entry.clone(), ..Entry::default() };
    println!("unmeasured:");
    for finding in diagnose::diagnose_source(&project, &entry) {
        println!("  {}", line(&finding));
    }
    let profile = attribute(&recording)?;
    let recorded = step_graph(&recording, &profile)?;
    let ran_on_gpu = !recording.trace.activities.is_empty();
    let cores = recording.manifest.as_ref().and_then(|it| it.machine.as_ref()?.cores).unwrap_or(1);
    let device = device_of(&profile, ran_on_gpu, DeviceTable::shipped(), cores);
    let profile = Arc::new(profile);
    let subject = RecordedRun { recorded, profile, manifest: recording.manifest, device };
    let began = Instant::now();
    let found = diagnose::diagnose(&subject, &Probes::default(), &project, &entry);
    println!(
        "measured, an iteration of {:.2} ms and {:.1} MB, in {:.0?}:",
        subject.profile.iteration.time_ns / 1e6,
        subject.profile.memory.peak_bytes as f64 / 1e6,
        began.elapsed()
    );
    for finding in found {
        println!("  {:?} {}", severity::severity(&finding, Some(&subject.profile)), line(&finding));
        println!("      {}", finding.why);
        for (place, what) in &finding.related {
            println!("      {}:{} {what}", place.path, place.line);
        }
    }
    Ok(())
}

fn line(finding: &Finding) -> String {
    let cost = finding.cost.map_or("not measured".to_owned(), |cost| {
        let about = if cost.is_predicted { "~" } else { "" };
        format!("{about}{:.3} ms {about}{:.1} MB", cost.time_ns / 1e6, cost.bytes / 1e6)
    });
    let (at, rule) = (&finding.at, finding.rule);
    format!("{}:{} {rule} [{cost}] {} {:?}", at.path, at.line, finding.message, finding.fix)
}

fn read(folder: &Path) -> Result<Recording, Box<dyn Error>> {
    let manifest = Manifest::parse(&fs::read(folder.join("manifest.json"))?)?;
    let lines = LineLog::parse(&fs::read(folder.join("lines.bin"))?, &manifest)?;
    let trace = Trace::read(fs::File::open(folder.join("trace.json"))?, &Options::default())?;
    Ok(Recording { trace, lines: Some(lines), manifest: Some(manifest), ceilings: None })
}
