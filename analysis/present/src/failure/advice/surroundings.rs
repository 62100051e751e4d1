//! What a program expects around it: variables, a terminal, a display, a login, a disk that it may write to.

use super::{Advice, Reader, Seen, between, quoted};

/// `os.environ["DATA"]`.
pub(super) fn missing_variable(seen: &Seen) -> Option<Advice> {
    if !seen.is(&["KeyError"]) || !super::distributed::is_of_environ(seen) {
        return None;
    }
    let name = between(&seen.failure.message, "'", "'")?;
    let how = seen.run.with_variable(seen.reader, name, "…");
    let seen_by = match seen.reader {
        Reader::Terminal => "The run inherits the environment of the shell that starts Ridgeline",
        Reader::Editor => "The run inherits the environment that the editor was started with",
    };
    seen.because(
        "missing-variable",
        format!(
            "The program needs the environment variable {}, which is not set. {seen_by}. Set {how}.",
            quoted(name)
        ),
    )
}

/// `input()`.
pub(super) fn standard_input(seen: &Seen) -> Option<Advice> {
    if !seen.is(&["EOFError"]) || !seen.says(&["EOF when reading a line"]) {
        return None;
    }
    let how = seen.run.with_arguments(seen.reader, "--yes");
    seen.because(
        "standard-input",
        format!(
            "The program waits for input (`input()`), but a profiled run has no standard input. \
            Pass the answer as an argument or an environment variable. {how}."
        ),
    )
}

/// A window.
pub(super) fn no_display(seen: &Seen) -> Option<Advice> {
    let texts = &[
        "no display name and no $DISPLAY environment variable",
        "couldn't connect to display",
        "as 'headless' is currently running",
        "The function is not implemented. Rebuild the library with Windows, GTK+",
    ];
    if !seen.says(texts) {
        return None;
    }
    let how = seen.run.with_variable(seen.reader, "MPLBACKEND", "Agg");
    seen.because(
        "no-display",
        format!(
            "The program opens a window, but there is no display. For matplotlib, set {how}; \
            otherwise disable that part."
        ),
    )
}

/// Trackers that ask for a key.
pub(super) fn not_logged_in(seen: &Seen) -> Option<Advice> {
    let of_wandb = seen.says(&[
        "api_key not configured (no-tty)",
        "No API key configured. Use `wandb login`",
        "wandb.login()",
    ]) || (seen.failure.error_type.starts_with("wandb.")
        && seen.says(&["API key", "api_key", "not logged in"]));
    let of_comet = seen.failure.error_type.starts_with("comet_ml.")
        && seen.says(&["API key", "api key"])
        || seen.says(&["Comet.ml requires an API key", "Comet requires an API key"]);
    let of_neptune = seen.comes_from(&["NeptuneMissingApiTokenException"]);
    let (name, variable, value) = if of_wandb {
        ("Weights & Biases", "WANDB_MODE", "disabled")
    } else if of_comet {
        ("Comet", "COMET_MODE", "disabled")
    } else if of_neptune {
        ("Neptune", "NEPTUNE_MODE", "debug")
    } else {
        return None;
    };
    let how = seen.run.with_variable(seen.reader, variable, value);
    seen.because(
        "not-logged-in",
        format!(
            "The program logs to {name}, but is not logged in. Profiling needs no tracker: set \
            {how}."
        ),
    )
}

/// Writing that our own redirection or the file system refuses.
pub(super) fn write_refused(seen: &Seen) -> Option<Advice> {
    let errno = seen.errno();
    let is_refused = ["EACCES", "EROFS", "EPERM"].contains(&errno) || seen.is(&["PermissionError"]);
    if is_refused && seen.run.writes_denied {
        let how = match seen.reader {
            Reader::Terminal => "`--side-effects redirect`",
            Reader::Editor => "`side_effects = \"redirect\"` in ridgeline.toml",
        };
        return seen.because(
            "write-denied",
            format!(
                "The run may not write files because `side_effects` is `deny`. With {how} the \
                program can write, and nothing is kept on disk. `keep_writes` in ridgeline.toml \
                lists folders it may still write to."
            ),
        );
    }
    let how = match seen.reader {
        Reader::Terminal => "`--side-effects allow`",
        Reader::Editor => "`side_effects = \"allow\"` in ridgeline.toml",
    };
    match errno {
        "EXDEV" => seen.because(
            "write-redirected",
            format!(
                "Files written by a profiled run go to a temporary folder, so `os.rename` and \
                `os.replace` cannot move files between the project and a kept folder. Use \
                `shutil.move`, run with {how}, or add both folders to `keep_writes`."
            ),
        ),
        "EROFS" => seen.because(
            "write-redirected",
            format!(
                "This path is read-only for the run, because Ridgeline could not redirect writes \
                there. Add the folder to `keep_writes` in ridgeline.toml, or run with {how}."
            ),
        ),
        _ => None,
    }
}

/// No room.
pub(super) fn disk_full(seen: &Seen) -> Option<Advice> {
    if seen.errno() != "ENOSPC" {
        return None;
    }
    let how = match seen.reader {
        Reader::Terminal => "`--side-effects allow`",
        Reader::Editor => "`side_effects = \"allow\"` in ridgeline.toml",
    };
    seen.because(
        "disk-full",
        format!(
            "The disk that the program writes to is full. A profiled run writes to a temporary \
            folder in Ridgeline's cache or /var/tmp, or in memory if no disk is available (in a \
            container). Free some space, add the folder to `keep_writes`, or run with {how}."
        ),
    )
}
