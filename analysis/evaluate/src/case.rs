//! A measurement to predict, and the outcome.

use ridgeline_operators::op_list::OpList;
use ridgeline_operators::range::Range;

use super::error_statistics::relative_error;
use super::list_request::ListRequest;
use super::trivial::Guess;

/// The source of operator lists, because `analysis` reads no files.
pub trait ListSource {
    /// Returns the operators of one step.
    ///
    /// # Errors
    /// The reason why there is no list, as text.
    fn list(&self, request: &ListRequest) -> Result<OpList, String>;
}

/// The task of one case. It is created from what is known beforehand, never from the measurement.
pub trait Task {
    /// Returns the operator lists that it needs.
    fn lists(&self) -> Vec<ListRequest>;

    /// Returns the prediction.
    ///
    /// # Errors
    /// The reason why there is no prediction.
    fn predict(&self, lists: &dyn ListSource) -> Result<Prediction, Unanswered>;
}

/// The prediction for one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Predicted time in milliseconds.
    pub milliseconds: Range,
    /// The trivial predictions for the same case.
    pub trivial: Vec<Guess>,
}

/// The reason why a case has no prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The reason that is counted and shared by many cases: "no operator list", "data parallel".
    pub reason: String,
    /// Details of this case, as text.
    pub detail: String,
}

impl Unanswered {
    pub fn new(reason: impl Into<String>, detail: impl Into<String>) -> Unanswered {
        Unanswered { reason: reason.into(), detail: detail.into() }
    }
}

/// A measurement to predict.
pub struct Case {
    /// The name, unique within its question.
    pub label: String,
    /// The group of cases that share statistics within a question.
    pub group: String,
    task: Box<dyn Task>,
    measured_milliseconds: f64,
}

impl Case {
    /// `task` must be created without access to `measured_milliseconds`.
    pub fn new(
        label: String,
        group: String,
        task: Box<dyn Task>,
        measured_milliseconds: f64,
    ) -> Case {
        Case { label, group, task, measured_milliseconds }
    }

    /// Returns the operator lists that it needs.
    pub fn lists(&self) -> Vec<ListRequest> {
        self.task.lists()
    }

    /// Predicts, and then compares with the measurement.
    pub fn judge(&self, lists: &dyn ListSource) -> CaseResult {
        let prediction = self.task.predict(lists).and_then(|prediction| {
            let value = prediction.milliseconds.value;
            if value.is_finite() && value > 0.0 {
                Ok(prediction)
            } else {
                Err(Unanswered::new("the prediction is no time", format!("{value}")))
            }
        });
        CaseResult {
            label: self.label.clone(),
            group: self.group.clone(),
            measured_milliseconds: self.measured_milliseconds,
            outcome: prediction,
        }
    }
}

/// A case with its prediction and its measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// The name of the case.
    pub label: String,
    /// The group of the case.
    pub group: String,
    /// Measured time in milliseconds.
    pub measured_milliseconds: f64,
    /// The prediction, or the reason why there is none.
    pub outcome: Result<Prediction, Unanswered>,
}

impl CaseResult {
    /// Returns |predicted / measured - 1|, if there is a prediction.
    pub fn error(&self) -> Option<f64> {
        let prediction = self.outcome.as_ref().ok()?;
        Some(relative_error(prediction.milliseconds.value, self.measured_milliseconds))
    }

    /// Returns whether the measurement is in the predicted range.
    pub fn in_range(&self) -> Option<bool> {
        let range = &self.outcome.as_ref().ok()?.milliseconds;
        Some((range.low..=range.high).contains(&self.measured_milliseconds))
    }
}
