//! Versions of Python and of packages that do not go together.

use super::{Advice, Reader, Seen, quoted};

/// Extensions that were compiled for NumPy 1.
pub(super) fn numpy_binary(seen: &Seen) -> Option<Advice> {
    let texts = &[
        "A module that was compiled using NumPy 1.x cannot be run in",
        "numpy.dtype size changed, may indicate binary incompatibility",
        "numpy.core.multiarray failed to import",
        "_ARRAY_API not found",
    ];
    // A warning of it is printed by programs that go on, so the exception has to be one of imports.
    let is_import = seen.is(&["ImportError", "ValueError", "AttributeError"]);
    if !(seen.says(texts) || is_import && seen.is(&["ImportError"]) && seen.printed(texts)) {
        return None;
    }
    let python = &seen.run.python;
    seen.because(
        "numpy-binary",
        format!(
            "A compiled package was built for another NumPy version, usually NumPy 1. Update that \
            package, or install the older NumPy: `{python} -m pip install \"numpy<2\"`."
        ),
    )
}

/// A name that the installed version of a package does not have.
pub(super) fn package_version(seen: &Seen) -> Option<Advice> {
    let module = seen.run.error.module.as_ref()?;
    let version = module.version.as_deref()?;
    let is_import = seen.is(&["ImportError"]) && seen.says(&["cannot import name "]);
    let is_part = seen.is(&["ModuleNotFoundError"]);
    let is_attribute = seen.is(&["AttributeError"]) && seen.says(&["has no attribute"]);
    if !(is_import || is_part || is_attribute) || seen.says(&["partially initialized module"]) {
        return None;
    }
    let package = module.name.split('.').next().unwrap_or(&module.name);
    let python = &seen.run.python;
    seen.because(
        "package-version",
        format!(
            "{} {version} is installed and does not have this name: the program was written for \
            another version. Check the program's requirements and install that version: `{python} \
            -m pip install \"{package}==…\"`.",
            quoted(package)
        ),
    )
}

/// What came to Python, with the version that it came with.
fn newer_syntax(line: &str, message: &str) -> Option<((u32, u32), &'static str)> {
    let is_match = line.starts_with("match ") && line.ends_with(':');
    let is_case = line.starts_with("case ") && line.ends_with(':');
    if is_match || is_case {
        return Some(((3, 10), "`match`"));
    }
    if line.starts_with("except*") || line.starts_with("except *") {
        return Some(((3, 11), "`except*`"));
    }
    let name_and_bracket = |keyword: &str| {
        let rest = line.strip_prefix(keyword)?.trim_start();
        rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .filter(|at| *at > 0)
            .map(|at| &rest[at..])
    };
    let has_parameters = ["def ", "async def ", "class "]
        .iter()
        .any(|keyword| name_and_bracket(keyword).is_some_and(|rest| rest.starts_with('[')));
    if has_parameters {
        return Some(((3, 12), "type parameters"));
    }
    let is_alias = name_and_bracket("type ").is_some_and(|rest| {
        rest.trim_start().starts_with(['=', '[']) && !rest.trim_start().starts_with("==")
    });
    if is_alias {
        return Some(((3, 12), "the `type` statement"));
    }
    if message.starts_with("f-string: ") {
        return Some(((3, 12), "nested quotes and backslashes in f-strings"));
    }
    if message.contains("multiple exception types must be parenthesized") {
        return Some(((3, 14), "`except` without parentheses"));
    }
    None
}

/// Syntax that this Python does not know yet.
pub(super) fn newer_python(seen: &Seen) -> Option<Advice> {
    if seen.failure.kind != "syntax" {
        return None;
    }
    let (since, what) = newer_syntax(&seen.run.source, &seen.failure.message)?;
    if seen.run.python_minor()? >= since {
        return None;
    }
    let other = match seen.reader {
        Reader::Terminal => "`--python PATH`, or `python` in ridgeline.toml",
        Reader::Editor => "the editor's choice of interpreter, or `python` in ridgeline.toml",
    };
    seen.because(
        "newer-python",
        format!(
            "This line requires Python {}.{} ({what}), but {} is Python {}. Choose a newer Python \
            with PyTorch: {other}.",
            since.0, since.1, seen.run.python, seen.run.python_version
        ),
    )
}

/// A program of before 2008.
pub(super) fn python_2(seen: &Seen) -> Option<Advice> {
    let texts =
        &["Missing parentheses in call to 'print'", "Missing parentheses in call to 'exec'"];
    if seen.failure.kind != "syntax" || !seen.says(texts) {
        return None;
    }
    seen.because(
        "python-2",
        "This is Python 2 code, which PyTorch no longer supports. Convert the program (`2to3` \
        lists the changes), or use a newer version of it.",
    )
}
