//! Finds a project's configuration and reads it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Config, clipped};

/// The name of the dedicated configuration file.
pub(crate) const FILE_NAME: &str = "ridgeline.toml";
/// The file whose `[tool.ridgeline]` table is read.
pub(crate) const PYPROJECT: &str = "pyproject.toml";
/// The maximum size of a configuration file, in bytes. Larger files are refused without reading
/// them.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A configuration and where it was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Loaded {
    /// The parsed configuration, or the defaults if there is no file.
    pub config: Config,
    pub file: Option<PathBuf>,
    /// Notes for the user: a second configuration was ignored.
    pub notes: Vec<String>,
}

/// An invalid configuration. Displays as `FILE:LINE: message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {message}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub(crate) struct ConfigError {
    pub file: PathBuf,
    /// The line, 1-based, if known.
    pub line: Option<u32>,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// Reads the configuration of the project at `root`. `ridgeline.toml` takes precedence over
/// `pyproject.toml`.
///
/// # Errors
/// If the configuration file cannot be read, is too large, or is invalid.
pub(crate) fn load(root: &Path) -> Result<Loaded, ConfigError> {
    let own_file = root.join(FILE_NAME);
    let pyproject_file = root.join(PYPROJECT);
    let own = read_bounded(&own_file)?;
    let pyproject = read_bounded(&pyproject_file);
    if let Some(text) = own {
        let config = parse(&text).map_err(|error| error.at(&own_file))?;
        // A broken pyproject.toml does not invalidate a ridgeline.toml.
        let passed_over = pyproject.ok().flatten().is_some_and(
            |text| matches!(parse_pyproject(&text), Ok(Some(_)) | Err(_) if has_table(&text)),
        );
        let notes = passed_over
            .then(|| format!("using {FILE_NAME}; [tool.ridgeline] in {PYPROJECT} is ignored"))
            .into_iter()
            .collect();
        return Ok(Loaded { config, file: Some(own_file), notes });
    }
    if let Some(text) = pyproject?
        && let Some(config) = parse_pyproject(&text).map_err(|error| error.at(&pyproject_file))?
    {
        return Ok(Loaded { config, file: Some(pyproject_file), notes: Vec::new() });
    }
    Ok(Loaded::default())
}

/// An error in the text of a file. The parser does not know the file's name.
#[derive(Debug)]
pub(super) struct Mistake {
    line: Option<u32>,
    pub(super) message: String,
}

impl Mistake {
    fn of(error: &toml::de::Error, text: &str) -> Mistake {
        let line = error.span().map(|span| {
            let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
            let ends = before.iter().filter(|byte| **byte == b'\n').count();
            u32::try_from(ends).unwrap_or(u32::MAX).saturating_add(1)
        });
        // Serde quotes keys and values of any length.
        const MAX_CHARS: usize = 500;
        Mistake { line, message: clipped(error.message(), MAX_CHARS) }
    }

    fn at(self, file: &Path) -> ConfigError {
        ConfigError { file: file.to_owned(), line: self.line, message: self.message }
    }
}

pub(super) fn parse(text: &str) -> Result<Config, Mistake> {
    let config: Config = toml::from_str(text).map_err(|error| Mistake::of(&error, text))?;
    one_entry(config)
}

/// Parses `[tool.ridgeline]` of a `pyproject.toml`. Returns `None` if there is no such table.
fn parse_pyproject(text: &str) -> Result<Option<Config>, Mistake> {
    #[derive(Deserialize)]
    struct PyProject {
        tool: Option<Tool>,
    }
    #[derive(Deserialize)]
    struct Tool {
        ridgeline: Option<Config>,
    }
    let file: PyProject = match toml::from_str(text) {
        Ok(file) => file,
        // Syntax errors in a file without our table are not our concern.
        Err(_) if !has_table(text) => return Ok(None),
        Err(error) => return Err(Mistake::of(&error, text)),
    };
    file.tool.and_then(|tool| tool.ridgeline).map(one_entry).transpose()
}

fn has_table(text: &str) -> bool {
    text.lines().any(|line| {
        let line: String = line.chars().filter(|c| !c.is_whitespace() && *c != '"').collect();
        line.starts_with("[tool.ridgeline]") || line.starts_with("[tool.ridgeline.")
    })
}

fn one_entry(config: Config) -> Result<Config, Mistake> {
    let named = [
        ("script", config.script.is_some()),
        ("module", config.module.is_some()),
        ("provider", config.provider.is_some()),
    ];
    let given: Vec<&str> =
        named.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
    if given.len() > 1 {
        let message = format!("`{}` are mutually exclusive: keep only one", given.join("` and `"));
        return Err(Mistake { line: None, message });
    }
    Ok(config)
}

/// Reads a file, without its byte order mark. Returns `None` if it does not exist.
fn read_bounded(file: &Path) -> Result<Option<String>, ConfigError> {
    let wrong = |message: String| ConfigError { file: file.to_owned(), line: None, message };
    let unreadable = |error: io::Error| wrong(format!("cannot be read: {error}"));
    // Opening a named pipe would block forever, so anything but a regular file is refused first.
    match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        Ok(metadata) if !metadata.is_file() => {
            return Err(wrong("is not a regular file".to_owned()));
        }
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    let source = File::open(file).map_err(unreadable)?;
    source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!(
            "is larger than {}, too large for a configuration",
            ridgeline_analysis::base::units::bytes(MAX_FILE_BYTES as f64)
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        ConfigError {
            file: file.to_owned(),
            line: u32::try_from(line).ok(),
            message: "is not UTF-8".to_owned(),
        }
    })?;
    Ok(Some(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned)))
}
