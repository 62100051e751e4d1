//! The program that runs: the script, its folder and its arguments.

/// The program that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The path of the script, module or provider file, relative to the root.
    pub path: String,
    /// Whether it is a Skyline or DeepView provider.
    pub provider: bool,
    /// The folder that it runs in, relative to the root; empty for the root itself.
    pub working_directory: String,
    /// Its command-line arguments.
    pub arguments: Vec<String>,
    /// The names of environment variables that the configuration sets for it.
    pub environment: Vec<String>,
    /// The batch size that the configuration requests from a provider.
    pub configured: Option<u64>,
    /// The number of samples per iteration in the last run.
    pub measured: Option<u64>,
    /// Which of several numbers was the batch size in the text that ran
    /// ([`choice`](crate::batch_site::BatchSite::choice)). The current text may have another number
    /// there, which has not run.
    pub chosen: Option<Choice>,
}

/// One of several numbers that a batch size may come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Its index.
    pub index: usize,
    /// The number of candidates.
    pub count: usize,
}
