//! What runs: the script, where it runs and with what.

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The script, module or provider file, relative to the root.
    pub path: String,
    /// It is a Skyline or DeepView provider.
    pub provider: bool,
    /// The folder that it runs in, relative to the root; empty for the root itself.
    pub working_directory: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The names of variables that the configuration sets for it.
    pub environment: Vec<String>,
    /// The batch size that the configuration asks a provider for.
    pub configured: Option<u64>,
    /// Samples of an iteration, as the last run of it found them.
    pub measured: Option<u64>,
    /// Which of several numbers it was in the text that ran: [`choice`](crate::batch_site::BatchSite::choice). Today's text may
    /// say another number there, which no run had.
    pub chosen: Option<Choice>,
}

/// One of several numbers that a batch size may come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Which, counted from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}
