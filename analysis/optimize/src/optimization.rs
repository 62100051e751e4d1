//! The trait of an optimization, and the prediction of its effect from the graph before and after.

use serde::Serialize;

use super::accuracy::Correction;
use super::facts::Facts;
use crate::rewrite::EditKind;
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory;
use ridgeline_graph::simulate::{self, Schedule, SimulationError};
use ridgeline_operators::range::Range;
use ridgeline_profile::FileId;

/// One optimization. Each is one file in [`optimizations`](super::optimizations), written along the
/// lines of its paper.
pub trait Optimization: Sync {
    /// Returns the name on the command line: `amp-bf16`.
    fn name(&self) -> &'static str;

    /// Returns the title shown to the user: `Mixed precision (bfloat16)`.
    fn title(&self) -> &'static str;

    /// Returns the source: paper and section, or the library's documentation.
    fn source(&self) -> &'static str;

    /// Changes the graph into that of an iteration with the optimization.
    ///
    /// # Errors
    /// Fails if it does not apply to this program on this device, or if required data was not
    /// recorded. The reason is a sentence that starts in lower case and ends without a full stop.
    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String>;

    /// Returns the edit that applies it, if a small one can.
    fn edit(&self) -> Option<EditKind> {
        None
    }

    /// Returns the reason why there is no edit.
    fn why_no_edit(&self) -> &'static str {
        "no automatic edit"
    }

    /// Whether it is research: published with its own code, and without a way to apply it in
    /// PyTorch. Shown below the others, and never combined with them.
    fn is_research(&self) -> bool {
        false
    }

    /// Whether it can be combined with another one. False if both change the same thing.
    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        self.name() != other.name()
    }

    /// Whether it is offered in combinations. False if it requires other hardware.
    fn can_combine(&self) -> bool {
        true
    }
}

/// The end of the range for which an optimization is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The shortest expected time.
    Low,
    /// The most likely time.
    Likely,
    /// The longest expected time.
    High,
}

impl Bound {
    /// Returns this end of a range.
    pub fn of(self, range: Range) -> f64 {
        match self {
            Bound::Low => range.low,
            Bound::Likely => range.value,
            Bound::High => range.high,
        }
    }

    /// Returns this end of the range around a value that may be off by a factor.
    pub fn within_factor(self, value: f64, factor: f64) -> f64 {
        self.of(Range::within_factor(value, factor))
    }
}

/// The report of an optimization about its change of the graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// The lines that it concerns, most important first.
    pub lines: Vec<(FileId, u32)>,
    /// Notes for the user: assumptions, and effects on the results.
    pub notes: Vec<String>,
    /// Whether the effect on memory is unknown although memory was recorded.
    pub memory_is_unknown: bool,
    /// Factor on the samples per iteration, if it changes (data-parallel on 4 GPUs: 4). 0 and 1
    /// mean no change.
    pub samples_factor: f64,
}

/// The predicted effect of one optimization, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// The optimizations in the order in which they were applied to the graph.
    pub names: Vec<String>,
    /// Title shown to the user.
    pub title: String,
    /// Iteration time before, in nanoseconds.
    pub before_ns: f64,
    /// Predicted iteration time, in nanoseconds.
    pub time_ns: Range,
    /// Peak memory before, in bytes, if recorded.
    pub before_peak_bytes: Option<f64>,
    /// Predicted peak memory in bytes, if known.
    pub peak_bytes: Option<Range>,
    /// Factor on the samples per iteration.
    pub samples_factor: f64,
    /// The lines that it concerns.
    #[serde(skip)]
    pub lines: Vec<(FileId, u32)>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Whether one of the optimizations is [research](Optimization::is_research).
    pub is_research: bool,
    /// Correction of the time from measurements in the same project.
    #[serde(skip)]
    pub correction: Option<Correction>,
}

impl Prediction {
    /// Corrects the time with measurements of the same optimization, and adds a note about it.
    pub fn correct(&mut self, correction: Correction) {
        self.time_ns = self.time_ns.times(correction.factor);
        self.notes.insert(0, format!("time {} in this project", correction.words()));
        self.correction = Some(correction);
    }

    /// Returns the most likely time before any correction, in nanoseconds.
    pub fn uncorrected_ns(&self) -> f64 {
        self.time_ns.value / self.correction.map_or(1.0, |correction| correction.factor)
    }

