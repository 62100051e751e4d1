//! Times single operators after a recording, in other variants on this machine.

use std::path::Path;
use std::time::Duration;

use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::probe_list::{ProbeKinds, ProbeList, ProbeResults, probe_list};
use ridgeline_analysis::optimize::study::RecordedRun;
use ridgeline_gpu::agent::{Outcome as AgentOutcome, ProbeRequest};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::probe_cache::{KnownAnswers, file_of, read_bounded};
use super::{Outcome, Pipeline, Plan, blocking, files_problem, or_cancelled, send_progress};
use crate::profiler::ProgressEvent;
use crate::store::{Store, write_atomic};

/// The time for measuring operators, for what-ifs and for findings, in seconds.
const SECONDS: f64 = 20.0;
const SECONDS_OF_FINDINGS: f64 = 6.0;
/// Additional time for imports and for finishing the last operator.
const GRACE: Duration = Duration::from_secs(15);
/// Time reserved for returning the answer.
const ANSWERING: Duration = Duration::from_secs(2);
/// The file with the answer, in the agent's folder and in a recording's folder.
const ANSWER: &str = "probes.json";

impl Pipeline {
    /// Times the operators of a recording that `wanted` asks for and that were not timed before,
    /// within `limit`. Stores the answer in the folder `recording`. No code of the project runs.
    /// The answer's notes for the user report an early end.
    ///
    /// # Errors
    /// An outcome without an answer: cancelled, no Python, no disk space.
    pub(crate) async fn probe(
        &self,
        plan: &Plan,
        recorded_run: &RecordedRun,
        (kinds, limit): (ProbeKinds, Option<Duration>),
        recording: Option<&Path>,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<ProbeResults, Outcome> {
        let list = list(recorded_run, kinds);
        if list.is_empty() {
            return Ok(ProbeResults::default());
        }
        let file = file_of(self.store(), recorded_run, &list);
        let known = blocking({
            let file = file.clone();
            move || KnownAnswers::read(&file)
        });
        let mut known = known.await?;
        let mut notes = Vec::new();
        if let Some(missing) = known.missing(&list.request) {
            send_progress(progress, "timing single operators in other variants", 0.5);
            let (answer, note) = self.ask(plan, recorded_run, &missing, limit, cancel).await?;
            known.add(&missing, &answer);
            notes.extend(note);
        }
        let answer = known.answer(&list.request).to_string();
        let requested = known.only(&list.request);
        let copy = recording.map(|recording| recording.join(ANSWER));
        let ProbeResults { probes, .. } = blocking(move || {
            if let Err(error) = known.write(&file) {
                tracing::debug!("probes are not kept: {error}");
            }
            if let Some(copy) = copy
                && let Err(error) = requested.write(&copy)
            {
                tracing::debug!("probes are not kept beside their recording: {error}");
            }
            list.read(answer.as_bytes())
        })
        .await?;
        Ok(ProbeResults { probes, notes })
    }

    /// Has the agent time what is missing. Returns its answer, and a note if it ended early.
    async fn ask(
        &self,
        plan: &Plan,
        recorded_run: &RecordedRun,
        request: &Value,
        limit: Option<Duration>,
        cancel: &CancellationToken,
    ) -> Result<(Value, Option<String>), Outcome> {
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        let agent = or_cancelled(cancel, self.agent(plan, &interpreter)).await?;
        let (store, root) = (self.store().clone(), plan.root.clone());
        let folder = blocking(move || store.new_estimate(&root)).await?.map_err(files_problem)?;
        let out = folder.path().to_owned();
        let file = out.join("request.json");
        let (text, path) = (request.to_string(), file.clone());
        blocking(move || write_atomic(&path, text.as_bytes())).await?.map_err(files_problem)?;
        let run = plan.run_request(out.clone());
        let manifest = recorded_run.manifest.as_ref();
        let on_cpu = manifest.is_some_and(|it| it.device.kind.as_deref() == Some("cpu"));
        let mut limits = run.limits;
        let maximum = Duration::from_secs_f64(SECONDS) + GRACE;
        let within = limit.map_or(maximum, |limit| maximum.min(limit.saturating_sub(ANSWERING)));
        limits.seconds = limits.seconds.min(within.as_secs().max(1));
        let request = ProbeRequest {
            out: out.clone(),
            root: run.root,
            env: run.env,
            device: if on_cpu { "cpu".to_owned() } else { run.device },
            request: file,
            without_sandbox: run.without_sandbox,
            limits,
            // Without a limit, the user is waiting for the answer.
            low_priority: limit.is_some(),
        };
        let (events, _unread) = mpsc::channel(1);
        let ended = agent.probe(request, events, cancel.clone()).await;
        if ended.outcome == AgentOutcome::Cancelled {
            return Err(Outcome::Cancelled);
        }
        let answer: Value = blocking(move || {
            let bytes = read_bounded(&out.join(ANSWER));
            drop(folder);
            serde_json::from_slice(&bytes).unwrap_or_default()
        })
        .await?;
        for note in answer.get("notes").and_then(Value::as_array).into_iter().flatten() {
            tracing::debug!("a probe: {note}");
        }
        // If an operator crashes, the results before it remain.
        let early = (ended.outcome != AgentOutcome::Complete).then(|| {
            let why = ended.message.unwrap_or_else(|| format!("{:?}", ended.outcome));
            format!("timing single operators stopped early: {why}")
        });
        Ok((answer, early))
    }
}

/// Returns the stored results of a recording, if its folder has any.
pub(crate) fn stored_probes(recording: &Path, recorded_run: &RecordedRun) -> Probes {
    read(&recording.join(ANSWER), &list(recorded_run, ProbeKinds::ALL))
}

/// Returns the stored results of a recording, or else those that this machine has for the same
/// operators.
pub(crate) fn known_probes(
    store: &Store,
    recording: Option<&Path>,
    recorded_run: &RecordedRun,
) -> Probes {
    let list = list(recorded_run, ProbeKinds::ALL);
    let stored =
        recording.map(|recording| read(&recording.join(ANSWER), &list)).unwrap_or_default();
    if stored != Probes::default() {
        return stored;
    }
    read(&file_of(store, recorded_run, &list), &list)
}

fn read(file: &Path, list: &ProbeList) -> Probes {
    list.read(KnownAnswers::read(file).answer(&list.request).to_string().as_bytes()).probes
}

fn list(recorded_run: &RecordedRun, kinds: ProbeKinds) -> ProbeList {
    let peak_bytes = Some(recorded_run.profile.memory.peak_bytes).filter(|bytes| *bytes > 0);
    let seconds = if kinds == ProbeKinds::ALL { SECONDS } else { SECONDS_OF_FINDINGS };
    let RecordedRun { recorded, manifest, .. } = recorded_run;
    probe_list(&recorded.graph, manifest.as_ref(), peak_bytes, seconds, kinds)
}
