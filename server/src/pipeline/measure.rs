//! Compares a what-if with a measurement. The edited text runs from an overlay, in turns with the
//! unedited one. If that is not possible, the unedited text runs before and after it, because a
//! machine's speed varies from minute to minute. No file is touched, and only the numbers are
//! stored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ridgeline_analysis::base::statistics::median;
use ridgeline_analysis::optimize::accuracy::{Pair, Sides, VERSION};
use ridgeline_analysis::optimize::numerics::Check;
use ridgeline_analysis::optimize::optimization::Prediction;
use ridgeline_analysis::optimize::rewrite::{EditKind, FileEdits, Request, rewrite};
use ridgeline_analysis::optimize::study::optimization;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::semantics::Project as _;
use ridgeline_analysis::python::{LineMap, Lines};
use ridgeline_gpu::agent::{Agent, Iterations, Outcome as AgentOutcome, RunRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::batch_size::site_entry;
use super::outcome::{self, Outcome, Problem, ProblemKind};
use super::plan::Plan;
use super::side_by_side::{self, MeasuredVersion, SideBySide};
use super::step::without_log;
use super::{Pipeline, blocking, files_problem, or_cancelled, read_in_background};
use crate::batch::Sources;
use crate::documents::text_on_disk;
use crate::profiler::{Profiled, ProgressEvent};
use crate::what_if::worker_count;

/// The number of timed iterations in each run: as many as fit into the time below.
const TIMED: std::ops::RangeInclusive<u32> = 5..=15;
const TIMED_FOR: Duration = Duration::from_secs(2);
/// The time for iterations that run in turns. It is longer, because there is only one run.
const TURNS_FOR: Duration = Duration::from_secs(4);
/// The runs: the unedited text, the edited one, and the unedited one again.
const RUNS: [(&str, bool); 3] =
    [("without the edit", false), ("with the edit", true), ("without the edit, again", false)];

/// A what-if to measure.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    /// The prediction for one optimization.
    pub prediction: Prediction,
    /// The measurement that the prediction is based on.
    pub measured: Arc<Profiled>,
    /// The project's open texts, by path without symbolic links.
    pub texts: Vec<(PathBuf, Arc<str>)>,
}

/// Texts that replace files, by path relative to the root.
pub(crate) type Overlay = BTreeMap<String, String>;

/// Two versions of a program, side by side.
pub(crate) struct Versions {
    pub before: Profile,
    pub after: Profile,
    /// Iteration times in nanoseconds, as if measured at the same moment.
    pub times_ns: (f64, f64),
    /// See [`Pair::drift`].
    pub drift: f64,
}

