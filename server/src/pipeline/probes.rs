//! Single operators, run by themselves after a recording: what this machine makes of them otherwise.

use std::fs;
use std::path::{Path, PathBuf};

use ridgeline_analysis::whatif::facts::Probes;
use ridgeline_analysis::whatif::probe_list::{Answer, ProbeList, probe_list};
use ridgeline_analysis::whatif::study::Subject;
use ridgeline_gpu::agent::{Outcome as Ended, ProbeRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Outcome, Pipeline, Plan, blocking, files_problem, or_cancelled, tell};
use crate::profiler::ProgressEvent;
use crate::store::StoreError;

/// How long operators are measured.
const SECONDS: f64 = 20.0;
/// For the imports and the last operator besides.
const GRACE_SECONDS: u64 = 15;
/// The answer's name, in the agent's folder and beside a recording.
const ANSWER: &str = "probes.json";

impl Pipeline {
    /// Runs the operators by themselves that what-ifs of a recording need, and keeps the answer beside
    /// it in `recording`. Nothing of the project runs. The answer's notes are for a person: that it
    /// ended early.
    ///
    /// # Errors
    /// An outcome that is no answer: cancelled, no Python, no disk.
    pub async fn probe(
        &self,
        plan: &Plan,
        subject: &Subject,
        recording: Option<&Path>,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Answer, Outcome> {
        let list = list(subject);
        if list.is_empty() {
            return Ok(Answer::default());
        }
        tell(progress, "running single operators in other ways", 0.5);
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        let agent = or_cancelled(cancel, self.agent(plan, &interpreter)).await?;
        let (store, root) = (self.store().clone(), plan.root.clone());
        let folder = blocking(move || store.new_estimate(&root)).await?.map_err(files_problem)?;
        let out = folder.path().to_owned();
        let file = out.join("request.json");
        let (text, path) = (list.request.to_string(), file.clone());
        blocking(move || fs::write(&path, text).map_err(|error| StoreError::at(&path, error)))
            .await?
            .map_err(files_problem)?;
        let run = plan.run_request(out.clone());
        let manifest = subject.manifest.as_ref();
        let on_processor = manifest.is_some_and(|it| it.device.kind.as_deref() == Some("cpu"));
        let mut limits = run.limits;
        limits.seconds = SECONDS as u64 + GRACE_SECONDS;
        let request = ProbeRequest {
            out: out.clone(),
            root: run.root,
            env: run.env,
            device: if on_processor { "cpu".to_owned() } else { run.device },
            request: file,
            limits,
        };
        let (news, _unread) = mpsc::channel(1);
        let ended = agent.probe(request, news, cancel.clone()).await;
        if ended.outcome == Ended::Cancelled {
            return Err(Outcome::Cancelled);
        }
        let kept: Option<PathBuf> = recording.map(|recording| recording.join(ANSWER));
        let Answer { probes, notes } = blocking(move || {
            let text = fs::read(out.join(ANSWER)).unwrap_or_default();
            if let Some(kept) = kept.filter(|_| !text.is_empty())
                && let Err(error) = fs::write(&kept, &text)
            {
                tracing::debug!("probes are not kept beside their recording: {error}");
            }
            drop(folder);
            list.read(&text)
        })
        .await?;
        for note in notes {
            tracing::debug!("a probe: {note}");
        }
        let mut notes = Vec::new();
        if ended.outcome != Ended::Complete {
            let why = ended.message.unwrap_or_else(|| format!("{:?}", ended.outcome));
            notes.push(format!("running single operators ended early: {why}"));
        }
        Ok(Answer { probes, notes })
    }
}

/// What was measured after a recording, where its folder has it.
pub fn kept_probes(recording: &Path, subject: &Subject) -> Probes {
    let Ok(text) = fs::read(recording.join(ANSWER)) else { return Probes::default() };
    list(subject).read(&text).probes
}

fn list(subject: &Subject) -> ProbeList {
    let peak_bytes = Some(subject.profile.memory.peak_bytes).filter(|bytes| *bytes > 0);
    probe_list(&subject.recorded.graph, subject.manifest.as_ref(), peak_bytes, SECONDS)
}
