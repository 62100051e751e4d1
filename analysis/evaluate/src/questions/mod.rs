//! The questions, one file each, in the order of the table that judges them.

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
    /// A short name, for JSON and the sample.
    fn id(&self) -> &'static str;

    /// What is asked, in words.
    fn title(&self) -> &'static str;

    /// The errors to reach.
    fn bar(&self) -> Bar;

    /// The cases that a folder has, and how many of its rows make none, with the reason.
    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases;
}

/// What a question's row of the table asks for, as shares.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Bar {
    /// The mean error to reach.
    pub mean: f64,
    /// The median error to reach.
    pub median: Option<f64>,
    /// The mean error to aim at then.
    pub aim: f64,
}

/// The cases of one question.
#[derive(Default)]
pub struct Cases {
    /// What is predicted.
    pub cases: Vec<Case>,
    /// Rows that make no case, by reason.
    pub passed_over: Vec<(String, usize)>,
}

impl Cases {
    /// Counts rows that make no case.
    pub fn pass_over(&mut self, why: impl Into<String>, rows: usize) {
        let why = why.into();
        match self.passed_over.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, count)) => *count += rows,
            None if rows > 0 => self.passed_over.push((why, rows)),
            None => {}
        }
    }
}

/// All of them.
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
