//! The document of `ridgeline tune --json`, described by `docs/schema/tune.schema.json`.

use serde::Serialize;

use ridgeline_base::printable::{clean, shorten};
use ridgeline_optimize::accuracy::Sides;
use ridgeline_optimize::numerics::Check;
use ridgeline_optimize::tuning::{Measured, Trial, Verdict};

/// The version of the document.
const SCHEMA: u32 = 1;

/// What was tried, and what was kept.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    schema: u32,
    memory_limit_bytes: Option<f64>,
    trials: Vec<TrialEntry>,
    total: Option<Outcome>,
    patch: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct TrialEntry {
    name: String,
    predicted_speedup: f64,
    result: Option<Outcome>,
    not_tried: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Outcome {
    verdict: &'static str,
    speedup: Option<f64>,
    measured: Sides,
    drift: f64,
    numerics: Option<Check>,
}

/// Returns the document of the trials in their order. `memory_limit` is in bytes, and `patch` the changes of everything
/// that was kept together, if that helps.
pub fn document(
    trials: &[Trial],
    memory_limit: Option<f64>,
    total: Option<&Measured>,
    patch: Option<&str>,
) -> Document {
    let entry = |trial: &Trial| TrialEntry {
        name: trial.name.clone(),
        predicted_speedup: trial.predicted,
        result: trial.result.as_ref().ok().map(|one| Outcome::of(one, memory_limit)),
        not_tried: trial.result.as_ref().err().map(|why| shorten(&clean(why), 1000)),
    };
    Document {
        schema: SCHEMA,
        memory_limit_bytes: memory_limit,
        trials: trials.iter().map(entry).collect(),
        total: total.map(|all| Outcome::of(all, memory_limit)),
        patch: patch.map(str::to_owned),
    }
}

impl Outcome {
    fn of(measured: &Measured, memory_limit: Option<f64>) -> Outcome {
        Outcome {
            verdict: match measured.verdict(memory_limit) {
                Verdict::Kept => "kept",
                Verdict::NotFaster => "not-faster",
                Verdict::TooNoisy => "too-noisy",
                Verdict::TooMuchMemory => "too-much-memory",
                Verdict::ChangesLoss => "changes-loss",
            },
            speedup: measured.sides.speedup(),
            measured: measured.sides,
            drift: measured.drift,
            numerics: measured.check.clone(),
        }
    }
}
