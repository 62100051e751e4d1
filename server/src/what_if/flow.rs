//! Studies a measurement: its findings, and the estimated savings of optimizations.

use std::path::PathBuf;
use std::sync::Arc;

use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::{RecordedRun, Study};
use tokio::sync::oneshot;

use super::applied;
use super::{FindingsStep, Progress, StudyResult, correct, recorded_run, study};
use crate::batch::Sources;
use crate::findings::FindingSet;
use crate::jobs::Outcome;
use crate::lsp::client::Importance;
use crate::profiler::{Profiled, Profiler};
use crate::scheduler::{Job, Work, WorkspaceId};
use crate::state::GlobalState;
use crate::workspace::Workspace;

impl GlobalState {
    /// Queues the missing studies: the newest measurement of each workspace, then the findings of
    /// its other projects. Single operators are timed only for the workspace that was `measured`
    /// just now.
    pub(crate) fn study_what_ifs(&mut self, measured: Option<WorkspaceId>) {
        self.workspaces.ids().into_iter().for_each(|id| self.study(id, measured == Some(id)));
    }

    /// Queues the next step of a workspace's study.
    fn study(&mut self, id: WorkspaceId, is_fresh: bool) {
        let workspace = &mut self.workspaces[id];
        let Some((generation, _)) = workspace.to_study() else {
            workspace.what_if.study = None;
            return;
        };
        let generation = *generation;
        let is_newest = workspace.measured.first().is_some_and(|(newest, _)| *newest == generation);
        let study = &mut workspace.what_if.study;
        if study.as_ref().is_some_and(|study| study.generation != generation) {
            *study = None;
        }
        let Progress { may_probe, inputs: step, probes, .. } = study.get_or_insert_with(|| {
            self.feed.changed(id);
            let may_probe = is_newest && is_fresh;
            Progress { generation, may_probe, inputs: None, probes: None }
        });
        let next = match (step, probes) {
            (None, _) => Work::Findings(generation),
            (Some(_), None) if *may_probe => Work::Probes(generation),
            (Some(_), _) => Work::WhatIfs(generation),
        };
        self.scheduler.enqueue(id, next);
    }

    /// Starts computing findings.
    pub(crate) fn begin_findings(&mut self, job: &Job, generation: u64) -> Option<()> {
        let measured = self.workspaces[job.owner].measurement(generation)?.clone();
        let look = self.findings_input(&measured);
        let workspace = &mut self.workspaces[job.owner];
        let is_newest = workspace.measured.first().is_some_and(|(newest, _)| *newest == generation);
        let previous = workspace.what_if.previous.take_if(|_| is_newest);
        let work = self.in_background(move || {
            let comparison = previous.and_then(|previous| previous.comparison(&measured));
            let texts = applied::texts_of(&measured);
            let recorded_run = recorded_run(&measured).map(Arc::new);
            let recording = measured.recording.as_deref();
            let known = recorded_run
                .as_ref()
                .map(|recorded_run| look.profiler.known_probes(recorded_run, recording));
            let known = known.unwrap_or_default();
            let findings =
                recorded_run.as_ref().ok().map(|recorded_run| look.at(recorded_run, &known));
            Box::new(FindingsStep { recorded: recorded_run, findings, known, texts, comparison })
        });
        self.spawn_job(
            job,
            async move { work.await.map_or_else(Outcome::Defect, Outcome::Findings) },
        );
        Some(())
    }

    /// Stores the computed findings.
    pub(crate) fn findings_ended(&mut self, job: &Job, generation: u64, outcome: Outcome) {
        let step = match outcome {
            Outcome::Findings(step) if !job.is_stopped() => step,
            Outcome::Defect(why) => {
                let (findings, texts, comparison) = (None, None, None);
                let known = Probes::default();
                Box::new(FindingsStep { recorded: Err(why), findings, known, texts, comparison })
            }
            // It will be inspected another time.
            _ => return,
        };
        let FindingsStep { recorded, findings, known, texts, comparison } = *step;
        let id = job.owner;
        if let Some(comparison) = comparison {
            self.to_client.show_message(Importance::Info, &comparison);
        }
        self.findings_found(id, generation, findings);
        let workspace = &mut self.workspaces[job.owner];
        let is_newest = workspace.measured.first().is_some_and(|(newest, _)| *newest == generation);
        if is_newest {
            workspace.what_if.texts = texts.map(|texts| (generation, texts));
        }
        let study = &mut workspace.what_if.study;
        let Some(progress) = study.as_mut().filter(|study| study.generation == generation) else {
            return;
        };
        match recorded {
            _ if !is_newest => *study = None,
            Ok(recorded_run) => progress.inputs = Some((recorded_run, Arc::new(known))),
            Err(why) => {
                *study = None;
                workspace.what_if.newest = Some((generation, Err(why)));
            }
        }
        self.feed.changed(job.owner);
        self.study_what_ifs(None);
    }

    /// Starts timing single operators.
    pub(crate) fn begin_probes(&mut self, job: &Job, generation: u64) -> Option<()> {
        let id = job.owner;
        let permit = job.permit.clone()?;
        let workspace = &mut self.workspaces[job.owner];
        let measured = workspace.measurement(generation)?.clone();
        let study = workspace.what_if.study.as_ref().filter(|it| it.generation == generation);
        let (recorded_run, _) = study?.inputs.clone()?;
        let about = workspace.batch.about.clone();
        let request = self.request(id, about.as_deref());
        let probes = self.profiler.probes(request, recorded_run, measured, job.limit, permit);
        self.spawn_job(job, async move { Outcome::Probes(probes.await) });
        Some(())
    }

