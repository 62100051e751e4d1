//! One measurement that is to be predicted, and the outcome.

use ridgeline_operators::op_list::OpList;
use ridgeline_operators::range::Range;

use super::error_statistics::relative_error;
use super::list_request::ListRequest;
use super::trivial::Guess;

/// Where operator lists come from. `analysis` reads no files.
pub trait ListSource {
    /// The operators of one step.
    ///
    /// # Errors
    /// Why there are none, in words.
    fn list(&self, request: &ListRequest) -> Result<OpList, String>;
}

/// What one case asks. It is made of what a person would know beforehand, never of the measurement.
pub trait Task {
    /// The operator lists that it needs.
    fn lists(&self) -> Vec<ListRequest>;

    /// The prediction, in milliseconds.
    ///
    /// # Errors
    /// Why there is none.
    fn predict(&self, lists: &dyn ListSource) -> Result<Prediction, Unanswered>;
}

/// What was predicted for one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// In milliseconds.
    pub milliseconds: Range,
    /// The trivial answers to the same case.
    pub trivial: Vec<Guess>,
}

/// Why a case has no prediction: a reason that many cases share, and what is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// What is counted: "no operator list", "data parallel".
    pub reason: String,
    /// This case's own, in words.
    pub detail: String,
}

impl Unanswered {
    /// Both in one.
    pub fn new(reason: impl Into<String>, detail: impl Into<String>) -> Unanswered {
        Unanswered { reason: reason.into(), detail: detail.into() }
    }
}

/// One measurement that is to be predicted.
pub struct Case {
    /// What it is, unique within its question.
    pub label: String,
    /// The cases that are counted together within a question.
    pub group: String,
    task: Box<dyn Task>,
    measured_milliseconds: f64,
}

impl Case {
    /// `task` must have been made without looking at `measured_milliseconds`.
    pub fn new(
        label: String,
        group: String,
        task: Box<dyn Task>,
        measured_milliseconds: f64,
    ) -> Case {
        Case { label, group, task, measured_milliseconds }
    }

    /// The operator lists that it needs.
    pub fn lists(&self) -> Vec<ListRequest> {
        self.task.lists()
    }

    /// Predicts, and only then compares.
    pub fn judge(&self, lists: &dyn ListSource) -> Judged {
        let prediction = self.task.predict(lists).and_then(|prediction| {
            let value = prediction.milliseconds.value;
            if value.is_finite() && value > 0.0 {
                Ok(prediction)
            } else {
                Err(Unanswered::new("the prediction is no time", format!("{value}")))
            }
        });
        Judged {
            label: self.label.clone(),
            group: self.group.clone(),
            measured_milliseconds: self.measured_milliseconds,
            outcome: prediction,
        }
    }
}

/// A case with its prediction and its measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What it is.
    pub label: String,
    /// What it is counted with.
    pub group: String,
    /// What was measured.
    pub measured_milliseconds: f64,
    /// What was predicted.
    pub outcome: Result<Prediction, Unanswered>,
}

impl Judged {
    /// |predicted / measured - 1|, where something was predicted.
    pub fn error(&self) -> Option<f64> {
        let prediction = self.outcome.as_ref().ok()?;
        Some(relative_error(prediction.milliseconds.value, self.measured_milliseconds))
    }

    /// Whether the measurement lies in the predicted range.
    pub fn in_range(&self) -> Option<bool> {
        let range = &self.outcome.as_ref().ok()?.milliseconds;
        Some((range.low..=range.high).contains(&self.measured_milliseconds))
    }
}
