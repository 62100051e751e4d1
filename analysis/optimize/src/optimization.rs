//! What an optimization is, and what it brings: the graph before and after.

use serde::Serialize;

use super::accuracy::Correction;
use super::facts::Facts;
use crate::rewrite::EditKind;
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory;
use ridgeline_graph::simulate::{self, Schedule, SimulationError};
use ridgeline_operators::range::Range;
use ridgeline_profile::FileId;

/// One optimization. Each is a file in [`optimizations`](super::optimizations) that reads like its
/// paper.
pub trait Optimization: Sync {
    /// What it is called on a command line: `amp-bf16`.
    fn name(&self) -> &'static str;

    /// What a person reads: `Mixed precision (bfloat16)`.
    fn title(&self) -> &'static str;

    /// Where it comes from: paper and section, or the library's page.
    fn source(&self) -> &'static str;

    /// Changes the graph into that of an iteration with the optimization.
    ///
    /// # Errors
    /// Where it does not apply to this program on this device, or what it needs to know was not
    /// recorded: why, as a sentence that begins small and ends without a full stop.
    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Touched, String>;

    /// The edit that makes it, where a small one can.
    fn edit(&self) -> Option<EditKind> {
        None
    }

    /// Whether it is research: published, with code of its own, and without a way to apply it in PyTorch.
    /// Shown below the others, and never combined with them.
    fn is_research(&self) -> bool {
        false
    }

    /// Whether it can be joined with another one: not with one that changes the same thing.
    fn goes_with(&self, other: &dyn Optimization) -> bool {
        self.name() != other.name()
    }

    /// Whether it is offered in combinations: not where it needs other hardware than is there.
    fn joins(&self) -> bool {
        true
    }
}

/// Which end of its range an optimization is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The shortest time that is to be expected.
    Low,
    /// The likeliest.
    Likely,
    /// The longest.
    High,
}

impl Bound {
    /// The end of a range.
    pub fn of(self, range: Range) -> f64 {
        match self {
            Bound::Low => range.low,
            Bound::Likely => range.value,
            Bound::High => range.high,
        }
    }

    /// A value that may be off by a factor.
    pub fn within_factor(self, value: f64, factor: f64) -> f64 {
        self.of(Range::within_factor(value, factor))
    }
}

/// What an optimization has to say besides the graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched {
    /// The lines that it is about, the most important one first.
    pub lines: Vec<(FileId, u32)>,
    /// What a person should know: what was assumed, what it may change in the results.
    pub notes: Vec<String>,
    /// Whether what becomes of memory is not known, though the recording tells of memory.
    pub memory_is_unknown: bool,
    /// What one iteration then stands for, where that changes: a factor on samples (data-parallel on
    /// 4 GPUs: 4). 0 and 1 mean the same.
    pub samples_factor: f64,
}

/// What one optimization, or several together, would bring.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// The optimizations, in the order in which the graph was changed.
    pub names: Vec<String>,
    /// As a person reads it.
    pub title: String,
    /// Nanoseconds of an iteration now.
    pub before_ns: f64,
    /// Nanoseconds of an iteration then.
    pub time_ns: Range,
    /// Bytes at the peak now, where the recording tells.
    pub before_peak_bytes: Option<f64>,
    /// Bytes at the peak then, where it is known.
    pub peak_bytes: Option<Range>,
    /// What one iteration then stands for: a factor on samples.
    pub samples_factor: f64,
    /// The lines that it is about.
    #[serde(skip)]
    pub lines: Vec<(FileId, u32)>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Whether one of the optimizations is [research](Optimization::is_research).
    pub is_research: bool,
    /// How measurements in the same project changed the time.
    #[serde(skip)]
    pub correction: Option<Correction>,
}

impl Prediction {
    /// Changes the time by what was measured of the same optimization, and adds a note that says so.
    pub fn correct(&mut self, correction: Correction) {
        self.time_ns = self.time_ns.times(correction.factor);
        self.notes.insert(0, format!("time {} in this project", correction.words()));
        self.correction = Some(correction);
    }

    /// The likeliest time as it was predicted before any correction.
    pub fn uncorrected_ns(&self) -> f64 {
        self.time_ns.value / self.correction.map_or(1.0, |correction| correction.factor)
    }

    /// How many times as many samples a second: above 1 is faster.
    pub fn speedup(&self) -> Range {
        let of = |time_ns: f64| {
            if time_ns > 0.0 { self.before_ns / time_ns * self.samples_factor } else { 1.0 }
        };
        Range {
            low: of(self.time_ns.high),
            value: of(self.time_ns.value),
            high: of(self.time_ns.low),
        }
    }
}

/// Why there is no prediction.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum NoPrediction {
    /// It does not apply, or something that it needs to know was not recorded.
    #[error("{0}")]
    DoesNotApply(String),
    /// The graph cannot be run.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// Tasks from which on the ends of a range are worked out side by side.
const WORTH_THREADS: usize = 10_000;

/// Nanoseconds of an iteration, bytes at its peak, and what each optimization had to say.
type Run = Result<(f64, Option<f64>, Vec<Touched>), NoPrediction>;

/// The graph with the optimizations, at one end of their ranges.
fn run(graph: &Graph, facts: &Facts<'_>, optimizations: &[&dyn Optimization], bound: Bound) -> Run {
    let mut changed = graph.clone();
    let mut touched = Vec::with_capacity(optimizations.len());
    for optimization in optimizations {
        let one = optimization.apply(&mut changed, facts, bound);
        touched.push(one.map_err(NoPrediction::DoesNotApply)?);
        if changed.applied.contains(&optimization.name()) {
            let why = format!("{} is already applied", optimization.title());
            return Err(NoPrediction::DoesNotApply(why));
        }
        changed.applied.push(optimization.name());
    }
    let then = simulate::steady(&changed)?;
    Ok((then.iteration_ns, memory::peak(&changed, &then), touched))
}

/// What optimizations bring that are applied in turn. `now` is how the graph runs as it is.
///
/// # Errors
/// Where one of them does not apply, or the graph cannot be run.
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
    // Each end is a graph of its own: a large one is worth a thread.
    let (likely, low, high) = if graph.tasks.len() < WORTH_THREADS {
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
    let (value, peak, touched) = likely;
    let ((low, low_peak, _), (high, high_peak, _)) = (low, high);
    prediction.time_ns = Range { low: low.min(value), value, high: high.max(value) };
    let is_known = touched.iter().all(|one| !one.memory_is_unknown);
    prediction.peak_bytes = peak.filter(|_| is_known).map(|peak| {
        let ends = [low_peak, high_peak].into_iter().flatten();
        Range {
            low: ends.clone().fold(peak, f64::min),
            value: peak,
            high: ends.fold(peak, f64::max),
        }
    });
    for one in touched {
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
