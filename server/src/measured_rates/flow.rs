//! When the server measures a GPU: once for each GPU model and driver, after a run on it, when the person
//! allowed it and nothing else runs.

use std::path::{Path, PathBuf};

use ridgeline_analysis::profile::Device;
use ridgeline_gpu::devices::Gpu;
use tokio_util::sync::CancellationToken;

use super::Identity;
use crate::consent::{Cause, Kind, Question};
use crate::event::Event;
use crate::lsp::client::{Asked, Importance};
use crate::state::GlobalState;
use crate::store::{Store, StoreError, create_private, write_atomic};
use crate::trust::Decision;

/// Whether GPUs are measured: `ridgeline.measureDevice`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeasureDevice {
    /// When the person agrees.
    #[default]
    Ask,
    /// Without a question.
    Always,
    /// By `ridgeline doctor --measure` only.
    Never,
}

/// A GPU that could be measured.
#[derive(Clone, Debug)]
pub struct Target {
    /// The driver's number for it.
    pub index: u32,
    /// What it is.
    pub device: Identity,
    /// The workspace whose run showed it: its Python has cuBLASLt.
    pub root: PathBuf,
}

impl Target {
    /// A GPU of this machine that a run of the workspace at `root` used.
    pub fn new(gpu: &Gpu, device: Identity, root: &Path) -> Target {
        Target { index: gpu.index, device, root: root.to_owned() }
    }
}

/// What goes on about measuring GPUs.
#[derive(Debug, Default)]
pub struct DeviceMeasurement {
    /// A GPU was looked at in this session, and the person perhaps asked. Nobody is asked twice.
    looked: bool,
    /// A GPU that is to be measured when nothing else runs.
    wanted: Option<(Target, Cause)>,
    /// Stops the measurement that goes on.
    running: Option<CancellationToken>,
}

/// What the person's question offers.
const MEASURE: &str = "Measure";
const NEVER: &str = "Never";
/// The file in the state folder that says that the person wants no question any more.
const DECLINED: &str = "never-measure-gpus";

fn was_declined(store: &Store) -> bool {
    store.state().join(DECLINED).is_file()
}

fn decline(store: &Store) -> Result<(), StoreError> {
    create_private(store.state())?;
    write_atomic(&store.state().join(DECLINED), b"")
}

impl GlobalState {
    /// A run on a device ended. Where its GPU was not measured yet with this driver, that is done or asked
    /// for.
    pub fn consider_measuring(&mut self, root: &Path, device: &Device) {
        let Some(store) = self.store.clone() else { return };
        let choice = self.settings.measure_device;
        if device.kind != "cuda" || choice == MeasureDevice::Never || self.measuring.looked {
            return;
        }
        self.measuring.looked = true;
        // A run that was allowed once allows nothing behind it.
        if self.gate.decision(root) != Decision::Allowed {
            return;
        }
        let question = self.gate.question(root, None);
        let unmeasured = self.profiler.unmeasured_gpu(device.clone(), root.to_owned());
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        tokio::spawn(async move {
            let Some(target) = unmeasured.await else { return };
            let mut cause = Cause::Unasked;
            if choice == MeasureDevice::Ask {
                if was_declined(&store) {
                    return;
                }
                let message = format!(
                    "Measure the copy bandwidth and GEMM rates of {} to improve predictions? It \
                     takes about 10 seconds of GPU time and runs no code of your project.",
                    target.device.name
                );
                let titles = [MEASURE, NEVER].map(str::to_owned);
                match to_client.ask(&message, &titles).await {
                    Asked::Chosen(title) if title == MEASURE => cause = Cause::Asked,
                    Asked::Chosen(_) => {
                        if let Err(error) = decline(&store) {
                            let message = format!("Your answer was not saved: {error}");
                            to_client.show_message(Importance::Warning, &message);
                        }
                        return;
                    }
                    Asked::Closed | Asked::NotShown => return,
                }
            }
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::MeasureDevice(target, question, cause)).await;
        });
    }

    /// A GPU is to be measured, unless consent was taken back since the question was put.
    pub fn device_wanted(&mut self, target: Target, question: Question, cause: Cause) {
        if self.gate.is_current(&target.root, question) {
            self.measuring.wanted = Some((target, cause));
            self.measure_when_idle();
        }
    }

    /// Begins the measurement where nothing runs; else the end of the run begins it.
    pub fn measure_when_idle(&mut self) {
        if self.queue.running().is_some() || self.measuring.running.is_some() {
            return;
        }
        let Some((target, cause)) = self.measuring.wanted.clone() else { return };
        let what = format!("measuring {}", target.device.name);
        let Some(permit) = self.gate.permit(&target.root, cause, Kind::Background, what) else {
            self.measuring.wanted = None;
            return;
        };
        self.measuring.running = Some(permit.token().clone());
        let request = self.request(&target.root, None);
        let (profiler, events) = (self.profiler.clone(), self.events.clone());
        let machine = self.machine.clone();
        tokio::spawn(async move {
            // Batch sizes and probes run on the GPU between runs, and hold this while they do.
            let measured = async {
                let _alone = machine.lock().await;
                profiler.measure_gpu(target, request, permit.clone()).await
            };
            // Dropping the measurement kills its process.
            let measured = tokio::select! {
                measured = measured => Some(measured),
                () = permit.token().cancelled() => None,
            };
            drop(permit);
            let _ = events.send(Event::DeviceMeasured(measured)).await;
        });
    }

    /// A run comes first. The measurement begins again when that has ended.
    pub fn stop_measuring(&mut self) {
        if let Some(running) = &self.measuring.running {
            running.cancel();
        }
    }

    /// Nothing is measured any more with the Python of this workspace.
    pub fn forget_measuring_in(&mut self, root: &Path) {
        if self.measuring.wanted.as_ref().is_some_and(|(target, _)| target.root == root) {
            self.forget_measuring();
        }
    }

    /// The client said goodbye: nothing is measured any more.
    pub fn forget_measuring(&mut self) {
        self.stop_measuring();
        self.measuring.wanted = None;
    }

    /// A measurement ended; `None` where it was stopped.
    pub fn device_measured(&mut self, measured: Option<Result<String, String>>) {
        self.measuring.running = None;
        let Some(measured) = measured else {
            // A run that has ended meanwhile began nothing.
            return self.measure_when_idle();
        };
        // One that failed is not tried again in this session.
        self.measuring.wanted = None;
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
    fn an_answer_of_never_is_kept() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
        assert!(!was_declined(&store));
        decline(&store).expect("written");
        assert!(was_declined(&store));
    }
}
