//! Decides when to measure a GPU: once for each GPU model and driver, after a run on it, if the
//! user allowed it and nothing else runs.

use ridgeline_analysis::profile::Device;
use ridgeline_gpu::devices::Gpu;

use super::Identity;
use crate::consent::{Cause, Question};
use crate::event::{Event, WorkspaceEvent};
use crate::jobs::Outcome;
use crate::lsp::client::{Importance, QuestionResult};
use crate::scheduler::{Job, Work, WorkspaceId};
use crate::state::GlobalState;
use crate::store::{Store, StoreError, create_private, write_atomic};
use crate::trust::Decision;

/// Whether GPUs are measured: `ridgeline.measureDevice`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MeasureDevice {
    /// After asking the user.
    #[default]
    Ask,
    /// Without asking.
    Always,
    /// Only by `ridgeline doctor --measure`.
    Never,
}

/// A GPU to measure.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The driver's index of the GPU.
    pub index: u32,
    /// The GPU model and its driver.
    pub device: Identity,
}

impl Target {
    /// Creates the target for a GPU of this machine.
    pub(crate) fn new(gpu: &Gpu, device: Identity) -> Target {
        Target { index: gpu.index, device }
    }
}

/// The state of GPU measurement.
#[derive(Debug, Default)]
pub(crate) struct DeviceMeasurement {
    /// Whether a GPU was considered in this session, and the user possibly asked. The user is asked
    /// at most once.
    looked: bool,
    /// The GPU to measure when nothing else runs.
    target: Option<Target>,
}

/// The choices of the question to the user.
const MEASURE: &str = "Measure";
const NEVER: &str = "Never";
/// The file in the state folder that records the answer "Never".
const DECLINED: &str = "never-measure-gpus";

fn was_declined(store: &Store) -> bool {
    store.state().join(DECLINED).is_file()
}

fn decline(store: &Store) -> Result<(), StoreError> {
    create_private(store.state())?;
    write_atomic(&store.state().join(DECLINED), b"")
}

impl GlobalState {
    /// Handles the end of a run on a device: measures its GPU, or asks to, if it was not measured
    /// with this driver.
    pub(crate) fn consider_measuring(&mut self, id: WorkspaceId, device: &Device) {
        let Some(store) = self.store.clone() else { return };
        let choice = self.settings.measure_device;
        if device.kind != "cuda" || choice == MeasureDevice::Never || self.measuring.looked {
            return;
        }
        self.measuring.looked = true;
        // Permission for a single run does not cover this.
        if self.gate.decision(id) != Decision::Allowed {
            return;
        }
        let question = self.gate.question(id, None);
        let unmeasured = self.profiler.unmeasured_gpu(device.clone());
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        tokio::spawn(async move {
            let Some(target) = unmeasured.await else { return };
            let mut cause = Cause::Automatic;
            if choice == MeasureDevice::Ask {
                if was_declined(&store) {
                    return;
                }
                let message = format!(
                    "Measure the copy bandwidth and GEMM rates of {} to improve predictions? It \
                    takes about 10 seconds of GPU time and does not run your project's code.",
                    target.device.name
                );
                let titles = [MEASURE, NEVER].map(str::to_owned);
                match to_client.ask(&message, &titles).await {
                    QuestionResult::Chosen(title) if title == MEASURE => cause = Cause::User,
                    QuestionResult::Chosen(_) => {
                        if let Err(error) = decline(&store) {
                            let message = format!("Could not save your answer: {error}");
                            to_client.show_message(Importance::Warning, &message);
                        }
                        return;
                    }
                    QuestionResult::Closed | QuestionResult::NotShown => return,
                }
            }
            // Sending fails only after the event loop has ended.
            let wanted = WorkspaceEvent::MeasureDevice(target, question, cause);
            let _ = events.send(Event::Workspace(id, wanted)).await;
        });
    }

    /// Queues the measurement of a GPU, unless consent was revoked since the question.
    pub(crate) fn request_measurement(
        &mut self,
        id: WorkspaceId,
        target: Target,
        question: Question,
        cause: Cause,
    ) {
        if self.gate.is_current(id, question) {
            self.measuring.target = Some(target);
            self.scheduler.enqueue(id, Work::MeasureGpu(cause));
        }
    }

    /// Starts the measurement.
    pub(crate) fn begin_measuring(&mut self, job: &Job) -> Option<()> {
        let target = self.measuring.target.clone()?;
        let permit = job.permit.clone()?;
        permit.set_description(format!("measuring {}", target.device.name));
        let request = self.request(job.owner, None);
        let measured = self.profiler.measure_gpu(target, request, permit);
        let token = job.token.clone();
        self.spawn_job(job, async move {
            // Dropping the measurement kills its process.
            tokio::select! {
                measured = measured => Outcome::MeasureGpu(measured),
                () = token.cancelled() => Outcome::Stopped,
            }
        });
        Some(())
    }

    /// Handles the end of a measurement. A failed one is not retried in this session.
    pub(crate) fn gpu_measured(&mut self, measured: Result<String, String>) {
        match measured {
            Ok(summary) => self.to_client.show_message(Importance::Info, &summary),
            Err(why) => {
                let message = format!("The GPU was not measured: {why}");
                self.to_client.show_message(Importance::Warning, &message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_never_is_stored() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        assert!(!was_declined(&store));
        decline(&store).expect("written");
        assert!(was_declined(&store));
    }
}
