//! The configuration of a project: `ridgeline.toml`, or `[tool.ridgeline]` in `pyproject.toml`.
//!
//! The file belongs to the project and is read before the workspace is trusted. Its size is
//! therefore limited, every value is checked, and every error reports the file, the line and the
//! allowed values. The published schema `docs/ridgeline.schema.json` is generated from these types,
//! and a test compares them.

mod budgets;
mod count;
mod device_choice;
mod environment;
mod hourly_price;
mod ignored_finding;
mod launcher;
mod load;
mod path_inside;
mod program;
mod side_effects;
mod size;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use budgets::{Check, Milliseconds, Percent};
pub(crate) use count::Count;
pub(crate) use device_choice::{DEVICES, DeviceChoice};
pub(crate) use environment::Environment;
pub(crate) use hourly_price::HourlyPrice;
pub(crate) use ignored_finding::IgnoredFinding;
pub(crate) use launcher::Launcher;
pub(crate) use load::{FILE_NAME, Loaded, PYPROJECT, load};
pub(crate) use path_inside::{PathInside, inside};
pub(crate) use program::{Argument, ModuleName};
pub(crate) use side_effects::{KeptFolder, SideEffects};
pub(crate) use size::Size;

/// The maximum number of characters of an invalid value that a message quotes.
const MAX_SHOWN_CHARACTERS: usize = 60;

/// The configuration of one project, as written. Missing keys use their defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Ridgeline project configuration")]
pub(crate) struct Config {
    /// The training script, relative to this file. Set at most one of `script`, `module` and
    /// `provider`; without any of them, Ridgeline searches for the training script.
    pub script: Option<PathInside>,
    /// The module to run, as for `python -m`: `package.train`.
    pub module: Option<ModuleName>,
    /// A Skyline or DeepView provider file, relative to this file.
    pub provider: Option<PathInside>,
    /// The program's own arguments.
    pub arguments: Vec<Argument>,
    /// Additional environment variables for the program.
    pub environment: Environment,
    /// Launcher of a multi-rank training program: a list such as `["torchrun", "--nproc-per-node",
    /// "2"]`, or a table (docs/ranks.md).
    pub launcher: Option<Launcher>,
    /// Working directory of the program, relative to this file. Default: this file's folder.
    pub working_directory: Option<PathInside>,
    /// Python to run with: path of an interpreter or of a virtual environment, absolute or relative
    /// to this file.
    pub python: Option<PathBuf>,
    /// Device to run on: `auto` (a GPU if available), `cpu`, `cuda`, or one GPU such as `cuda:1`.
    pub device: DeviceChoice,
    /// Batch size for a provider file. Plain scripts use their own.
    pub batch_size: Option<Count<1, 16_777_216>>,
    /// What to do with files the program creates, changes and deletes while profiled. Default:
    /// `redirect`.
    pub side_effects: SideEffects,
    /// Folders that a run may still write to, such as a cache of preprocessed data: relative to
    /// this file, relative to the home folder (`~/data`), or absolute.
    pub keep_writes: Vec<KeptFolder>,
    /// Which code belongs to the project: costs are shown on its lines.
    pub user_code: UserCode,
    /// How many iterations to run, and how to find them.
    pub iterations: Iterations,
    /// Limits of a run.
    pub limits: Limits,
    /// Additional GPUs and prices for predictions.
    pub devices: Devices,
    /// Findings to hide.
    pub findings: Findings,
    /// Limits of `ridgeline check`.
    pub check: Check,
}

/// Which code belongs to the project.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UserCode {
    /// Folders or files to include, relative to this file. Default: everything in this file's
    /// folder except environments and `site-packages`.
    pub paths: Vec<PathInside>,
    /// Folders or files to exclude, relative to this file.
    pub exclude: Vec<PathInside>,
    /// Installed packages to include, such as `transformers`.
    pub packages: Vec<ModuleName>,
}

/// How many iterations to run, and how to find them.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Iterations {
    /// Number of warm-up iterations before measuring.
    pub warmup: Count<0, 1000>,
    /// Number of iterations timed without a profiler. Default: 3, and up to 6 if they are short or
    /// vary.
    pub timed: Option<Count<1, 1000>>,
    /// Number of profiled iterations, for costs per line and memory.
    pub profiled: Count<1, 20>,
    /// How to find iterations of a plain script. Default: by optimizer steps; without an optimizer,
    /// by `backward` calls; without those, by calls of the outermost module.
    pub found_by: Option<FoundBy>,
}

impl Default for Iterations {
    fn default() -> Iterations {
        Iterations { warmup: Count(2), timed: None, profiled: Count(2), found_by: None }
    }
}

/// How to find iterations of a plain script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FoundBy {
    /// By optimizer steps.
    Optimizer,
    /// By `backward` calls.
    Backward,
    /// By calls of the outermost module.
    Module,
}

impl FoundBy {
    /// The name in the agent's protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FoundBy::Optimizer => "optimizer",
            FoundBy::Backward => "backward",
            FoundBy::Module => "module",
        }
    }
}

/// Limits of a run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Maximum seconds of a whole run, including imports. Default: 120.
    pub seconds: Option<Count<1, 86_400>>,
    /// Maximum host memory of the program, as bytes or a size such as `"16 GB"`. Default: no limit.
    pub memory: Option<Size>,
}

/// Additional GPUs for predictions, and prices.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Devices {
    /// Files that each describe a GPU (docs/configuration.md), relative to this file.
    pub files: Vec<PathInside>,
    /// GPU price in US dollars per hour, by GPU name: a number, or a table of `usd_per_hour` and
    /// `date`. Overrides the built-in price.
    pub prices: BTreeMap<String, HourlyPrice>,
}

/// Which findings to show.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Findings {
    /// Findings to hide, by name (`"hidden-sync"`), or by name and files relative to this file
    /// (`"hidden-sync:old/*.py"`).
    pub ignore: Vec<IgnoredFinding>,
}

/// Truncates a value to `longest` characters.
fn clipped(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
