//! What a project says about its runs: `ridgeline.toml`, or `[tool.ridgeline]` in `pyproject.toml`.
//!
//! The file comes from the project and is read before anyone trusts it, so it is bounded in size,
//! every value is checked, and every error says file, line and what is allowed. The published
//! schema `docs/ridgeline.schema.json` is made from these types; a test holds the two equal.

mod budgets;
mod count;
mod device_choice;
mod environment;
mod hourly_price;
mod launcher;
mod load;
mod path_inside;
mod program;
mod side_effects;
mod silenced;
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
pub(crate) use launcher::Launcher;
pub(crate) use load::{FILE_NAME, Loaded, PYPROJECT, load};
pub(crate) use path_inside::{PathInside, inside};
pub(crate) use program::{Argument, ModuleName};
pub(crate) use side_effects::{KeptFolder, SideEffects};
pub(crate) use silenced::Silenced;
pub(crate) use size::Size;

/// How many characters of a wrong value a message quotes.
const SHOWN: usize = 60;

/// The configuration of one project, as written. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Ridgeline's configuration of a project")]
pub(crate) struct Config {
    /// The training script, relative to this file. At most one of `script`, `module` and `provider`
    /// may be given; without any of them, Ridgeline looks for the training script itself.
    pub script: Option<PathInside>,
    /// The module to run, as `python -m` takes it: `package.train`.
    pub module: Option<ModuleName>,
    /// A Skyline or DeepView provider file, relative to this file.
    pub provider: Option<PathInside>,
    /// The program's own arguments.
    pub arguments: Vec<Argument>,
    /// Environment variables for the program, added to those that Ridgeline itself runs with.
    pub environment: Environment,
    /// What starts the processes of a program that trains with many ranks: a list such as
    /// `["torchrun", "--nproc-per-node", "2"]`, or a table (docs/ranks.md).
    pub launcher: Option<Launcher>,
    /// The folder that the program runs in, relative to this file. Default: this file's folder.
    pub working_directory: Option<PathInside>,
    /// The Python to run with: a path (a relative one is relative to this file) of an interpreter
    /// or of a virtual environment's folder.
    pub python: Option<PathBuf>,
    /// Where to run: `auto` (a GPU where there is one), `cpu`, `cuda`, or one GPU such as `cuda:1`.
    pub device: DeviceChoice,
    /// The batch size that a provider file is asked for. Plain scripts keep their own.
    pub batch_size: Option<Count<1, 16_777_216>>,
    /// What becomes of what the program creates, changes and removes while it is profiled. Default:
    /// `redirect`.
    pub side_effects: SideEffects,
    /// Folders that a run may write to all the same, such as a cache of prepared data: relative to this
    /// file, from the home folder (`~/data`), or absolute.
    pub keep_writes: Vec<KeptFolder>,
    /// What counts as the project's own code: costs are shown on its lines.
    pub user_code: UserCode,
    /// How many iterations run, and how they are found.
    pub iterations: Iterations,
    /// When a run is stopped.
    pub limits: Limits,
    /// GPUs that predictions are made for, beside those that Ridgeline knows, and their prices.
    pub devices: Devices,
    /// What was found to be slow or wasteful, and is not to be shown.
    pub findings: Findings,
    /// What `ridgeline check` holds a run to.
    pub check: Check,
}

/// What counts as the project's own code.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UserCode {
    /// Folders or files that count, relative to this file. Default: everything beside this file,
    /// except environments and `site-packages`.
    pub paths: Vec<PathInside>,
    /// Folders or files that do not count, relative to this file.
    pub exclude: Vec<PathInside>,
    /// Installed packages that count as well, such as `transformers`.
    pub packages: Vec<ModuleName>,
}

/// How many iterations run, and how they are found.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Iterations {
    /// Iterations before anything is measured.
    pub warmup: Count<0, 1000>,
    /// Iterations whose time is taken without a profiler. Default: 3, and up to 6 while they are quick
    /// or unequal.
    pub timed: Option<Count<1, 1000>>,
    /// Iterations that the profiler watches, for the shares of lines and for memory.
    pub profiled: Count<1, 20>,
    /// How iterations of a plain script are found. Default: by the optimizer's steps; without an
    /// optimizer by `backward`, and without that by calls of the outermost module.
    pub found_by: Option<FoundBy>,
}

impl Default for Iterations {
    fn default() -> Iterations {
        Iterations { warmup: Count(2), timed: None, profiled: Count(2), found_by: None }
    }
}

/// How iterations of a plain script are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FoundBy {
    /// By the optimizers' steps.
    Optimizer,
    /// By calls of `backward`.
    Backward,
    /// By calls of the outermost module.
    Module,
}

impl FoundBy {
    /// As the agent's protocol names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FoundBy::Optimizer => "optimizer",
            FoundBy::Backward => "backward",
            FoundBy::Module => "module",
        }
    }
}

/// When a run is stopped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Seconds that a whole run may take, imports included. Default: 120.
    pub seconds: Option<Count<1, 86_400>>,
    /// Memory of the machine that the program may use: bytes, or text such as `"16 GB"`. Default:
    /// no limit beyond the machine's.
    pub memory: Option<Size>,
}

/// GPUs that predictions are made for, and what they cost.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Devices {
    /// Files that each describe one GPU (docs/configuration.md), relative to this file.
    pub files: Vec<PathInside>,
    /// What an hour of a GPU costs in US dollars, by its name: a number, or a table of
    /// `usd_per_hour` and `date`. It stands for the price that Ridgeline knows.
    pub prices: BTreeMap<String, HourlyPrice>,
}

/// What is shown of what was found.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Findings {
    /// Findings that are not shown: by name, `"hidden-sync"`, or by name and files relative to this
    /// file, `"hidden-sync:old/*.py"`.
    pub ignore: Vec<Silenced>,
}

/// At most the first characters of a value of any length.
fn clipped(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
