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

use ridgeline_analysis::predict::device_row::PriceRow;
use ridgeline_analysis::predict::device_spec::Price;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// The name of the file that holds nothing else.
pub const FILE_NAME: &str = "ridgeline.toml";
/// The file of which we read `[tool.ridgeline]`.
pub const PYPROJECT: &str = "pyproject.toml";
/// A configuration larger than this is refused unread, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How many characters of a wrong value a message quotes.
const SHOWN: usize = 60;

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
    /// GPUs that predictions are made for, beside those that Ridgeline knows, and their prices.
    pub devices: Devices,
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

/// GPUs that predictions are made for, and what they cost.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Devices {
    /// Files that each describe one GPU (docs/configuration.md), relative to this file.
    pub files: Vec<PathInside>,
    /// What an hour of a GPU costs in US dollars, by its name: a number, or a table of
    /// `usd_per_hour` and `date`. It stands for the price that Ridgeline knows.
    pub prices: BTreeMap<String, HourlyPrice>,
}

/// What an hour of a GPU costs: a number, or a table of `usd_per_hour` and `date`.
#[derive(Clone, Debug, PartialEq)]
pub struct HourlyPrice(Price);

impl HourlyPrice {
    /// The price.
    pub fn price(&self) -> &Price {
        &self.0
    }

    fn of<E: de::Error>(usd_per_hour: f64, date: Option<String>) -> Result<HourlyPrice, E> {
        let row = PriceRow { usd_per_hour, date, source: None };
        row.into_price().map(HourlyPrice).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for HourlyPrice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PriceVisitor;
        impl<'de> de::Visitor<'de> for PriceVisitor {
            type Value = HourlyPrice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("US dollars, or a table of `usd_per_hour` and `date`")
            }
            fn visit_i64<E: de::Error>(self, usd: i64) -> Result<HourlyPrice, E> {
                HourlyPrice::of(usd as f64, None)
            }
            fn visit_f64<E: de::Error>(self, usd: f64) -> Result<HourlyPrice, E> {
                HourlyPrice::of(usd, None)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<HourlyPrice, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Dated {
                    usd_per_hour: f64,
                    date: Option<String>,
                }
                let dated = Dated::deserialize(de::value::MapAccessDeserializer::new(map))?;
                HourlyPrice::of(dated.usd_per_hour, dated.date)
            }
        }
        deserializer.deserialize_any(PriceVisitor)
    }
}

impl JsonSchema for HourlyPrice {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "HourlyPrice".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "number", "minimum": 0},
            {
                "type": "object",
                "properties": {
                    "usd_per_hour": {"type": "number", "minimum": 0},
                    "date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}
                },
                "required": ["usd_per_hour"],
                "additionalProperties": false
            }
        ]})
    }
}

/// A whole number between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Count<MIN, MAX> {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> de::Visitor<'_> for CountVisitor<MIN, MAX> {
            type Value = Count<MIN, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number between {MIN} and {MAX}")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
                match u32::try_from(value) {
                    Ok(count) if (MIN..=MAX).contains(&count) => Ok(Count(count)),
                    _ => Err(E::invalid_value(de::Unexpected::Signed(value), &self)),
                }
            }
        }
        deserializer.deserialize_i64(CountVisitor)
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

    /// Reads `16 GB`; nothing where it is no size.
    pub fn parse(text: &str) -> Option<Size> {
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
                Size::parse(text).ok_or_else(|| {
                    E::invalid_value(de::Unexpected::Str(&clipped(text, SHOWN)), &self)
                })
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
            de::Error::custom(format!("`{}` is no device: it is {DEVICES}", clipped(&text, SHOWN)))
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
        let shown = clipped(text, SHOWN);
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
            Err(de::Error::custom(format!(
                "`{}` is no name of a Python module",
                clipped(&name, SHOWN)
            )))
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

/// Serde's own errors quote what they found, which may be a secret here.
macro_rules! refuse_without_quoting {
    ($message:literal) => {
        fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
            Err(E::custom($message))
        }
        fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
            Err(E::custom($message))
        }
        fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
            Err(E::custom($message))
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
            Err(de::Error::custom($message))
        }
    };
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
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Environment, E> {
                Err(E::custom("the environment has to be a table of NAME = \"value\""))
            }
            refuse_without_quoting!("the environment has to be a table of NAME = \"value\"");
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Environment, A::Error> {
                let mut variables = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name.is_empty() || name.contains(['=', '\0']) {
                        return Err(de::Error::custom(format!(
                            "`{}` is no name of an environment variable",
                            clipped(&name, SHOWN)
                        )));
                    }
                    let EnvironmentValue(value) = map.next_value()?;
                    variables.insert(name, value);
                }
                Ok(Environment(variables))
            }
        }
        deserializer.deserialize_any(Variables)
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
            refuse_without_quoting!(
                "the value of an environment variable has to be text in quotes"
            );
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
        // Serde quotes keys and values of any length.
        const LONGEST: usize = 500;
        Mistake { line, message: clipped(error.message(), LONGEST) }
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

