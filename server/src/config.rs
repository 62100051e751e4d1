//! What a project says about its runs: `ridgeline.toml`, or `[tool.ridgeline]` in `pyproject.toml`.
//!
//! The file comes from the project and is read before anyone trusts it, so it is bounded in size,
//! every value is checked, and every error says file, line and what is allowed. The published
//! schema `docs/ridgeline.schema.json` is made from these types; a test holds the two equal.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// The name of the file that holds nothing else.
pub const FILE_NAME: &str = "ridgeline.toml";
/// The file of which we read `[tool.ridgeline]`.
pub const PYPROJECT: &str = "pyproject.toml";
/// A configuration larger than this is refused unread, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The configuration of one project, as written. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Ridgeline's configuration of a project")]
pub struct Config {
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
    /// The folder that the program runs in, relative to this file. Default: this file's folder.
    pub working_directory: Option<PathInside>,
    /// The Python to run with: a path (a relative one is relative to this file) of an interpreter
    /// or of a virtual environment's folder.
    pub python: Option<PathBuf>,
    /// Where to run: `auto` (a GPU where there is one), `cpu`, `cuda`, or one GPU such as `cuda:1`.
    pub device: DeviceChoice,
    /// The batch size that a provider file is asked for. Plain scripts keep their own.
    pub batch_size: Option<Count<1, 16_777_216>>,
    /// What counts as the project's own code: costs are shown on its lines.
    pub user_code: UserCode,
    /// How many iterations run, and how they are found.
    pub iterations: Iterations,
    /// When a run is stopped.
    pub limits: Limits,
}

/// What counts as the project's own code.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserCode {
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
pub struct Iterations {
    /// Iterations before anything is measured.
    pub warmup: Count<0, 1000>,
    /// Iterations whose time is taken without a profiler.
    pub timed: Count<1, 1000>,
    /// Iterations that the profiler watches, for the shares of lines and for memory.
    pub profiled: Count<1, 20>,
    /// How iterations of a plain script are found. Default: by the optimizer's steps; without an
    /// optimizer by `backward`, and without that by calls of the outermost module.
    pub found_by: Option<FoundBy>,
}

impl Default for Iterations {
    fn default() -> Iterations {
        Iterations { warmup: Count(2), timed: Count(3), profiled: Count(2), found_by: None }
    }
}

/// How iterations of a plain script are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FoundBy {
    /// By the optimizers' steps.
    Optimizer,
    /// By calls of `backward`.
    Backward,
    /// By calls of the outermost module.
    Module,
}

impl FoundBy {
    /// As the agent's protocol names it.
    pub fn name(self) -> &'static str {
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
pub struct Limits {
    /// Seconds that a whole run may take, imports included. Default: 120.
    pub seconds: Option<Count<1, 86_400>>,
    /// Memory of the machine that the program may use: bytes, or text such as `"16 GB"`. Default:
    /// no limit beyond the machine's.
    pub memory: Option<Size>,
}

/// A whole number between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Count<MIN, MAX> {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The number, moved into the bounds.
    pub fn clamped(value: u32) -> Count<MIN, MAX> {
        Count(value.clamp(MIN, MAX))
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = i64::deserialize(deserializer)?;
        match u32::try_from(value) {
            Ok(count) if (MIN..=MAX).contains(&count) => Ok(Count(count)),
            _ => Err(de::Error::custom(format!("{value} is not between {MIN} and {MAX}"))),
        }
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Count<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Count_{MIN}_{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

/// A size in bytes, written as a number or as `"16 GB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// The number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    fn parse(text: &str) -> Option<Size> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let scale = match unit.trim() {
            "" | "B" => 1.0,
            "kB" | "KB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            "TB" => 1e12,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        let bytes = number.parse::<f64>().ok()? * scale;
        // A float to integer cast saturates; what is beyond an exabyte is a slip of the hand.
        (1.0..=1e18).contains(&bytes).then_some(Size(bytes as u64))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl de::Visitor<'_> for SizeVisitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or text such as \"16 GB\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Size, E> {
                match u64::try_from(value) {
                    Ok(bytes) if bytes > 0 => Ok(Size(bytes)),
                    _ => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
                }
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(&clipped(text)), &self))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": r"^[0-9.]+ *(B|[kK]B|MB|GB|TB|KiB|MiB|GiB)?$"}
        ]})
    }
}

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU where there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU that torch takes by itself.
    Cuda,
    /// One GPU, by torch's index.
    CudaIndex(u16),
}

