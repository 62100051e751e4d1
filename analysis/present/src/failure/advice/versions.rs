//! Incompatible versions of Python and packages.

use super::imports::known_package;
use super::{Advice, Failed, Reader, quoted};

/// An extension was compiled for NumPy 1.
pub(super) fn numpy_binary(failed: &Failed) -> Option<Advice> {
    let texts = &[
        "A module that was compiled using NumPy 1.x cannot be run in",
        "numpy.dtype size changed, may indicate binary incompatibility",
        "numpy.core.multiarray failed to import",
        "_ARRAY_API not found",
    ];
    // Programs that continue print this as a warning, so require an exception that imports raise.
    let is_import = failed.is(&["ImportError", "ValueError", "AttributeError"]);
    if !(failed.message_contains(texts)
        || is_import && failed.is(&["ImportError"]) && failed.printed(texts))
    {
        return None;
    }
    let python = &failed.run.python;
    failed.because(
        "numpy-binary",
        format!(
            "A compiled package was built for another NumPy version, usually NumPy 1. Update that \
            package, or install the older NumPy: `{python} -m pip install \"numpy<2\"`."
        ),
    )
}

/// Code that an older protobuf compiler generated, in the program or in one of its packages.
pub(super) fn generated_protobuf(failed: &Failed) -> Option<Advice> {
    let texts =
        ["Descriptors cannot be created directly", "Descriptors cannot not be created directly"];
    if !failed.is(&["TypeError"]) || !failed.message_contains(&texts) {
        return None;
    }
    let python = &failed.run.python;
    let how =
        failed.run.with_variable(failed.reader, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
    failed.because(
        "package-version",
        format!(
            "A package contains code that was generated for protobuf 3. Install that version: \
            `{python} -m pip install \"protobuf<3.21\"`. Or keep yours and set {how}, which is slower."
        ),
    )
}

/// A module of a package is used as its attribute, and nothing imported it.
pub(super) fn module_not_imported(failed: &Failed) -> Option<Advice> {
    let name = failed.run.error.module.as_ref()?.not_imported.as_deref()?;
    failed.because(
        "module-not-imported",
        format!(
            "{} is a module, which has to be imported before it is used: add `import {name}`. Elsewhere, something \
            else may have imported it, such as Jupyter.",
            quoted(name)
        ),
    )
}

/// The installed version of a package lacks a name.
pub(super) fn package_version(failed: &Failed) -> Option<Advice> {
    let module = failed.run.error.module.as_ref()?;
    let version = module.version.as_deref()?;
    let is_import =
        failed.is(&["ImportError"]) && failed.message_contains(&["cannot import name "]);
    let is_part = failed.is(&["ModuleNotFoundError"]);
    let is_attribute =
        failed.is(&["AttributeError"]) && failed.message_contains(&["has no attribute"]);
    if !(is_import || is_part || is_attribute)
        || failed.message_contains(&["partially initialized module"])
    {
        return None;
    }
    let package = module.name.split('.').next().unwrap_or(&module.name);
    let python = &failed.run.python;
    failed.because(
        "package-version",
        format!(
            "{} {version} is installed and does not have this name: the program was written for \
            another version. Check the program's requirements and install that version: `{python} \
            -m pip install \"{package}==…\"`.",
            quoted(package)
        ),
    )
}

/// The program checks the version of PyTorch or of another package: `assert timm.__version__ == "0.3.2"`.
pub(super) fn asserted_version(failed: &Failed) -> Option<Advice> {
    let source = failed.run.source.trim_start();
    if !source.starts_with("assert") || !failed.is(&["AssertionError"]) {
        return None;
    }
    let (before, after) = source.split_once(".__version__")?;
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    let package = before.rsplit(|c| !is_in_name(c)).next().filter(|name| !name.is_empty())?;
    if package != "torch" {
        let package = match package {
            "np" => "numpy",
            "pd" => "pandas",
            "tf" => "tensorflow",
            module => known_package(module).unwrap_or(module),
        };
        let python = &failed.run.python;
        let version = after.trim_start().strip_prefix("==").and_then(|rest| {
            let rest = rest.trim_start();
            let rest = rest.strip_prefix(['"', '\''])?;
            rest.split(['"', '\'']).next().filter(|version| version.starts_with(char::is_numeric))
        });
        return failed.because(
            "package-version",
            format!(
                "The program requires another version of {}. Install it: `{python} -m pip install \
                \"{package}=={}\"`. Or remove this check, if the program runs without it.",
                quoted(package),
                version.unwrap_or("…")
            ),
        );
    }
    failed.because(
        "package-version",
        format!(
            "The program requires another version of PyTorch than {}. Choose an environment that \
            has it: {}. Or remove this check, if the program runs without it.",
            failed.run.torch,
            other_environment(failed)
        ),
    )
}

/// How to choose another environment.
fn other_environment(failed: &Failed) -> &'static str {
    match failed.reader {
        Reader::Terminal => "`--python PATH`, or `python` in ridgeline.toml",
        Reader::Editor => "the editor's choice of interpreter, or `python` in ridgeline.toml",
    }
}

/// Returns the Python version that introduced the syntax, and what the syntax is called.
fn newer_syntax(line: &str, message: &str) -> Option<((u32, u32), &'static str)> {
    let is_match = line.starts_with("match ") && line.ends_with(':');
    let is_case = line.starts_with("case ") && line.ends_with(':');
    if is_match || is_case {
        return Some(((3, 10), "`match`"));
    }
    if line.starts_with("except*") || line.starts_with("except *") {
        return Some(((3, 11), "`except*`"));
    }
    let after_name = |keyword: &str| {
        let rest = line.strip_prefix(keyword)?.trim_start();
        rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .filter(|at| *at > 0)
            .map(|at| &rest[at..])
    };
    let has_parameters = ["def ", "async def ", "class "]
        .iter()
        .any(|keyword| after_name(keyword).is_some_and(|rest| rest.starts_with('[')));
    if has_parameters {
        return Some(((3, 12), "type parameters"));
    }
    let is_alias = after_name("type ").is_some_and(|rest| {
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

/// The line uses syntax of a newer Python version.
pub(super) fn newer_python(failed: &Failed) -> Option<Advice> {
    if failed.failure.kind != "syntax" {
        return None;
    }
    let (since, what) = newer_syntax(&failed.run.source, &failed.failure.message)?;
    if failed.run.python_minor()? >= since {
        return None;
    }
    let other = other_environment(failed);
    failed.because(
        "newer-python",
        format!(
            "This line requires Python {}.{} ({what}), but {} is Python {}. Choose a newer Python \
            with PyTorch: {other}.",
            since.0, since.1, failed.run.python, failed.run.python_version
        ),
    )
}

/// The program is Python 2 code.
pub(super) fn python_2(failed: &Failed) -> Option<Advice> {
    let texts =
        &["Missing parentheses in call to 'print'", "Missing parentheses in call to 'exec'"];
    if failed.failure.kind != "syntax" || !failed.message_contains(texts) {
        return None;
    }
    failed.because(
        "python-2",
        "This is Python 2 code, which PyTorch no longer supports. Convert the program (`2to3` \
        lists the changes), or use a newer version of it.",
    )
}
