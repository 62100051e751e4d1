//! A run that failed, as a person reads it at the line.

/// Why a run failed, with paths as the profile has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFailure {
    /// `RuntimeError`.
    pub error_type: String,
    /// The exception's own text.
    pub message: String,
    /// `exception`, `syntax`, `exit` or `memory`.
    pub kind: String,
    /// The user's frames, outermost first.
    pub frames: Vec<FailureFrame>,
    /// For out of memory: bytes that were asked for.
    pub requested_bytes: Option<u64>,
}

/// One frame of a failed run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureFrame {
    /// Relative to the project's root.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    /// The function's name.
    pub name: String,
}

/// What is shown at the line that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureReport {
    /// Where: the innermost user frame; nothing where no frame is known.
    pub at: Option<FailureFrame>,
    /// `RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x10 and 20x5)`.
    pub message: String,
    /// The frames around it, innermost first, each with what to say: `called from train`.
    pub related: Vec<(FailureFrame, String)>,
}
