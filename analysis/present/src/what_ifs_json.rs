//! The document of `ridgeline whatif --json`, described by `docs/schema/whatif.schema.json`.

use serde::Serialize;

use ridgeline_base::printable::name;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_operators::range::Range;
use ridgeline_optimize::accuracy::{Accuracy, Pair};
use ridgeline_optimize::network::NetworkReport;
use ridgeline_optimize::optimization::Prediction;
use ridgeline_optimize::ranking::Inapplicable;
use ridgeline_optimize::recompute_curve::Point;
use ridgeline_optimize::study::{Study, optimization};
use ridgeline_profile::FileId;

/// The version of the document.
pub const SCHEMA: u32 = 1;

/// The predictions of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    schema: u32,
    device: Option<String>,
    batch_size: Option<u64>,
    iteration_ns: f64,
    peak_bytes: Option<f64>,
    replay_error: f64,
    tasks: usize,
    predictions: Vec<Predicted>,
    combinations: Vec<Predicted>,
    refusals: Vec<Refusal>,
    recompute: Vec<Recompute>,
    measured: Vec<Pair>,
    accuracy: Option<Accuracy>,
    network: Option<NetworkReport>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Predicted {
    names: Vec<String>,
    title: String,
    source: String,
    time_ns: Range,
    speedup: Range,
    samples_per_second: Option<Range>,
    peak_bytes: Option<Range>,
    lines: Vec<Place>,
    notes: Vec<String>,
    edit: bool,
    research: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Place {
    file: String,
    line: u32,
}

#[derive(Clone, Debug, Serialize)]
struct Recompute {
    time_ns: f64,
    peak_bytes: f64,
    lines: Vec<Place>,
}

#[derive(Clone, Debug, Serialize)]
struct Refusal {
    name: &'static str,
    title: &'static str,
    why: String,
}

/// Returns the document of a study. `measured` are the pairs of this call, `accuracy` covers all
/// pairs of the project, and `network` is the requested network report.
pub fn document(
    study: &Study,
    measured: &[Pair],
    accuracy: Option<Accuracy>,
    network: Option<&NetworkReport>,
) -> Document {
    let predicted =
        |rows: &[Prediction]| rows.iter().map(|row| Predicted::of(study, row)).collect();
    Document {
        schema: SCHEMA,
        device: Some(name(&study.device)).filter(|name| !name.is_empty()),
        batch_size: study.batch_size,
        iteration_ns: study.iteration_ns,
        peak_bytes: study.peak_bytes,
        replay_error: study.replay_error,
        tasks: study.tasks,
        predictions: predicted(&study.what_ifs.predictions),
        combinations: predicted(&study.what_ifs.combinations),
        refusals: study.what_ifs.refusals.iter().map(Refusal::of).collect(),
        recompute: study.recompute.iter().map(|point| Recompute::of(study, point)).collect(),
        measured: measured.to_vec(),
        accuracy,
        network: network.cloned(),
        notes: study.notes.iter().map(|note| sentence(note)).collect(),
    }
}

impl Predicted {
    fn of(study: &Study, row: &Prediction) -> Predicted {
        let known: Vec<_> = row.names.iter().filter_map(|name| optimization(name)).collect();
        let sources: Vec<&str> = known.iter().map(|one| one.source()).collect();
        Predicted {
            names: row.names.clone(),
            title: row.title.clone(),
            source: sources.join("; "),
            time_ns: row.time_ns,
            speedup: row.speedup(),
            samples_per_second: study.samples_per_second(row),
            peak_bytes: row.peak_bytes,
            lines: row.lines.iter().filter_map(|at| place(study, *at)).collect(),
            notes: row.notes.iter().map(|note| sentence(note)).collect(),
            edit: !known.is_empty() && known.iter().all(|one| one.edit().is_some()),
            research: row.is_research,
        }
    }
}

fn place(study: &Study, (file, line): (FileId, u32)) -> Option<Place> {
    let file = study.files.get(file.0 as usize)?;
    Some(Place { file: name(file), line })
}

impl Recompute {
    fn of(study: &Study, point: &Point) -> Recompute {
        let lines = point.lines.iter().filter_map(|at| place(study, *at)).collect();
        Recompute { time_ns: point.time_ns, peak_bytes: point.peak_bytes, lines }
    }
}

impl Refusal {
    fn of(refused: &Inapplicable) -> Refusal {
        Refusal { name: refused.name, title: refused.title, why: sentence(&refused.why) }
    }
}

fn sentence(text: &str) -> String {
    shorten(&clean(text), 1000)
}
