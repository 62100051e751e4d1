//! The questions, one file each, in the order of the table in `docs/accuracy.md`.

mod changed_step;
pub mod data_parallel;
mod gpu_to_gpu;
mod mixed_precision;
mod training_without_gpu;
mod transformers;

use super::case::Case;
use super::ground_truth::GroundTruth;
use ridgeline_devices::device_table::DeviceTable;

/// A question that measurements can answer.
pub trait Question {
    /// Returns a short name, for JSON and the sample.
    fn id(&self) -> &'static str;

    /// Returns the question as text.
    fn title(&self) -> &'static str;

    /// Returns the target errors.
    fn bar(&self) -> TargetErrors;

    /// Returns the cases in a folder, and the number of rows that are not cases, by reason.
    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases;
}

/// The target errors of a question, as fractions.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct TargetErrors {
    /// The required mean error.
    pub mean: f64,
    /// The required median error.
    pub median: Option<f64>,
    /// The mean error to aim for after that.
    pub aim: f64,
}

/// The cases of one question.
#[derive(Default)]
pub struct Cases {
    /// The cases to predict.
    pub cases: Vec<Case>,
    /// The number of rows that are not cases, by reason.
    pub passed_over: Vec<(String, usize)>,
}

impl Cases {
    /// Counts rows that are not cases.
    pub fn pass_over(&mut self, why: impl Into<String>, rows: usize) {
        let why = why.into();
        match self.passed_over.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, count)) => *count += rows,
            None if rows > 0 => self.passed_over.push((why, rows)),
            None => {}
        }
    }
}

/// Returns all questions.
pub fn all() -> Vec<Box<dyn Question>> {
    vec![
        Box::new(gpu_to_gpu::KnownTarget),
        Box::new(gpu_to_gpu::UnseenTarget),
        Box::new(training_without_gpu::TrainingWithoutGpu),
        Box::new(transformers::Transformers),
        Box::new(mixed_precision::MixedPrecision),
        Box::new(changed_step::COMPILE),
        Box::new(changed_step::CHANNELS_LAST),
        Box::new(data_parallel::DataParallel),
    ]
}
