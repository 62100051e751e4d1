//! The likely cause of a failure and what to do about it. A rule speaks where it is sure: an exception's type
//! and text, where it was raised, and what the program printed have to say the same. Without a rule there is no
//! advice. docs/failures.md lists the causes.

mod arguments;
mod checkpoints;
mod data;
mod devices;
mod distributed;
mod imports;
mod network;
mod processes;
mod surroundings;
#[cfg(test)]
mod tests;
mod versions;

pub(super) use self::arguments::usage_error;
pub use self::imports::missing_module;

use super::run::{Reader, RunFacts};
use super::{RunFailure, quoted};

/// Why a run failed, as far as that is sure, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Advice {
    /// The cause's name: `missing-file`.
    pub cause: &'static str,
    /// A paragraph: the cause in a sentence, and what to do.
    pub text: String,
}

/// The likely cause of a failure; nothing where no rule is sure.
pub fn advice(failure: &RunFailure, reader: Reader) -> Option<Advice> {
    let seen = Seen { failure, run: &failure.run, reader };
    RULES.iter().find_map(|rule| rule(&seen))
}

type Rule = fn(&Seen) -> Option<Advice>;

/// The first that knows the failure speaks, so the special ones come first.
const RULES: &[Rule] = &[
    arguments::missing_setting,
    arguments::usage,
    distributed::no_launcher,
    distributed::port_in_use,
    devices::gpu_index,
    devices::gpu_absent,
    devices::backend_absent,
    devices::unsupported_gpu,
    surroundings::not_logged_in,
    network::server_absent,
    network::login_needed,
    network::no_network,
    versions::numpy_binary,
    imports::relative_import,
    imports::own_module,
    imports::missing_package,
    imports::missing_library,
    versions::package_version,
    versions::newer_python,
    versions::python_2,
    surroundings::missing_variable,
    surroundings::standard_input,
    surroundings::no_display,
    processes::no_main_guard,
    processes::shared_memory,
    processes::too_many_files,
    processes::not_picklable,
    processes::loader_worker,
    checkpoints::weights_only,
    checkpoints::git_lfs,
    checkpoints::damaged,
    checkpoints::other_model,
    surroundings::write_refused,
    surroundings::disk_full,
    data::missing_command,
    data::missing_data_set,
    data::empty_data_set,
    data::missing_file,
];

/// What a rule looks at.
struct Seen<'a> {
    failure: &'a RunFailure,
    run: &'a RunFacts,
    reader: Reader,
}

impl Seen<'_> {
    fn because(&self, cause: &'static str, text: impl Into<String>) -> Option<Advice> {
        Some(Advice { cause, text: text.into() })
    }

    /// Whether the exception is of one of these types, by their last names.
    fn is(&self, types: &[&str]) -> bool {
        types.contains(&last_name(&self.failure.error_type))
    }

    /// Whether the exception, or one that it was raised from, is of one of these types.
    fn comes_from(&self, types: &[&str]) -> bool {
        self.is(types)
            || self.run.error.causes.iter().any(|cause| types.contains(&last_name(cause)))
    }

    /// Whether the exception's text has one of these.
    fn says(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.failure.message.contains(text))
    }

    /// Whether the program printed one of these among its last lines.
    fn printed(&self, texts: &[&str]) -> bool {
        self.printed_line(texts).is_some()
    }

    fn printed_line(&self, texts: &[&str]) -> Option<&str> {
        let lines = self.run.output.iter().rev().map(String::as_str);
        lines.into_iter().find(|line| texts.iter().any(|text| line.contains(text)))
    }

    /// The file that it was raised in, from its package on.
    fn raised_in(&self) -> &str {
        self.run.error.raised_in.as_ref().map_or("", |raised| &raised.path)
    }

    fn errno(&self) -> &str {
        self.run.error.errno.as_deref().unwrap_or_default()
    }

    /// Whether the program exited by itself.
    fn is_exit(&self) -> bool {
        self.failure.kind == "exit"
    }
}

/// `requests.exceptions.ConnectionError` -> `ConnectionError`.
fn last_name(dotted: &str) -> &str {
    dotted.rsplit('.').next().unwrap_or(dotted)
}

/// The text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?]).filter(|found| !found.is_empty())
}