impl DeviceChoice {
    /// Reads `auto`, `cpu`, `cuda` or `cuda:1`.
    pub fn parse(text: &str) -> Option<DeviceChoice> {
        match text {
            "auto" => Some(DeviceChoice::Auto),
            "cpu" => Some(DeviceChoice::Cpu),
            "cuda" => Some(DeviceChoice::Cuda),
            _ => {
                let index = text.strip_prefix("cuda:")?;
                let digits = !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| index.parse().ok()).flatten().map(DeviceChoice::CudaIndex)
            }
        }
    }
}

/// What `device` may be, for messages.
pub const DEVICES: &str = "`auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`";

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda => f.write_str("cuda"),
            DeviceChoice::CudaIndex(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DeviceChoice::parse(&text).ok_or_else(|| {
            de::Error::custom(format!("`{}` is no device: it is {DEVICES}", clipped(&text)))
        })
    }
}

impl JsonSchema for DeviceChoice {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Device".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^(auto|cpu|cuda|cuda:[0-9]{1,5})$"})
    }
}

/// A path below the project's root. Absolute paths and ways out (`../other`) are refused when the
/// file is read; links that lead out are refused when the path is used (see [`inside`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInside(PathBuf);

impl PathInside {
    /// The path, relative to the root, without `.` and `..`.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    fn parse(text: &str) -> Result<PathInside, String> {
        let shown = clipped(text);
        if text.is_empty() || text.contains('\0') {
            return Err("the path is empty or has a NUL byte".to_owned());
        }
        let mut path = PathBuf::new();
        for component in Path::new(text).components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => path.push(name),
                Component::ParentDir => {
                    if !path.pop() {
                        return Err(format!("`{shown}` leads out of the project"));
                    }
                }
                Component::RootDir | Component::Prefix(_) => {
                    return Err(format!(
                        "`{shown}` is absolute: write it relative to the project's folder"
                    ));
                }
            }
        }
        Ok(PathInside(path))
    }
}

impl<'de> Deserialize<'de> for PathInside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PathInside::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for PathInside {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

/// A dotted Python name: `package.train`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleName(String);

impl ModuleName {
    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ModuleName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let identifier = |part: &str| {
            !part.is_empty()
                && !part.starts_with(|c: char| c.is_numeric())
                && part.chars().all(|c| c == '_' || c.is_alphanumeric())
        };
        if name.split('.').all(identifier) {
            Ok(ModuleName(name))
        } else {
            Err(de::Error::custom(format!("`{}` is no name of a Python module", clipped(&name))))
        }
    }
}

impl JsonSchema for ModuleName {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "ModuleName".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

/// One argument of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument(String);

impl Argument {
    /// The argument as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\0') {
            return Err(de::Error::custom("an argument cannot have a NUL byte"));
        }
        Ok(Argument(text))
    }
}

impl JsonSchema for Argument {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Argument".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

/// Environment variables for the program. Their values may be secrets, so `Debug` names the
/// variables alone and no message ever quotes a value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Names and values.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Variables;
        impl<'de> de::Visitor<'de> for Variables {
            type Value = Environment;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of NAME = \"value\"")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Environment, A::Error> {
                let mut variables = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name.is_empty() || name.contains(['=', '\0']) {
                        return Err(de::Error::custom(format!(
                            "`{}` is no name of an environment variable",
                            clipped(&name)
                        )));
                    }
                    let EnvironmentValue(value) = map.next_value()?;
                    variables.insert(name, value);
                }
                Ok(Environment(variables))
            }
        }
        deserializer.deserialize_map(Variables)
    }
}

impl JsonSchema for Environment {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Environment".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": {"type": "string"}})
    }
}

/// A string whose errors do not quote it, unlike those that serde makes.
struct EnvironmentValue(String);

