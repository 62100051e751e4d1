//! Single operators, run by themselves after a recording: what this machine makes of them otherwise.

use std::path::Path;
use std::time::Duration;

use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::probe_list::{Answer, ProbeList, Wanted, probe_list};
use ridgeline_analysis::optimize::study::Subject;
use ridgeline_gpu::agent::{Outcome as Ended, ProbeRequest};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::probe_cache::{Known, file_of, read_bounded};
use super::{Outcome, Pipeline, Plan, blocking, files_problem, or_cancelled, tell};
use crate::profiler::ProgressEvent;
use crate::store::{Store, write_atomic};

/// How long operators are measured for what-ifs, and for a few findings.
const SECONDS: f64 = 20.0;
const SECONDS_OF_FINDINGS: f64 = 6.0;
/// For the imports and the last operator besides.
const GRACE: Duration = Duration::from_secs(15);
/// To bring the answer back in time.
const ANSWERING: Duration = Duration::from_secs(2);
/// The answer's name, in the agent's folder and beside a recording.
const ANSWER: &str = "probes.json";

impl Pipeline {
    /// Runs the operators by themselves that are wanted of a recording and that were not run before, and
    /// keeps the answer beside it in `recording`, within `limit`. Nothing of the project runs. The answer's notes
    /// are for a person: that it ended early.
    ///
    /// # Errors
    /// An outcome that is no answer: cancelled, no Python, no disk.
    pub(crate) async fn probe(
        &self,
        plan: &Plan,
        subject: &Subject,
        (wanted, limit): (Wanted, Option<Duration>),
        recording: Option<&Path>,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Answer, Outcome> {
        let list = list(subject, wanted);
        if list.is_empty() {
            return Ok(Answer::default());
        }
        let file = file_of(self.store(), subject, &list);
        let known = blocking({
            let file = file.clone();
            move || Known::read(&file)
        });
        let mut known = known.await?;
        let mut notes = Vec::new();
        if let Some(missing) = known.missing(&list.request) {
            tell(progress, "timing single operators in other variants", 0.5);
            let (answer, note) = self.ask(plan, subject, &missing, limit, cancel).await?;
            known.learn(&missing, &answer);
            notes.extend(note);
        }
        let answer = known.answer(&list.request).to_string();
        let own = known.only(&list.request);
        let beside = recording.map(|recording| recording.join(ANSWER));
        let Answer { probes, .. } = blocking(move || {
            if let Err(error) = known.keep(&file) {
                tracing::debug!("probes are not kept: {error}");
            }
            if let Some(beside) = beside
                && let Err(error) = own.keep(&beside)
            {
                tracing::debug!("probes are not kept beside their recording: {error}");
            }
            list.read(answer.as_bytes())
        })
        .await?;
        Ok(Answer { probes, notes })
    }

    /// Has the agent run what is asked; gives its answer, and a note where it ended early.
    async fn ask(
        &self,
        plan: &Plan,
        subject: &Subject,
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
        let manifest = subject.manifest.as_ref();
        let on_processor = manifest.is_some_and(|it| it.device.kind.as_deref() == Some("cpu"));
        let mut limits = run.limits;
        let most = Duration::from_secs_f64(SECONDS) + GRACE;
        let within = limit.map_or(most, |limit| most.min(limit.saturating_sub(ANSWERING)));
        limits.seconds = limits.seconds.min(within.as_secs().max(1));
        let request = ProbeRequest {
            out: out.clone(),
            root: run.root,
            env: run.env,
            device: if on_processor { "cpu".to_owned() } else { run.device },
            request: file,
            without_sandbox: run.without_sandbox,
            limits,
            // Who waits for the answer has no limit.
            low_priority: limit.is_some(),
        };
        let (news, _unread) = mpsc::channel(1);
        let ended = agent.probe(request, news, cancel.clone()).await;
        if ended.outcome == Ended::Cancelled {
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
        // An operator that crashed leaves what was measured before it.
        let early = (ended.outcome != Ended::Complete).then(|| {
            let why = ended.message.unwrap_or_else(|| format!("{:?}", ended.outcome));
            format!("timing single operators stopped early: {why}")
        });
        Ok((answer, early))
    }
}

/// What was measured after a recording, where its folder has it.
pub(crate) fn kept_probes(recording: &Path, subject: &Subject) -> Probes {
    read(&recording.join(ANSWER), &list(subject, Wanted::ALL))
}

/// The same, or else what this machine made of its operators at any time.
pub(crate) fn known_probes(store: &Store, recording: Option<&Path>, subject: &Subject) -> Probes {
    let list = list(subject, Wanted::ALL);
    let kept = recording.map(|recording| read(&recording.join(ANSWER), &list)).unwrap_or_default();
    if kept != Probes::default() {
        return kept;
    }
    read(&file_of(store, subject, &list), &list)
}

fn read(file: &Path, list: &ProbeList) -> Probes {
    list.read(Known::read(file).answer(&list.request).to_string().as_bytes()).probes
}

fn list(subject: &Subject, wanted: Wanted) -> ProbeList {
    let peak_bytes = Some(subject.profile.memory.peak_bytes).filter(|bytes| *bytes > 0);
    let seconds = if wanted == Wanted::ALL { SECONDS } else { SECONDS_OF_FINDINGS };
    let Subject { recorded, manifest, .. } = subject;
    probe_list(&recorded.graph, manifest.as_ref(), peak_bytes, seconds, wanted)
}
