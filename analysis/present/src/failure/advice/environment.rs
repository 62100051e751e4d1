//! The environment that a program needs: variables, a terminal, a display, a login, writable disk
//! space.

use super::{Advice, Failed, Reader, between, quoted};

/// Gym or Gymnasium does not have the environment.
pub(super) fn unknown_gym_environment(failed: &Failed) -> Option<Advice> {
    let types = ["NameNotFound", "NamespaceNotFound", "VersionNotFound", "DeprecatedEnv"];
    let is_gym = failed.failure.error_type.starts_with("gym");
    if !is_gym || !failed.is(&types) {
        return None;
    }
    let package = failed.failure.error_type.split('.').next().unwrap_or("gymnasium");
    // `Please use `Pendulum-v1` instead.`
    if let Some(newer) = between(&failed.failure.message, "use `", "`") {
        return failed.because(
            "unknown-gym-environment",
            format!(
                "The installed `{package}` has only a newer version of this environment. Use {} in \
                the program, or install the `{package}` that its requirements name.",
                quoted(newer)
            ),
        );
    }
    failed.because(
        "unknown-gym-environment",
        format!(
            "The installed `{package}` does not have this environment. Install the package that \
            has it (for Atari games: `{} -m pip install \"{package}[atari]\"`), or choose another \
            environment, such as `CartPole-v1` or, for continuous actions, `Pendulum-v1`.{}",
            failed.run.python,
            super::arguments::known_commands(failed)
        ),
    )
}

/// An environment variable is missing: `os.environ["DATA"]`.
pub(super) fn missing_variable(failed: &Failed) -> Option<Advice> {
    if !failed.is(&["KeyError"]) || !super::distributed::is_environ_lookup(failed) {
        return None;
    }
    let name = between(&failed.failure.message, "'", "'")?;
    let how = failed.run.with_variable(failed.reader, name, "…");
    let inherited = match failed.reader {
        Reader::Terminal => "The run inherits the environment of the shell that starts Ridgeline",
        Reader::Editor => "The run inherits the environment that the editor was started with",
    };
    failed.because(
        "missing-variable",
        format!(
            "The program needs the environment variable {}, which is not set. {inherited}. Set {how}.",
            quoted(name)
        ),
    )
}

/// The program reads standard input: `input()`.
pub(super) fn standard_input(failed: &Failed) -> Option<Advice> {
    if !failed.is(&["EOFError"]) || !failed.message_contains(&["EOF when reading a line"]) {
        return None;
    }
    let how = failed.run.with_arguments(failed.reader, "--yes");
    failed.because(
        "standard-input",
        format!(
            "The program waits for input (`input()`), but a profiled run has no standard input. \
            Pass the answer as an argument or an environment variable. {how}."
        ),
    )
}

/// The program opens a window without a display.
pub(super) fn no_display(failed: &Failed) -> Option<Advice> {
    let texts = &[
        "no display name and no $DISPLAY environment variable",
        "couldn't connect to display",
        "as 'headless' is currently running",
        "The function is not implemented. Rebuild the library with Windows, GTK+",
    ];
    if !failed.message_contains(texts) {
        return None;
    }
    let how = failed.run.with_variable(failed.reader, "MPLBACKEND", "Agg");
    failed.because(
        "no-display",
        format!(
            "The program opens a window, but there is no display. For matplotlib, set {how}; \
            otherwise disable that part."
        ),
    )
}

/// A tracker requires an API key.
pub(super) fn not_logged_in(failed: &Failed) -> Option<Advice> {
    let is_wandb = failed.message_contains(&[
        "api_key not configured (no-tty)",
        "No API key configured. Use `wandb login`",
        "wandb.login()",
    ]) || (failed.failure.error_type.starts_with("wandb.")
        && failed.message_contains(&["API key", "api_key", "not logged in"]));
    let is_comet = failed.failure.error_type.starts_with("comet_ml.")
        && failed.message_contains(&["API key", "api key"])
        || failed.message_contains(&["Comet.ml requires an API key", "Comet requires an API key"]);
    let is_neptune = failed.comes_from(&["NeptuneMissingApiTokenException"]);
    let (name, variable, value) = if is_wandb {
        ("Weights & Biases", "WANDB_MODE", "disabled")
    } else if is_comet {
        ("Comet", "COMET_MODE", "disabled")
    } else if is_neptune {
        ("Neptune", "NEPTUNE_MODE", "debug")
    } else {
        return None;
    };
    let how = failed.run.with_variable(failed.reader, variable, value);
    failed.because(
        "not-logged-in",
        format!(
            "The program logs to {name}, but is not logged in. Profiling needs no tracker: set \
            {how}."
        ),
    )
}

/// A write that our redirection or the file system refuses.
pub(super) fn write_refused(failed: &Failed) -> Option<Advice> {
    let errno = failed.errno();
    let is_refused =
        ["EACCES", "EROFS", "EPERM"].contains(&errno) || failed.is(&["PermissionError"]);
    if is_refused && failed.run.writes_denied {
        let how = match failed.reader {
            Reader::Terminal => "`--side-effects redirect`",
            Reader::Editor => "`side_effects = \"redirect\"` in ridgeline.toml",
        };
        return failed.because(
            "write-denied",
            format!(
                "The run may not write files because `side_effects` is `deny`. With {how} the \
                program can write, and nothing is kept on disk. `keep_writes` in ridgeline.toml \
                lists folders it may still write to."
            ),
        );
    }
    let how = match failed.reader {
        Reader::Terminal => "`--side-effects allow`",
        Reader::Editor => "`side_effects = \"allow\"` in ridgeline.toml",
    };
    match errno {
        "EXDEV" => failed.because(
            "write-redirected",
            format!(
                "Files written by a profiled run go to a temporary folder, so `os.rename` and \
                `os.replace` cannot move files between the project and a kept folder. Use \
                `shutil.move`, run with {how}, or add both folders to `keep_writes`."
            ),
        ),
        "EROFS" => failed.because(
            "write-redirected",
            format!(
                "This path is read-only for the run, because Ridgeline could not redirect writes \
                there. Add the folder to `keep_writes` in ridgeline.toml, or run with {how}."
            ),
        ),
        _ => None,
    }
}

/// The disk is full.
pub(super) fn disk_full(failed: &Failed) -> Option<Advice> {
    if failed.errno() != "ENOSPC" {
        return None;
    }
    let how = match failed.reader {
        Reader::Terminal => "`--side-effects allow`",
        Reader::Editor => "`side_effects = \"allow\"` in ridgeline.toml",
    };
    failed.because(
        "disk-full",
        format!(
            "The disk that the program writes to is full. A profiled run writes to a temporary \
            folder in Ridgeline's cache or /var/tmp, or in memory if no disk is available (in a \
            container). Free some space, add the folder to `keep_writes`, or run with {how}."
        ),
    )
}
