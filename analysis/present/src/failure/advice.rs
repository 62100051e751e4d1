//! The likely cause of a failure and what to do about it. A rule gives advice only if it is sure:
//! the type and text of the exception, the place where it was raised and the program's output have
//! to agree. If no rule matches, there is no advice. docs/failures.md lists the causes.

mod arguments;
mod checkpoints;
mod data;
mod devices;
mod distributed;
mod environment;
mod imports;
mod network;
mod notebook;
mod processes;
#[cfg(test)]
mod program_tests;
mod removed_names;
#[cfg(test)]
mod tests;
mod versions;

pub(super) use self::arguments::usage_error;
pub use self::imports::{missing_module, unbuilt_module};

use super::run::{Reader, RunFacts};
use super::{RunFailure, quoted};

/// The likely cause of a failed run, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Advice {
    /// The name of the cause: `missing-file`.
    pub cause: &'static str,
    /// A paragraph: the cause in a sentence, and what to do.
    pub text: String,
}

/// Returns the likely cause of a failure. `None` if no rule is sure.
pub fn advice(failure: &RunFailure, reader: Reader) -> Option<Advice> {
    let failed = Failed { failure, run: &failure.run, reader };
    RULES.iter().find_map(|rule| rule(&failed))
}

type Rule = fn(&Failed) -> Option<Advice>;

/// The rules in order of priority, specific ones first. The first match is used.
const RULES: &[Rule] = &[
    arguments::missing_setting,
    arguments::usage,
    arguments::missing_position,
    arguments::subcommand,
    distributed::no_launcher,
    distributed::port_in_use,
    devices::gpu_index,
    devices::gpu_absent,
    devices::precision_needs_gpu,
    devices::backend_absent,
    devices::unsupported_gpu,
    environment::not_logged_in,
    network::server_absent,
    network::login_needed,
    network::no_network,
    versions::numpy_binary,
    imports::relative_import,
    imports::not_built,
    imports::own_module,
    imports::only_in_colab,
    removed_names::package_for_old_numpy,
    removed_names::distutils,
    removed_names::removed_name,
    removed_names::removed_keyword,
    removed_names::old_pytorch,
    removed_names::old_gym,
    imports::missing_package,
    imports::missing_extra,
    imports::missing_metadata,
    imports::missing_library,
    versions::generated_protobuf,
    versions::module_not_imported,
    versions::package_version,
    imports::stated_package,
    versions::asserted_version,
    versions::newer_python,
    versions::python_2,
    environment::missing_variable,
    environment::unknown_gym_environment,
    environment::standard_input,
    environment::no_display,
    processes::no_main_guard,
    processes::shared_memory,
    processes::too_many_files,
    processes::not_picklable,
    processes::loader_worker,
    checkpoints::weights_only,
    checkpoints::git_lfs,
    checkpoints::damaged,
    checkpoints::other_model,
    environment::write_refused,
    environment::disk_full,
    data::missing_command,
    data::missing_data_set,
    data::missing_nltk_data,
    data::empty_data_set,
    data::missing_folder,
    data::missing_file,
    data::asserted_path,
    data::exit_without_data,
    arguments::unset_option,
    data::path_not_set,
];

/// The input of a rule.
struct Failed<'a> {
    failure: &'a RunFailure,
    run: &'a RunFacts,
    reader: Reader,
}

impl Failed<'_> {
    fn because(&self, cause: &'static str, text: impl Into<String>) -> Option<Advice> {
        Some(Advice { cause, text: text.into() })
    }

    /// Returns whether the exception has one of these type names, without module path.
    fn is(&self, types: &[&str]) -> bool {
        types.contains(&last_name(&self.failure.error_type))
    }

    /// Returns whether the exception, or one that it was raised from, has one of these type names.
    fn comes_from(&self, types: &[&str]) -> bool {
        self.is(types)
            || self.run.error.causes.iter().any(|cause| types.contains(&last_name(cause)))
    }

    /// Returns whether the message of the exception contains one of these texts.
    fn message_contains(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.failure.message.contains(text))
    }

    /// Returns whether the last lines of output contain one of these texts.
    fn printed(&self, texts: &[&str]) -> bool {
        self.printed_line(texts).is_some()
    }

    fn printed_line(&self, texts: &[&str]) -> Option<&str> {
        let lines = self.run.output.iter().rev().map(String::as_str);
        lines.into_iter().find(|line| texts.iter().any(|text| line.contains(text)))
    }

    /// The file that raised the exception, relative to the parent of its package.
    fn raised_in(&self) -> &str {
        self.run.error.raised_in.as_ref().map_or("", |raised| &raised.path)
    }

    fn errno(&self) -> &str {
        self.run.error.errno.as_deref().unwrap_or_default()
    }

    /// Returns whether the program exited by itself.
    fn is_exit(&self) -> bool {
        self.failure.kind == "exit"
    }
}

/// `requests.exceptions.ConnectionError` -> `ConnectionError`.
fn last_name(dotted: &str) -> &str {
    dotted.rsplit('.').next().unwrap_or(dotted)
}

/// Returns the text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?]).filter(|found| !found.is_empty())
}
