//! The arguments of the tools. Their comments are what an agent reads.

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ProfileArgs {
    /// Training script or project folder; the server's working directory if omitted.
    pub path: Option<String>,
    /// The program's own command-line arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Device to run on: `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`.
    pub device: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ProjectArgs {
    /// Project folder or a Python file in it; the server's working directory if omitted.
    pub path: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CostsArgs {
    /// Python file, absolute or relative to the project folder.
    pub file: String,
    /// First line to show, counted from 1.
    pub first_line: Option<u32>,
    /// Last line to show.
    pub last_line: Option<u32>,
    /// Project folder; the server's working directory if omitted.
    pub path: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LineArgs {
    /// Python file, absolute or relative to the project folder.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
    /// Project folder; the server's working directory if omitted.
    pub path: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OptimizationArgs {
    /// Name of an optimization, such as `amp-bf16`, as `optimizations` lists it.
    pub name: String,
    /// Project folder or a Python file in it; the server's working directory if omitted.
    pub path: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PredictArgs {
    /// GPU names such as `H100` or `RTX 4090`; all known GPUs if omitted.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// Project folder or a Python file in it; the server's working directory if omitted.
    pub path: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CompareArgs {
    /// The earlier run: `last~1`, a run number, or a commit such as `HEAD`.
    #[serde(default = "previous")]
    pub before: String,
    /// The later run.
    #[serde(default = "last")]
    pub after: String,
    /// Project folder or a Python file in it; the server's working directory if omitted.
    pub path: Option<String>,
}

fn previous() -> String {
    "last~1".to_owned()
}

fn last() -> String {
    "last".to_owned()
}