impl<'de> Deserialize<'de> for EnvironmentValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;
        impl<'de> de::Visitor<'de> for Value {
            type Value = EnvironmentValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text in quotes")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<EnvironmentValue, E> {
                if text.contains('\0') {
                    return Err(E::custom("a value cannot have a NUL byte"));
                }
                Ok(EnvironmentValue(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<EnvironmentValue, E> {
                Err(E::custom("the value of an environment variable has to be text in quotes"))
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<EnvironmentValue, E> {
                self.visit_i64(0)
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<EnvironmentValue, E> {
                self.visit_i64(0)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, _: A) -> Result<EnvironmentValue, A::Error> {
                self.visit_i64(0)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, _: A) -> Result<EnvironmentValue, A::Error> {
                self.visit_i64(0)
            }
        }
        deserializer.deserialize_any(Value)
    }
}

/// A configuration and where it was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// What it says; the defaults where there is none.
    pub config: Config,
    /// The file it came from.
    pub file: Option<PathBuf>,
    /// What the person should know: that a second configuration was passed over.
    pub notes: Vec<String>,
}

/// A configuration that cannot be used. It displays as `FILE:LINE: what is wrong`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {message}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where it is known.
    pub line: Option<u32>,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// Reads the configuration of the project at `root`. `ridgeline.toml` wins over `pyproject.toml`.
///
/// # Errors
/// When the file that counts cannot be read, is too large, or says something that is not allowed.
pub fn load(root: &Path) -> Result<Loaded, ConfigError> {
    let own_file = root.join(FILE_NAME);
    let pyproject_file = root.join(PYPROJECT);
    let own = read_bounded(&own_file)?;
    let pyproject = read_bounded(&pyproject_file);
    if let Some(text) = own {
        let config = parse(&text).map_err(|error| error.at(&own_file))?;
        // A broken pyproject.toml is no reason to refuse a configuration that stands elsewhere.
        let passed_over = pyproject.ok().flatten().is_some_and(
            |text| matches!(parse_pyproject(&text), Ok(Some(_)) | Err(_) if has_table(&text)),
        );
        let notes = passed_over
            .then(|| format!("{FILE_NAME} is used; [tool.ridgeline] in {PYPROJECT} is passed over"))
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

/// Whether `path` (relative to `root`) still lies below `root` once links are followed.
///
/// # Errors
/// Says what is wrong: it is not there, or it leads out.
pub fn inside(root: &Path, path: &Path) -> Result<PathBuf, String> {
    let full = root.join(path);
    let resolved = full
        .canonicalize()
        .map_err(|error| format!("`{}` cannot be found: {error}", path.display()))?;
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    if resolved.starts_with(&root) {
        Ok(full)
    } else {
        Err(format!("`{}` is a link that leads out of the project", path.display()))
    }
}

/// The published JSON schema of `ridgeline.toml`, as text that ends with a line end.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Config);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// A mistake within a file whose name the parser does not know.
#[derive(Debug)]
struct Mistake {
    line: Option<u32>,
    message: String,
}

impl Mistake {
    fn of(error: &toml::de::Error, text: &str) -> Mistake {
        let line = error.span().map(|span| {
            let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
            let ends = before.iter().filter(|byte| **byte == b'\n').count();
            u32::try_from(ends).unwrap_or(u32::MAX).saturating_add(1)
        });
        Mistake { line, message: error.message().to_owned() }
    }

    fn at(self, file: &Path) -> ConfigError {
        ConfigError { file: file.to_owned(), line: self.line, message: self.message }
    }
}

fn parse(text: &str) -> Result<Config, Mistake> {
    let config: Config = toml::from_str(text).map_err(|error| Mistake::of(&error, text))?;
    one_entry(config)
}

/// `[tool.ridgeline]` of a `pyproject.toml`; `None` where there is no such table.
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
        // A file that is not ours to judge: without our table its mistakes are not our concern.
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
        let message = format!(
            "`{}` exclude each other: give the one that is to be run",
            given.join("` and `")
        );
        return Err(Mistake { line: None, message });
    }
    Ok(config)
}

/// The file's text; `None` where there is no such file. A byte order mark is left out.
fn read_bounded(file: &Path) -> Result<Option<String>, ConfigError> {
    let wrong = |message: String| ConfigError { file: file.to_owned(), line: None, message };
    let unreadable = |error: io::Error| wrong(format!("cannot be read: {error}"));
    // Opening a named pipe would wait for ever, so what is no plain file is refused first.
    match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        Ok(metadata) if !metadata.is_file() => return Err(wrong("is no plain file".to_owned())),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    let source = File::open(file).map_err(unreadable)?;
    source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!(
            "is larger than {}: that is no configuration",
            ridgeline_analysis::units::bytes(MAX_FILE_BYTES as f64)
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

/// At most the first 60 characters, for messages about values of any length.
fn clipped(text: &str) -> String {
    const SHOWN: usize = 60;
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}