impl Pipeline {
    /// Measures the speedup of an optimization on the current text, and its effect on the loss. Ends soon after
    /// `cancel`.
    ///
    /// # Errors
    /// An outcome without a measurement: the edit is not possible, or a run failed.
    pub(crate) async fn measure(
        &self,
        plan: &Plan,
        compared: &Compared,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Pair, Outcome> {
        let texts = blocking({
            let (plan, compared) = (plan.clone(), compared.clone());
            move || overlays(&plan, &compared)
        });
        let (kind, unedited, edited) =
            texts.await?.map_err(|why| refused(&compared.prediction, &why))?;
        let (texts, kinds) = ((&unedited, &edited), [kind]);
        let versions =
            self.compare(plan, &compared.measured, texts, &kinds, progress, cancel).await?;
        let iteration_ns = compared.measured.profile.iteration.time_ns;
        let numerics = self.numerics(plan, iteration_ns, texts, &kinds, progress, cancel).await?;
        Ok(pair(compared, &versions, numerics))
    }

    /// Measures two versions of a program. `kinds` are the edits that the second has and the first does not.
    ///
    /// # Errors
    /// As for [`Pipeline::measure`].
    pub(crate) async fn compare(
        &self,
        plan: &Plan,
        measured: &Profiled,
        (before, after): (&Overlay, &Overlay),
        kinds: &[EditKind],
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Versions, Outcome> {
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        let agent = or_cancelled(cancel, self.agent(plan, &interpreter)).await?;
        // Loader workers would continue while the other version has its turn.
        let adds_workers = kinds.contains(&EditKind::LoaderWorkers);
        let iteration_ns = measured.profile.iteration.time_ns;
        if !adds_workers && side_by_side::is_supported(&agent, measured).await {
            let texts = (before, after);
            let found = self.in_turns(&agent, plan, iteration_ns, texts, progress, cancel).await?;
            // If this failed, running one after another shows what failed, and in which version.
            if let Some(found) = found {
                return Ok(found);
            }
        }
        let mut runs = Vec::with_capacity(RUNS.len());
        for (number, (what, is_edited)) in RUNS.into_iter().enumerate() {
            let overlay = if is_edited { after } else { before };
            let part = RunPart { what, number, progress };
            let run = self.measured_run(&agent, plan, iteration_ns, overlay, &part, cancel).await;
            runs.push(run?);
        }
        let [first, changed, again] =
            <[Profile; 3]>::try_from(runs).map_err(|_| problem("a run is missing"))?;
        Ok(in_sequence(first, changed, &again))
    }

    /// Runs both texts in turns. Returns `None` if that did not complete.
    async fn in_turns(
        &self,
        agent: &Agent,
        plan: &Plan,
        iteration_ns: f64,
        (before, after): (&Overlay, &Overlay),
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Option<Versions>, Outcome> {
        let folder = self.folder_for_runs(plan).await?;
        let request = plan.run_request(folder.path().to_owned());
        let batch_size = request.batch_size;
        let run = SideBySide { agent, request, iteration_ns, timed_for: TURNS_FOR, more_turns: 0 };
        let versions = [(before.clone(), batch_size), (after.clone(), batch_size)];
        let ended = self.side_by_side(run, &versions, progress, cancel).await;
        // A recording has many megabytes, so removing it takes time.
        blocking(move || drop(folder)).await?;
        let measured = <[MeasuredVersion; 2]>::try_from(ended.unwrap_or_default());
        Ok(measured.ok().and_then(|[before, after]| in_turns(before, after)))
    }

    pub(super) async fn folder_for_runs(&self, plan: &Plan) -> Result<tempfile::TempDir, Outcome> {
        let (store, root) = (self.store().clone(), plan.root.clone());
        blocking(move || store.new_estimate(&root)).await?.map_err(files_problem)
    }

    async fn measured_run(
        &self,
        agent: &Agent,
        plan: &Plan,
        iteration_ns: f64,
        overlay: &Overlay,
        part: &RunPart<'_>,
        cancel: &CancellationToken,
    ) -> Result<Profile, Outcome> {
        let folder = self.folder_for_runs(plan).await?;
        let out = folder.path().to_owned();
        let planned = plan.run_request(out.clone());
        let room = TIMED_FOR.as_nanos() as f64 / iteration_ns.max(1.0);
        let timed = planned.iterations.timed.max((room as u32).clamp(*TIMED.start(), *TIMED.end()));
        let iterations = Iterations { timed, timed_at_most: None, ..planned.iterations.clone() };
        let mut request = RunRequest { overlay: overlay.clone(), iterations, ..planned };
        let (events, mut received) = mpsc::channel(16);
        let work = async {
            let (ended, _) = self.run_until_enough(agent, &mut request, &events, cancel).await;
            drop(events);
            ended
        };
        let relay = async {
            while let Some(event) = received.recv().await {
                part.send(event);
            }
        };
        let (ended, ()) = tokio::join!(work, relay);
        if ended.outcome != AgentOutcome::Complete {
            let interpreter = self.interpreter(plan).await?;
            let failed =
                outcome::without_measurement(plan, &request, &ended, &interpreter, out).await;
            return Err(without_log(failed));
        }
        let read = read_in_background(&out, None, &plan.root).await?;
        // A recording has many megabytes, so removing it takes time.
        blocking(move || drop(folder)).await?;
        Ok(read.profile)
    }
}

/// One of the runs, for the progress.
struct RunPart<'a> {
    what: &'static str,
    number: usize,
    progress: &'a mpsc::Sender<ProgressEvent>,
}

impl RunPart<'_> {
    fn send(&self, event: ProgressEvent) {
        let stage = format!("{}: {}", self.what, event.stage);
        let share = event.share.map(|share| (self.number as f32 + share) / RUNS.len() as f32);
        // If the channel is full, the event is dropped.
        let _ = self.progress.try_send(ProgressEvent { stage, share });
    }
}

/// Returns the edit, the current texts that differ from the disk, and the same with the edit.
pub(super) fn overlays(
    plan: &Plan,
    compared: &Compared,
) -> Result<(EditKind, Overlay, Overlay), String> {
    let name = compared.prediction.names.first().map(String::as_str).unwrap_or_default();
    let kind = optimization(name).and_then(|one| one.edit());
    let kind = kind.ok_or("it has no automatic edit")?;
    let root = plan.root.canonicalize().unwrap_or_else(|_| plan.root.clone());
    let sources = Sources::new(&root, compared.texts.iter().cloned());
    let mut unedited = Overlay::new();
    for (file, text) in &compared.texts {
        let Some(path) = file.strip_prefix(&root).ok().and_then(|path| path.to_str()) else {
            continue;
        };
        if text_on_disk(file).as_deref() != Some(&**text) {
            unedited.insert(path.replace('\\', "/"), text.to_string());
        }
    }
    let lines = current_lines(compared, &sources);
    let lines: Vec<(&str, u32)> = lines.iter().map(|(path, line)| (path.as_str(), *line)).collect();
    let request = Request { kind, lines: &lines, count: Some(worker_count()) };
    let rewrite = rewrite(&sources, &site_entry(plan, &sources), &request);
    let rewrite = rewrite.map_err(|refusal| refusal.to_string())?;
    let mut edited = unedited.clone();
    for file in &rewrite.files {
        let text = sources.text(&file.path).ok_or("a file has just changed")?;
        edited.insert(file.path.clone(), applied(file, &text).ok_or("a file has just changed")?);
    }
    Ok((kind, unedited, edited))
}

/// Finds the current positions of the prediction's lines.
fn current_lines(compared: &Compared, sources: &Sources) -> Vec<(String, u32)> {
    let files = &compared.measured.profile.files;
    let current = compared.prediction.lines.iter().filter_map(|(file, line)| {
        let facts = files.get(file.0 as usize)?;
        let text = sources.text(&facts.path)?;
        let lines = Lines::new(&text);
        let place = LineMap::new(&facts.fingerprint, lines.checksums()).place(*line)?;
        Some((facts.path.clone(), place.line))
    });
    current.collect()
}

/// Applies edits to a text. Returns `None` if they are out of range or not in order.
fn applied(file: &FileEdits, text: &str) -> Option<String> {
    let (mut edited, mut done) = (String::with_capacity(text.len()), 0);
    for (range, new) in &file.edits {
        edited.push_str(text.get(done..range.start)?);
        edited.push_str(new);
        done = range.end;
    }
    edited.push_str(text.get(done..)?);
    Some(edited)
}

/// The versions as three runs, the first version before and after the second.
fn in_sequence(first: Profile, changed: Profile, again: &Profile) -> Versions {
    let (before, after) = (first.iteration.time_ns, again.iteration.time_ns);
    // The mean of both runs cancels linear drift.
    let times_ns = (0.5 * (before + after), changed.iteration.time_ns);
    let drift = if before > 0.0 { after / before - 1.0 } else { 0.0 };
    Versions { before: first, after: changed, times_ns, drift }
}

/// Compares each turn with the other version's turn in the same round, and takes the median of the
/// ratios. The difference between the later and the earlier half of the ratios is the drift.
fn in_turns(before: MeasuredVersion, after: MeasuredVersion) -> Option<Versions> {
    let ratios = before.turns.iter().zip(&after.turns).map(|(before, after)| after / before);
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    let (earlier, later) = ratios.split_at(ratios.len() / 2);
    let drift = median(later)? / median(earlier)? - 1.0;
    let before_ns = median(&before.turns)?;
    let times_ns = (before_ns, before_ns * median(&ratios)?);
    Some(Versions { before: before.profile, after: after.profile, times_ns, drift })
}

impl Versions {
    /// The times and the memory of both.
    pub(crate) fn sides(&self) -> Sides {
        let peak = |profile: &Profile| {
            Some(profile.memory.peak_bytes).filter(|bytes| *bytes > 0).map(|bytes| bytes as f64)
        };
        Sides {
            before_ns: self.times_ns.0,
            after_ns: self.times_ns.1,
            before_peak_bytes: peak(&self.before),
            after_peak_bytes: peak(&self.after),
        }
    }
}

fn pair(compared: &Compared, versions: &Versions, numerics: Check) -> Pair {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or_default());
    Pair {
        version: VERSION,
        name: compared.prediction.names.join("+"),
        when_unix_ms: now,
        device: versions.before.device.display_name().into_owned(),
        torch: versions.before.torch_version.clone(),
        batch_size: versions.before.iteration.batch_size,
        predicted: Sides::predicted(&compared.prediction),
        measured: versions.sides(),
        drift: versions.drift,
        numerics: Some(numerics),
    }
}