    /// Stores the timings of single operators. `probes` is empty if timing was stopped or skipped.
    pub(crate) fn probes_ended(&mut self, id: WorkspaceId, generation: u64, probes: Probes) {
        let workspace = &mut self.workspaces[id];
        let study = workspace.what_if.study.as_mut();
        let Some(study) = study.filter(|study| study.generation == generation) else { return };
        let Some((_, known)) = &study.inputs else { return };
        // Earlier timings are still valid.
        let probes = if probes == Probes::default() { known.clone() } else { Arc::new(probes) };
        study.probes.get_or_insert(probes);
        self.study(id, false);
    }

    /// Starts computing what-ifs.
    pub(crate) fn begin_what_ifs(&mut self, job: &Job, generation: u64) -> Option<()> {
        let memory_limit = self.settings.batch_memory_limit;
        let workspace = &mut self.workspaces[job.owner];
        let measured = workspace.measurement(generation)?.clone();
        let progress = workspace.what_if.study.as_ref().filter(|it| it.generation == generation)?;
        let (recorded_run, known) = progress.inputs.clone()?;
        let probes = progress.probes.clone().unwrap_or_else(|| known.clone());
        let look = self.findings_input(&measured);
        let token = job.token.clone();
        let store = self.store.clone();
        let work = self.in_background(move || {
            let findings = (probes != known).then(|| look.at(&recorded_run, &probes));
            let stop = || token.is_cancelled();
            let outcome = study(&recorded_run, &probes, memory_limit, &stop).map(|mut found| {
                correct(&mut found, &measured, store.as_ref());
                Arc::new(found)
            });
            StudyResult { findings, outcome }
        });
        self.spawn_job(
            job,
            async move { work.await.map_or_else(Outcome::Defect, Outcome::WhatIfs) },
        );
        Some(())
    }

    /// Stores the computed what-ifs.
    pub(crate) fn what_ifs_ended(&mut self, job: &Job, generation: u64, outcome: Outcome) {
        let studied = match outcome {
            Outcome::WhatIfs(studied) if !job.is_stopped() => studied,
            Outcome::Defect(why) => StudyResult { findings: None, outcome: Err(why) },
            _ => return,
        };
        let id = job.owner;
        if studied.findings.is_some() {
            self.findings_found(id, generation, studied.findings);
        }
        let workspace = &mut self.workspaces[job.owner];
        workspace.what_if.study.take_if(|study| study.generation == generation);
        workspace.what_if.newest = Some((generation, studied.outcome));
        self.feed.changed(job.owner);
        self.study_what_ifs(None);
    }

    /// The estimated savings of optimizations for a measurement, if known.
    pub(crate) fn what_ifs_of(&self, generation: u64) -> Option<Arc<Study>> {
        let found = self.workspaces.iter().find_map(|one| one.what_if.of(generation))?;
        found.as_ref().ok().cloned()
    }

    fn findings_input(&self, measured: &Profiled) -> FindingsInput {
        let project = measured.real_root.clone();
        let open = self.open_texts(&project).into_iter();
        let open = open.map(|(path, open)| (path, open.index.shared_text())).collect();
        FindingsInput { profiler: self.profiler.clone(), project, open }
    }

    /// Runs a computation at low priority. It does not start if it was cancelled meanwhile.
    fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send + 'static {
        let pool = self.background_pool.clone();
        async move {
            let (reply, answer) = oneshot::channel();
            pool.answer(reply, move || Ok(work()));
            match answer.await {
                Ok(worked) => worked.map_err(|error| error.to_string()),
                Err(_) => Err("it ended early".to_owned()),
            }
        }
    }
}

impl Workspace {
    /// The measurement to study next: the newest one, then one of another project for its findings.
    fn to_study(&self) -> Option<&(u64, Arc<Profiled>)> {
        let (newest, older) = self.measured.split_first()?;
        if !self.what_if.is_complete(newest.0) {
            return Some(newest);
        }
        older.iter().find(|(of, _)| !self.findings.is_inspected(*of))
    }

    /// The what-ifs of the newest measurement, if known.
    pub(crate) fn newest_study(&self) -> Option<&Arc<Study>> {
        let (newest, _) = self.measured.first()?;
        self.what_if.of(*newest)?.as_ref().ok()
    }

    fn measurement(&self, generation: u64) -> Option<&Arc<Profiled>> {
        self.measured.iter().find(|(of, _)| *of == generation).map(|(_, measured)| measured)
    }
}

/// The inputs for computing findings.
struct FindingsInput {
    profiler: Arc<dyn Profiler>,
    project: PathBuf,
    open: Vec<(PathBuf, Arc<str>)>,
}

impl FindingsInput {
    fn at(&self, recorded_run: &RecordedRun, probes: &Probes) -> FindingSet {
        let sources = Sources::new(&self.project, self.open.clone());
        let found = self.profiler.findings(recorded_run, probes, &sources, &self.project);
        FindingSet::new(&self.project, found, Some(recorded_run.profile.clone()), &sources)
    }
}
