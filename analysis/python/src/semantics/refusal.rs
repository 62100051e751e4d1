//! Why a question about a program has no answer.

/// Why a value cannot be traced, or a program cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// A sentence.
    pub message: String,
    /// The file and line that it is about.
    pub at: Option<(String, u32)>,
}

impl Refusal {
    pub fn new(message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), at: None }
    }
}
