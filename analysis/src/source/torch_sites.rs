//! Whether a text is a script that trains a model, and where it does.

use super::index::SourceIndex;

/// How much a text looks like the script that a person starts to train a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingScript {
    /// 0 where it does not; scripts from [`TrainingScript::LIKELY`] on are worth starting.
    pub score: u32,
    /// Why, in a person's words: `calls backward() in a loop`.
    pub reasons: Vec<&'static str>,
    /// The line of the training loop's `for` or `while`, or of the call that trains, counted from 1.
    pub loop_line: Option<u32>,
    /// The line of the main guard, or of the first statement that starts the work.
    pub main_line: Option<u32>,
    /// Functions of Skyline and DeepView providers that the text defines.
    pub provider: bool,
}

impl TrainingScript {
    /// From this score on, the text is taken to be a training script.
    pub const LIKELY: u32 = 10;
}

/// Judges a text.
pub fn training_script(_index: &SourceIndex) -> TrainingScript {
    TrainingScript::default()
}