/// At most the first characters of a value of any length.
fn clipped(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// What a `ridgeline.toml` with this text gives: an error's text after the folder, or `ok`.
    #[track_caller]
    fn check(text: &str, expected: Expect) {
        check_files(&[(FILE_NAME, text)], expected);
    }

    #[track_caller]
    fn check_files(files: &[(&str, &str)], expected: Expect) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let said = match load(folder.path()) {
            Ok(loaded) => {
                let script = loaded.config.script.map(|script| script.0.display().to_string());
                format!("ok, script {script:?}, notes {:?}", loaded.notes)
            }
            Err(mut error) => {
                error.file = error.file.file_name().unwrap_or_default().into();
                error.to_string()
            }
        };
        expected.assert_eq(&said);
    }

    fn parsed(text: &str) -> Config {
        parse(text).expect("it is right")
    }

    #[test]
    fn everything_that_may_be_written() {
        let config = parsed(
            r#"
            script = "./src/../train.py"
            arguments = ["--epochs", "1"]
            working_directory = "."
            python = "~/envs/torch/bin/python"
            device = "cuda:1"
            batch_size = 32
            [environment]
            WANDB_MODE = "disabled"
            [user_code]
            paths = ["src"]
            exclude = ["src/vendor"]
            packages = ["transformers"]
            [iterations]
            warmup = 0
            timed = 5
            profiled = 1
            found_by = "backward"
            [limits]
            seconds = 60
            memory = "16 GB"
            [devices]
            files = ["gpus/ours.toml"]
            [devices.prices]
            T4 = 1
            "H100-SXM5-80GB" = { usd_per_hour = 2.2, date = "2026-11-01" }
            "#,
        );
        assert_eq!(config.script, Some(PathInside("train.py".into())));
        assert_eq!(config.device, DeviceChoice::CudaIndex(1));
        assert_eq!(config.iterations.timed.get(), 5);
        assert_eq!(config.limits.memory, Some(Size(16_000_000_000)));
        assert_eq!(config.environment.variables()["WANDB_MODE"], "disabled");
        assert_eq!(config.devices.prices["T4"].price().usd_per_hour, 1.0);
        let dated = config.devices.prices["H100-SXM5-80GB"].price();
        assert_eq!((dated.usd_per_hour, dated.date.as_deref()), (2.2, Some("2026-11-01")));
    }

    #[test]
    fn prices_that_cannot_be() {
        check(
            "[devices.prices]\nT4 = -1\n",
            expect![[r#"ridgeline.toml:2: `usd_per_hour`: it is a number between 0 and 1000000"#]],
        );
        check(
            "[devices.prices]\nT4 = nan\n",
            expect![[r#"ridgeline.toml:2: `usd_per_hour`: it is a number between 0 and 1000000"#]],
        );
        check(
            "[devices.prices]\nT4 = { usd_per_hour = 1, date = \"today\" }\n",
            expect![[r#"ridgeline.toml:2: `date`: it is a day such as `2026-11-20`"#]],
        );
        check(
            "[devices.prices]\nT4 = \"cheap\"\n",
            expect![[
                r#"ridgeline.toml:2: invalid type: string "cheap", expected US dollars, or a table of `usd_per_hour` and `date`"#
            ]],
        );
    }

    #[test]
    fn nothing_written_means_the_defaults() {
        assert_eq!(parsed(""), Config::default());
        check_files(&[], expect!["ok, script None, notes []"]);
    }

    #[test]
    fn unknown_keys_name_the_known_ones() {
        check(
            "[iterations]\nwarm_up = 3\n",
            expect![
                "ridgeline.toml:2: unknown field `warm_up`, expected one of `warmup`, `timed`, `profiled`, `found_by`"
            ],
        );
        check(
            "\nscrpt = \"train.py\"\n",
            expect![
                "ridgeline.toml:2: unknown field `scrpt`, expected one of `script`, `module`, `provider`, `arguments`, `environment`, `working_directory`, `python`, `device`, `batch_size`, `user_code`, `iterations`, `limits`, `devices`"
            ],
        );
    }

    #[test]
    fn wrong_types_and_bounds() {
        check(
            "script = 3\n",
            expect!["ridgeline.toml:1: invalid type: integer `3`, expected a string"],
        );
        check(
            "[iterations]\ntimed = 0\n",
            expect![
                "ridgeline.toml:2: invalid value: integer `0`, expected a whole number between 1 and 1000"
            ],
        );
        check(
            "[iterations]\ntimed = -9223372036854775808\n",
            expect![
                "ridgeline.toml:2: invalid value: integer `-9223372036854775808`, expected a whole number between 1 and 1000"
            ],
        );
        check(
            "batch_size = 1.5\n",
            expect![
                "ridgeline.toml:1: invalid type: floating point `1.5`, expected a whole number between 1 and 16777216"
            ],
        );
        check(
            "device = \"gpu\"\n",
            expect![
                "ridgeline.toml:1: `gpu` is no device: it is `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`"
            ],
        );
        check(
            "[limits]\nmemory = \"lots\"\n",
            expect![[
                r#"ridgeline.toml:2: invalid value: string "lots", expected a number of bytes, or text such as "16 GB""#
            ]],
        );
        check(
            "[limits]\nmemory = \"1e99 GB\"\n",
            expect![[
                r#"ridgeline.toml:2: invalid value: string "1e99 GB", expected a number of bytes, or text such as "16 GB""#
            ]],
        );
        check(
            "module = \"a..b\"\n",
            expect!["ridgeline.toml:1: `a..b` is no name of a Python module"],
        );
    }

    #[test]
    fn paths_stay_inside() {
        check(
            "script = \"../other/train.py\"\n",
            expect!["ridgeline.toml:1: `../other/train.py` leads out of the project"],
        );
        check(
            "script = \"/etc/passwd\"\n",
            expect![
                "ridgeline.toml:1: `/etc/passwd` is absolute: write it relative to the project's folder"
            ],
        );
        check(
            "script = \"a/../../b\"\n",
            expect!["ridgeline.toml:1: `a/../../b` leads out of the project"],
        );
        check(
            "script = \"a\\u0000b\"\n",
            expect!["ridgeline.toml:1: the path is empty or has a NUL byte"],
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_inside() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::os::unix::fs::symlink("/", folder.path().join("out")).expect("a link");
        std::fs::write(folder.path().join("train.py"), "").expect("written");
        assert!(inside(folder.path(), Path::new("train.py")).is_ok());
        assert!(inside(folder.path(), Path::new("gone.py")).is_err());
        let error = inside(folder.path(), Path::new("out/bin")).expect_err("it leads out");
        assert_eq!(error, "`out/bin` is a link that leads out of the project");
    }

    #[test]
    fn one_program_alone() {
        check(
            "script = \"a.py\"\nmodule = \"a\"\n",
            expect![
                "ridgeline.toml: `script` and `module` exclude each other: give the one that is to be run"
            ],
        );
    }

    #[test]
    fn values_of_the_environment_are_never_told() {
        for text in [
            "[environment]\nTOKEN = 12345678\n",
            "[environment]\nTOKEN = [\"12345678\"]\n",
            "[environment]\nTOKEN = \"1234\\u00005678\"\n",
            "[environment]\n\"TOKEN=\" = \"12345678\"\n",
            "environment = \"12345678\"\n",
        ] {
            let error = parse(text).expect_err(text).message;
            assert!(!error.contains("1234"), "{error}");
        }
        let config = parsed("[environment]\nTOKEN = \"12345678\"\n");
        let shown = format!("{config:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("12345678"), "{shown}");
    }

    #[test]
    fn pyproject() {
        let ours = "[project]\nname = \"x\"\n[tool.ridgeline]\nscript = \"train.py\"\n";
        check_files(&[(PYPROJECT, ours)], expect![[r#"ok, script Some("train.py"), notes []"#]]);
        check_files(
            &[(PYPROJECT, "[project]\nname = \"x\"\n")],
            expect!["ok, script None, notes []"],
        );
        check_files(
            &[(PYPROJECT, "[tool.ridgeline]\n\nscrpt = 1\n")],
            expect![
                "pyproject.toml:3: unknown field `scrpt`, expected one of `script`, `module`, `provider`, `arguments`, `environment`, `working_directory`, `python`, `device`, `batch_size`, `user_code`, `iterations`, `limits`, `devices`"
            ],
        );
        check_files(
            &[(PYPROJECT, "[tool.other]\nbroken = = 1\n")],
            expect!["ok, script None, notes []"],
        );
        check_files(&[(PYPROJECT, "tool = 3\n")], expect!["ok, script None, notes []"]);
    }

    #[test]
    fn ridgeline_toml_wins() {
        let ours = (FILE_NAME, "script = \"a.py\"\n");
        check_files(
            &[ours, (PYPROJECT, "[tool.ridgeline]\nscript = \"b.py\"\n")],
            expect![[
                r#"ok, script Some("a.py"), notes ["ridgeline.toml is used; [tool.ridgeline] in pyproject.toml is passed over"]"#
            ]],
        );
        check_files(
            &[ours, (PYPROJECT, "[tool.ridgeline]\nscrpt = 1\n")],
            expect![[
                r#"ok, script Some("a.py"), notes ["ridgeline.toml is used; [tool.ridgeline] in pyproject.toml is passed over"]"#
            ]],
        );
        check_files(
            &[ours, (PYPROJECT, "[tool.other]\n")],
            expect![[r#"ok, script Some("a.py"), notes []"#]],
        );
    }

    #[test]
    fn hostile_files() {
        check(&"k".repeat(900_000), expect!["ridgeline.toml:1: key with no value, expected `=`"]);
        check(
            &"#".repeat(2_000_000),
            expect!["ridgeline.toml: is larger than 1.0 MB: that is no configuration"],
        );
        check(
            &format!("script = {}", "[".repeat(20_000)),
            expect!["ridgeline.toml:1: cannot recurse further; max recursion depth met"],
        );
        check(
            &format!("{}x = 1\n", "a.".repeat(20_000)),
            expect!["ridgeline.toml: recursion limit"],
        );
        check("\u{feff}script = \"a.py\"\r\n", expect![[r#"ok, script Some("a.py"), notes []"#]]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join(FILE_NAME), b"\n\n\xff\xfe").expect("written");
        let error = load(folder.path()).expect_err("it is no text");
        assert_eq!((error.line, error.message.as_str()), (Some(3), "is not UTF-8"));
        std::fs::remove_file(folder.path().join(FILE_NAME)).expect("removed");
        std::fs::create_dir(folder.path().join(FILE_NAME)).expect("a folder");
        assert_eq!(load(folder.path()).expect_err("it is no file").message, "is no plain file");
    }

    /// The JSON schema of `ridgeline.toml`, as it is published.
    fn schema() -> String {
        let schema = schemars::schema_for!(Config);
        let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
        format!("{text}\n")
    }

    #[test]
    fn the_page_names_every_key() {
        let page = include_str!("../../docs/configuration.md");
        let schema: serde_json::Value = serde_json::from_str(&schema()).expect("it is JSON");
        let keys = |pointer: &str| -> Vec<String> {
            let table = schema.pointer(pointer).and_then(serde_json::Value::as_object);
            table.expect(pointer).keys().cloned().collect()
        };
        let tables = [
            ("UserCode", "user_code"),
            ("Iterations", "iterations"),
            ("Limits", "limits"),
            ("Devices", "devices"),
        ];
        let mut all = keys("/properties");
        all.retain(|key| !tables.iter().any(|(_, table)| key == table));
        for (definition, table) in tables {
            let inner = keys(&format!("/$defs/{definition}/properties"));
            all.extend(inner.into_iter().map(|key| format!("{table}.{key}")));
        }
        for key in &all {
            assert!(page.contains(&format!("| `{key}` |")), "{key}");
        }
        assert_eq!(page.matches("\n| `").count(), all.len(), "the page has a key too many");
    }

    /// With `UPDATE_SCHEMA=1` in the environment it writes the file instead.
    #[test]
    fn the_published_schema_is_that_of_the_code() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ridgeline.schema.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&file, schema()).expect("written");
        }
        let published = std::fs::read_to_string(&file).expect("it is published");
        assert_eq!(published, schema(), "run this test with UPDATE_SCHEMA=1");
    }
}