fn refused(prediction: &Prediction, why: &str) -> Outcome {
    problem(&format!("{} cannot be measured: {why}", prediction.title))
}

fn problem(what: &str) -> Outcome {
    Outcome::Problem(Problem::new(ProblemKind::Run, what, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(edits: &[(std::ops::Range<usize>, &str)], expected: Option<&str>) {
        let edits = edits.iter().map(|(range, new)| (range.clone(), (*new).to_owned())).collect();
        let file = FileEdits { path: "a.py".to_owned(), edits };
        assert_eq!(applied(&file, "fit(ä)\n").as_deref(), expected);
    }

    #[test]
    fn edits_are_applied_in_order() {
        check(&[], Some("fit(ä)\n"));
        check(&[(0..0, "re"), (4..6, "x")], Some("refit(x)\n"));
        // Out of range, inside a character, and out of order.
        check(&[(0..99, "")], None);
        check(&[(5..6, "")], None);
        check(&[(4..6, ""), (0..1, "")], None);
    }

    #[test]
    fn drift_does_not_affect_the_ratio() {
        let run = |time_ns: f64| {
            let mut profile = Profile::default();
            profile.iteration.time_ns = time_ns;
            profile
        };
        let found = in_sequence(run(100.0), run(60.0), &run(140.0));
        assert_eq!(found.sides().speedup(), Some(2.0));
        assert!((found.drift - 0.4).abs() < 1e-9);
        assert_eq!(found.sides().before_peak_bytes, None);
        // In turns: the machine slows down, and both versions with it.
        let turns =
            |turns: &[f64]| MeasuredVersion { profile: Profile::default(), turns: turns.into() };
        let (before, after) = (turns(&[100.0, 200.0, 400.0]), turns(&[50.0, 100.0, 200.0]));
        let found = in_turns(before, after).expect("both were measured");
        assert_eq!((found.sides().speedup(), found.drift), (Some(2.0), 0.0));
        assert!(in_turns(turns(&[]), turns(&[1.0])).is_none());
    }
}
