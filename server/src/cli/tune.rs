//! `ridgeline tune PATH`: tries optimizations one after the other, and keeps those that are measured to help and train
//! the same.

use std::sync::Arc;

use ridgeline_analysis::optimize::numerics::Check;
use ridgeline_analysis::optimize::rewrite::EditKind;
use ridgeline_analysis::optimize::tuning::{Measured, Trial, Verdict, candidates, compared};
use ridgeline_analysis::present::patch::unified_diff;
use ridgeline_analysis::present::{tuning, tuning_json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::TuneArgs;
use super::edits::{EditedFile, Program, ToApply};
use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{apply, output_file, profile, run, script_choice, whatif};
use crate::pipeline::{self, Overlay, Pipeline, Plan};
use crate::profiler::{Profiled, ProgressEvent};

/// Runs the subcommand. Naming the path on the command line is the user's consent to run it.
pub(super) fn run(args: &TuneArgs, terminal: &Terminal) -> Result<(), Failure> {
    let path = profile::absolute(profile::named(args.path.as_deref()))?;
    if pipeline::is_recording(&path) {
        return Err(Failure::usage(
            "a recording cannot be tuned: there is no program to run",
            "Pass the recorded script instead",
        ));
    }
    let memory_limit = args.memory_limit.as_deref().map(whatif::size).transpose()?;
    let request = profile::request(args.path.as_deref(), None, &args.run)?;
    let pipeline = Pipeline::new(run::open_store()?);
    let (profiled, tuned) = run::block_on(|cancel| async move {
        let plan = script_choice::plan(&pipeline, request, terminal, &cancel).await?;
        let study =
            whatif::study_of_program(&pipeline, &plan, memory_limit, args.fresh, terminal, &cancel);
        let (profiled, study) = study.await?;
        let capacity = profiled.profile.memory.capacity_bytes.map(|bytes| bytes as f64);
        let limit = memory_limit.or(capacity);
        let mut candidates = candidates(&study, limit);
        candidates.truncate(args.at_most);
        let program = Program::of(&profiled).map_err(|why| Failure::failed(why, ""))?;
        let tuner =
            Tuner { pipeline, plan, profiled: profiled.clone(), program, limit, terminal, cancel };
        let tuned =
            tuner.tune(candidates.into_iter().map(|(kind, one)| (kind, one.speedup().value)));
        Ok::<_, Failure>((profiled, tuned.await?))
    })??;
    let patch: String =
        tuned.files.iter().map(|file| unified_diff(&file.edits(), &file.before)).collect();
    let patch = Some(patch).filter(|patch| !patch.is_empty());
    if let Some(file) = &args.json {
        let (trials, total) = (&tuned.trials, tuned.total.as_ref());
        let document = tuning_json::document(trials, tuned.limit, total, patch.as_deref());
        output_file::write(&document, file)?;
    }
    let is_quiet = output_file::is_stdout(args.json.as_deref());
    if !is_quiet {
        terminal.print(&tuning::page(&tuned.trials, tuned.limit, tuned.total.as_ref()))?;
    }
    let Some(patch) = patch else { return Ok(()) };
    if !is_quiet {
        terminal.print("\n")?;
        apply::show(&patch, terminal)?;
    }
    tuned.notes.iter().for_each(|note| terminal.note(&format!("note: {note}")));
    if let Some(file) = &args.patch {
        output_file::save(file, patch.as_bytes())?;
    }
    if is_quiet && !args.yes {
        return Ok(());
    }
    apply::write_if_agreed(&profiled.real_root, &tuned.files, args.yes, terminal)
}

/// The result of a search.
struct Tuned {
    trials: Vec<Trial>,
    limit: Option<f64>,
    /// All that was kept, against the original.
    total: Option<Measured>,
    /// The files with all that was kept, if that helps.
    files: Vec<EditedFile>,
    notes: Vec<String>,
}

/// The search of one program.
struct Tuner<'a> {
    pipeline: Pipeline,
    plan: Plan,
    profiled: Arc<Profiled>,
    program: Program,
    /// The memory limit in bytes.
    limit: Option<f64>,
    terminal: &'a Terminal,
    cancel: CancellationToken,
}

