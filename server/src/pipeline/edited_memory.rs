//! The peak memory of a program under mixed precision, from running the edited program on fake tensors.
//!
//! What autocast casts, and what operators save then, depends on the kernels that PyTorch selects for the other type, so
//! the what-if's graph only approximates it. A fake run allocates what a real run would.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::optimize::optimization::Prediction;
use ridgeline_analysis::optimize::rewrite::EditKind;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::measure::overlays;
use super::probe_cache::read_bounded;
use super::{Compared, Outcome, Pipeline, Plan, blocking};
use crate::profiler::Profiled;
use crate::store::write_atomic;

/// The file in a recording's folder.
const FILE: &str = "edited-memory.json";
const VERSION: u32 = 1;
/// Both types have the same size, so either edit gives the memory of both.
const MIXED_PRECISION: [EditKind; 2] = [EditKind::AutocastBFloat16, EditKind::AutocastFloat16];

/// The possible ratios of the peak memory with mixed precision to that without: it halves activations, and adds copies of
/// half the size. Beyond them, the fake run was not the program that was measured: one may draw its sizes at random.
const POSSIBLE_RATIOS: std::ops::RangeInclusive<f64> = 0.45..=1.6;

/// Peak memory in bytes by the name of an optimization.
pub(crate) type EditedPeaks = BTreeMap<String, f64>;

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    peaks: EditedPeaks,
}

impl Pipeline {
    /// Estimates the peak memory of a measured program with the edits of mixed precision, and stores it in the recording's
    /// folder. If there is no estimate, predictions keep the approximation. Runs code of the project.
    ///
    /// # Errors
    /// [`Outcome::Cancelled`].
    pub(crate) async fn measure_edited_memory(
        &self,
        plan: &Plan,
        measured: &Arc<Profiled>,
        cancel: &CancellationToken,
    ) -> Result<(), Outcome> {
        let Some(file) = measured.recording.as_ref().map(|recording| recording.join(FILE)) else {
            return Ok(());
        };
        let known = file.clone();
        let is_known = blocking(move || known.is_file()).await?;
        if is_known || plan.root != measured.root || measured.profile.memory.peak_bytes == 0 {
            return Ok(());
        }
        let measured_bytes = measured.profile.memory.peak_bytes as f64;
        let mut peaks = EditedPeaks::new();
        for kind in MIXED_PRECISION {
            match self.edited_peak(plan, measured, kind, cancel).await {
                Ok(Some(bytes)) if is_possible(bytes as f64, measured_bytes) => {
                    let names = MIXED_PRECISION.iter().map(|kind| kind.name().to_owned());
                    peaks = names.map(|name| (name, bytes as f64)).collect();
                    break;
                }
                Ok(other) => tracing::debug!("memory of {}: {other:?} bytes", kind.name()),
                Err(Outcome::Cancelled) => return Err(Outcome::Cancelled),
                Err(Outcome::Problem(why)) => {
                    tracing::debug!("memory of {}: {}", kind.name(), why.message());
                }
                Err(_) => tracing::debug!("memory of {}: the edited program fails", kind.name()),
            }
        }
        let written = blocking(move || -> Result<(), String> {
            let bytes = serde_json::to_vec(&Stored { version: VERSION, peaks });
            let bytes = bytes.map_err(|error| error.to_string())?;
            write_atomic(&file, &bytes).map_err(|error| error.to_string())
        });
        if let Err(why) = written.await? {
            tracing::debug!("the memory of edited programs is not kept: {why}");
        }
        Ok(())
    }

    async fn edited_peak(
        &self,
        plan: &Plan,
        measured: &Arc<Profiled>,
        kind: EditKind,
        cancel: &CancellationToken,
    ) -> Result<Option<u64>, Outcome> {
        let names = vec![kind.name().to_owned()];
        let prediction = Prediction { names, ..Prediction::default() };
        let compared = Compared { prediction, measured: measured.clone(), texts: Vec::new() };
        let plan_of_edit = plan.clone();
        let edited = blocking(move || overlays(&plan_of_edit, &compared)).await?;
        match edited {
            Ok((_, _, overlay)) => self.peak_with(plan, measured, overlay, cancel).await,
            Err(why) => {
                tracing::debug!("memory of {}: {why}", kind.name());
                Ok(None)
            }
        }
    }
}

fn is_possible(bytes: f64, measured_bytes: f64) -> bool {
    POSSIBLE_RATIOS.contains(&(bytes / measured_bytes))
}

/// Reads what [`Pipeline::measure_edited_memory`] stored; empty if there is nothing.
pub(crate) fn edited_peaks(recording: &Path) -> EditedPeaks {
    let stored: Stored =
        serde_json::from_slice(&read_bounded(&recording.join(FILE))).unwrap_or_default();
    let is_sound = |bytes: &f64| bytes.is_finite() && *bytes > 0.0;
    let peaks = stored.peaks.into_iter().filter(|(_, bytes)| is_sound(bytes));
    if stored.version == VERSION { peaks.collect() } else { EditedPeaks::new() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn peaks_of_another_program_are_ignored() {
        assert!(is_possible(35_092_316.0, 40_300_000.0));
        assert!(!is_possible(348_683_916.0, 615_000.0));
        assert!(!is_possible(100_000.0, 615_000.0));
    }

    #[test]
    fn stored_peaks_are_validated() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join(FILE);
        assert!(edited_peaks(folder.path()).is_empty());
        fs::write(&file, r#"{"version": 1, "peaks": {"amp-bf16": 5, "amp-fp16": -1}}"#)
            .expect("written");
        let found = edited_peaks(folder.path());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("amp-bf16".to_owned(), 5.0)]);
        for damaged in ["", "[]", r#"{"version": 2, "peaks": {"amp-bf16": 5}}"#] {
            fs::write(&file, damaged).expect("written");
            assert!(edited_peaks(folder.path()).is_empty(), "{damaged}");
        }
    }
}