    /// Returns the speedup in samples per second. Above 1 is faster.
    pub fn speedup(&self) -> Range {
        let speedup_at = |time_ns: f64| {
            if time_ns > 0.0 { self.before_ns / time_ns * self.samples_factor } else { 1.0 }
        };
        Range {
            low: speedup_at(self.time_ns.high),
            value: speedup_at(self.time_ns.value),
            high: speedup_at(self.time_ns.low),
        }
    }
}

/// The reason for a missing prediction.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum NoPrediction {
    /// It does not apply, or required data was not recorded.
    #[error("{0}")]
    DoesNotApply(String),
    /// The graph cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// The minimum number of tasks for simulating the ends of a range in parallel.
const MIN_TASKS_FOR_THREADS: usize = 10_000;

/// Iteration time in nanoseconds, peak memory in bytes, and the report of each optimization.
type Run = Result<(f64, Option<f64>, Vec<Effect>), NoPrediction>;

/// Simulates the graph with the optimizations, at one end of their ranges.
fn run(graph: &Graph, facts: &Facts<'_>, optimizations: &[&dyn Optimization], bound: Bound) -> Run {
    let mut changed = graph.clone();
    let mut effects = Vec::with_capacity(optimizations.len());
    for optimization in optimizations {
        let effect = optimization.apply(&mut changed, facts, bound);
        effects.push(effect.map_err(NoPrediction::DoesNotApply)?);
        if changed.applied.contains(&optimization.name()) {
            let why = format!("{} is already applied", optimization.title());
            return Err(NoPrediction::DoesNotApply(why));
        }
        changed.applied.push(optimization.name());
    }
    let schedule = simulate::steady(&changed)?;
    Ok((schedule.iteration_ns, memory::peak(&changed, &schedule), effects))
}

/// Predicts the effect of optimizations that are applied in turn. `now` is the schedule of the
/// unchanged graph.
///
/// # Errors
/// Fails if one of them does not apply, or if the graph cannot be simulated.
pub fn predict(
    graph: &Graph,
    now: &Schedule,
    facts: &Facts<'_>,
    optimizations: &[&dyn Optimization],
) -> Result<Prediction, NoPrediction> {
    let mut prediction = Prediction {
        names: optimizations.iter().map(|one| one.name().to_owned()).collect(),
        title: optimizations.iter().map(|one| one.title()).collect::<Vec<_>>().join(" + "),
        before_ns: now.iteration_ns,
        before_peak_bytes: memory::peak(graph, now),
        samples_factor: 1.0,
        is_research: optimizations.iter().any(|one| one.is_research()),
        ..Prediction::default()
    };
    let run = |bound: Bound| run(graph, facts, optimizations, bound);
    // Each end needs its own graph. A large one is worth a thread.
    let (likely, low, high) = if graph.tasks.len() < MIN_TASKS_FOR_THREADS {
        let likely = run(Bound::Likely)?;
        (likely, run(Bound::Low)?, run(Bound::High)?)
    } else {
        std::thread::scope(|scope| {
            let low = scope.spawn(|| run(Bound::Low));
            let high = scope.spawn(|| run(Bound::High));
            let likely = run(Bound::Likely);
            let joined = |end: std::thread::Result<Run>| {
                end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let (low, high) = (joined(low.join()), joined(high.join()));
            Ok::<_, NoPrediction>((likely?, low?, high?))
        })?
    };
    let (value, peak, effects) = likely;
    let ((low, low_peak, _), (high, high_peak, _)) = (low, high);
    prediction.time_ns = Range { low: low.min(value), value, high: high.max(value) };
    let is_known = effects.iter().all(|one| !one.memory_is_unknown);
    prediction.peak_bytes = peak.filter(|_| is_known).map(|peak| {
        let ends = [low_peak, high_peak].into_iter().flatten();
        Range {
            low: ends.clone().fold(peak, f64::min),
            value: peak,
            high: ends.fold(peak, f64::max),
        }
    });
    for one in effects {
        if one.samples_factor > 0.0 {
            prediction.samples_factor *= one.samples_factor;
        }
        for line in one.lines {
            if !prediction.lines.contains(&line) {
                prediction.lines.push(line);
            }
        }
        for note in one.notes {
            if !prediction.notes.contains(&note) {
                prediction.notes.push(note);
            }
        }
    }
    Ok(prediction)
}