impl Tuner<'_> {
    /// Tries the optimizations in their order, given with their predicted speedups.
    async fn tune(
        &self,
        candidates: impl Iterator<Item = (EditKind, f64)>,
    ) -> Result<Tuned, Failure> {
        let mut kept: Vec<EditKind> = Vec::new();
        let mut trials = Vec::new();
        for (kind, predicted) in candidates {
            self.terminal.note(&format!("Measuring {} …", kind.name()));
            let result = match self.measured(&kept, kind).await {
                // The others may still work.
                Err(failure) if failure.code != exit::INTERRUPTED => Err(failure.what),
                result => Ok(result?),
            };
            let is_kept =
                result.as_ref().is_ok_and(|found| found.verdict(self.limit) == Verdict::Kept);
            if is_kept {
                kept.push(kind);
            }
            trials.push(Trial { name: kind.name().to_owned(), predicted, result });
        }
        let total = match &kept[..] {
            [] => None,
            // It was measured against the original already.
            [only] => {
                let trial = trials.iter().find(|trial| trial.name == only.name());
                trial.and_then(|trial| trial.result.as_ref().ok()).cloned()
            }
            _ => Some(self.total(&kept).await?),
        };
        let helps = total.as_ref().is_some_and(|all| all.verdict(self.limit) == Verdict::Kept);
        let (files, notes) = match helps {
            true => self.edited(&kept)?,
            false => (Vec::new(), Vec::new()),
        };
        Ok(Tuned { trials, limit: self.limit, total, files, notes })
    }

    /// Measures one more edit on top of those kept.
    async fn measured(&self, kept: &[EditKind], kind: EditKind) -> Result<Measured, Failure> {
        let mut kinds = kept.to_vec();
        kinds.push(kind);
        let mut measured = self.compare(kept, &kinds).await?;
        if measured.by_costs(self.limit) == Verdict::Kept {
            measured.check = self.check(&kinds, kind).await?;
        }
        Ok(measured)
    }

    /// Measures all that was kept against the original.
    async fn total(&self, kept: &[EditKind]) -> Result<Measured, Failure> {
        self.terminal.note("Measuring all together …");
        let mut measured = self.compare(&[], kept).await?;
        if let Some(last) = compared(kept).last() {
            measured.check = self.check(kept, *last).await?;
        }
        Ok(measured)
    }

    /// Measures two versions, once more if the machine was busy.
    async fn compare(&self, before: &[EditKind], after: &[EditKind]) -> Result<Measured, Failure> {
        let measured = self.compare_once(before, after).await?;
        if !measured.is_noisy() {
            return Ok(measured);
        }
        self.terminal.note("The machine was busy; measuring again …");
        self.compare_once(before, after).await
    }

    async fn compare_once(
        &self,
        before: &[EditKind],
        after: &[EditKind],
    ) -> Result<Measured, Failure> {
        let (before_text, after_text) = (self.overlay(before)?, self.overlay(after)?);
        let texts = (&before_text, &after_text);
        let versions = run::with_progress_bar(async |progress: mpsc::Sender<ProgressEvent>| {
            self.pipeline
                .compare(&self.plan, &self.profiled, texts, after, &progress, &self.cancel)
                .await
        });
        let versions = versions.await.map_err(run::failure_of)?;
        Ok(Measured { sides: versions.sides(), drift: versions.drift, check: None })
    }

    /// Compares the losses with the original's. Returns `None` if `last`, the newest edit, cannot change them.
    async fn check(&self, kinds: &[EditKind], last: EditKind) -> Result<Option<Check>, Failure> {
        let kinds = compared(kinds);
        if !kinds.contains(&last) {
            return Ok(None);
        }
        let edited = self.overlay(&kinds)?;
        let texts = (&Overlay::new(), &edited);
        let iteration_ns = self.profiled.profile.iteration.time_ns;
        let check = run::with_progress_bar(async |progress: mpsc::Sender<ProgressEvent>| {
            self.pipeline
                .numerics(&self.plan, iteration_ns, texts, &kinds, &progress, &self.cancel)
                .await
        });
        check.await.map(Some).map_err(run::failure_of)
    }

    /// The texts with these edits.
    fn overlay(&self, kinds: &[EditKind]) -> Result<Overlay, Failure> {
        let (files, _) = self.edited(kinds)?;
        Ok(files.into_iter().map(|file| (file.path, file.after)).collect())
    }

    fn edited(&self, kinds: &[EditKind]) -> Result<(Vec<EditedFile>, Vec<String>), Failure> {
        let edits: Vec<ToApply> = kinds.iter().copied().map(ToApply::everywhere).collect();
        self.program.apply(&edits).map_err(|why| Failure::failed(why, ""))
    }
}
