//! The editor's settings. `docs/settings.md` has the same table; a test compares the two.
//!
//! Settings come from `initializationOptions`, `workspace/configuration` and
//! `workspace/didChangeConfiguration`, and may have any form. An invalid value is ignored with a
//! warning, and does not affect the others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ridgeline_analysis::diagnose::severity::Severity;
use ridgeline_analysis::present::hints::{HintOptions, Since};
use ridgeline_analysis::present::lenses::LensOptions;
use serde_json::Value;

use crate::batch::SweepTrigger;
use crate::config::Size;
use crate::measured_rates::MeasureDevice;
use crate::state::Client;

pub(crate) const SECTION: &str = "ridgeline";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Whether a save profiles its project.
    pub run_on_save: bool,
    /// Whether a change by another program does so, too.
    pub watch_files: bool,
    /// The Python to run with; `None` to find it.
    pub interpreter: Option<PathBuf>,
    /// The device to run on; `None` to use the project's configuration.
    pub device: Option<String>,
    /// Inlay hints; `None` if they are disabled.
    pub hints: Option<HintOptions>,
    /// Code lenses; `None` if they are disabled.
    pub lenses: Option<LensOptions>,
    /// Whether hovers are shown.
    pub hover: bool,
    pub explore_batch: SweepTrigger,
    /// Whether other batch sizes are run after each measurement.
    pub measure_batches: bool,
    /// Time limit of background work after each measurement.
    pub background: Duration,
    /// Limit on the memory of an iteration, in bytes.
    pub batch_memory_limit: Option<u64>,
    /// Whether failures are shown as diagnostics.
    pub diagnostics: bool,
    /// The lowest severity of findings to show; `None` if they are disabled.
    pub findings: Option<Severity>,
    /// Whether costs are shown as diagnostics.
    pub remarks: bool,
    /// Whether unsaved code is estimated.
    pub live: bool,
    /// The pause in typing before an estimate.
    pub live_delay: Duration,
    /// Whether to estimate even if the system has no sandbox.
    pub live_without_sandbox: bool,
    /// The GPU to estimate for if this machine has none.
    pub target_gpu: Option<String>,
    pub measure_device: MeasureDevice,
    /// US dollars per hour, by GPU name.
    pub prices: BTreeMap<String, f64>,
}

/// The maximum number of prices read.
const PRICE_LIMIT: usize = 1000;

/// One row of the table of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The name within the section `ridgeline`, with dots.
    pub name: &'static str,
    /// The default, as JSON.
    pub default: &'static str,
    /// The description.
    pub what: &'static str,
}

/// All settings, in the order in which they are documented.
pub(crate) const TABLE: &[Setting] = &[
    row("runOnSave", "true", "Profile a project when you save one of its Python files."),
    row(
        "watchFiles",
        "true",
        "Also profile a project when another program changes one of its Python files, such as `git` or a formatter.",
    ),
    row(
        "interpreter",
        "null",
        "Path of the Python that runs the training script. By default, Ridgeline finds the project's own Python (`ridgeline doctor` shows which).",
    ),
    row(
        "device",
        "null",
        "Device to run on: `auto`, `cpu`, `cuda`, or one GPU such as `cuda:1`. By default, the project's configuration decides.",
    ),
    row(
        "live.enable",
        "true",
        "Estimate the cost of unsaved code when you pause typing. The code is simulated with fake tensors in a sandbox: it reads no data and writes nothing.",
    ),
    row(
        "live.delayMilliseconds",
        "250",
        "Milliseconds without typing before unsaved code is estimated.",
    ),
    row(
        "live.withoutSandbox",
        "false",
        "Estimate unsaved code even if the operating system cannot sandbox it (macOS, Windows, and Linux without Landlock; `ridgeline doctor --full` shows whether a sandbox is available). Half-typed code then runs with your permissions. In VS Code, a workspace cannot change this setting.",
    ),
    row(
        "targetGpu",
        "null",
        "GPU to estimate for if this machine has none, such as `H100-SXM5-80GB`.",
    ),
    row(
        "measureDevice",
        "\"ask\"",
        "Measure the copy bandwidth and GEMM rates of this machine's GPU after a run, once per driver version, to improve predictions: `ask`, `always` or `never`. Takes about 10 seconds and does not run project code.",
    ),
    row(
        "background.seconds",
        "15",
        "Seconds of background work allowed after each save, for timing single operators and estimating other batch sizes. Background work runs at low priority, stops when you type, and does not start while the machine is busy. `0` disables it. Commands are not limited.",
    ),
    row("inlayHints.enable", "true", "Show the time of each statement at the end of its line."),
    row(
        "inlayHints.minimumShare",
        "0.01",
        "Hide hints of statements below this share of the iteration time (0 to 1).",
    ),
    row(
        "inlayHints.minimumMicroseconds",
        "1",
        "Hide hints of statements that take less than this many microseconds per iteration.",
    ),
    row("inlayHints.definitions", "false", "Show the cost of each layer at its constructor."),
    row(
        "inlayHints.expressions",
        "false",
        "Show the time of each call and operator within a line that has several.",
    ),
    row(
        "inlayHints.headline",
        "\"auto\"",
        "Show the iteration time at the training loop: `on`, `off`, or `auto` (on in editors without code lenses).",
    ),
    row(
        "inlayHints.change",
        "\"off\"",
        "Show significant changes in hints, such as `4.2 ms · 8% ▲0.6`: compared with the `lastRun`, with the run of `head` (git's HEAD without local changes), or `off`.",
    ),
    row("codeLens.enable", "true", "Show code lenses above lines."),
    row(
        "codeLens.memory",
        "true",
        "Show a code lens with memory above lines that hold much of peak memory.",
    ),
    row(
        "codeLens.scopes",
        "true",
        "Show a code lens with the total time of each function and class.",
    ),
    row(
        "codeLens.headline",
        "true",
        "Show a code lens with throughput, iteration time and peak memory at the training loop.",
    ),
    row("codeLens.profile", "true", "Show a \"profile\" code lens at training scripts."),
    row("codeLens.panel", "true", "Show an \"open panel\" code lens at training loops."),
    row(
        "codeLens.oneALine",
        "false",
        "Merge all code lenses of a line into one, for editors that show only one per line.",
    ),
    row(
        "codeLens.minimumMemoryShare",
        "0.05",
        "Hide memory code lenses of lines below this share of peak memory (0 to 1).",
    ),
    row(
        "codeLens.minimumCapacityShare",
        "0.01",
        "Hide memory code lenses of lines below this share of the device's memory (0 to 1).",
    ),
    row(
        "codeLens.minimumScopeShare",
        "0.01",
        "Hide code lenses of functions and classes below this share of the iteration time (0 to 1).",
    ),
    row("hover.enable", "true", "Show the details of a line when you hover over it."),
    row(
        "batchSize.explore",
        "\"automatic\"",
        "When to estimate time and memory at other batch sizes: `automatic` (when the panel shows them) or `onDemand` (by command). Estimates do not run the program again.",
    ),
    row(
        "batchSize.measureInBackground",
        "false",
        "Also run programs with short runs at other batch sizes after each save. This adds several runs per save.",
    ),
    row(
        "batchSize.memoryLimit",
        "null",
        "Memory limit for finding the largest batch size that fits, such as `16 GB`. By default, the free memory of the device.",
    ),
    row(
        "findings.enable",
        "true",
        "Show performance problems at their lines, with their cost and, if an edit is safe, a quick fix.",
    ),
    row(
        "findings.minimum",
        "\"hint\"",
        "Lowest severity of findings to show: `hint` (all), `information` (1% or more of iteration time or peak memory) or `warning` (5% or more).",
    ),
    row("diagnostics.enable", "true", "Show errors of failed runs at the line that failed."),
    row(
        "diagnostics.costs",
        "\"auto\"",
        "Show the cost of the training loop and of the three most expensive lines as information diagnostics: `on`, `off`, or `auto` (on in editors that cannot refresh inlay hints).",
    ),
    row(
        "prices",
        "{}",
        "GPU prices in US dollars per hour, such as `{\"T4\": 0.3}`. They override the built-in prices and those of the project.",
    ),
];

const fn row(name: &'static str, default: &'static str, what: &'static str) -> Setting {
    Setting { name, default, what }
}

impl Default for Settings {
    fn default() -> Settings {
        let lenses = LensOptions { panel: true, ..LensOptions::default() };
        Settings {
            run_on_save: true,
            watch_files: true,
            interpreter: None,
            device: None,
            hints: Some(HintOptions::default()),
            lenses: Some(lenses),
            hover: true,
            explore_batch: SweepTrigger::default(),
            measure_batches: false,
            background: Duration::from_secs(15),
            batch_memory_limit: None,
            findings: Some(Severity::Hint),
            diagnostics: true,
            remarks: false,
            live: true,
            live_delay: Duration::from_millis(250),
            live_without_sandbox: false,
            target_gpu: None,
            measure_device: MeasureDevice::Ask,
            prices: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Reads settings from the section itself, or from an object that contains it. Absent settings
    /// have their defaults, which may depend on the client's capabilities. The second value lists
    /// what was ignored and why.
    pub(crate) fn read(value: &Value, client: &Client) -> (Settings, Vec<String>) {
        // A client without settings for Ridgeline answers with none when it is asked. Its initial
        // settings still apply then.
        let mut reader = Reader {
            sections: [section_of(value), section_of(&client.options)],
            complaints: Vec::new(),
        };
        let hints = HintOptions {
            min_share: reader.share("inlayHints.minimumShare"),
            min_duration_ns: reader.number("inlayHints.minimumMicroseconds", 0.0, 1e12) * 1e3,
            definitions: reader.switch("inlayHints.definitions"),
            expressions: reader.switch("inlayHints.expressions"),
            headline: reader.automatic("inlayHints.headline", !client.shows_lenses),
            change: reader.change("inlayHints.change"),
        };
        let lenses = LensOptions {
            min_memory_share: reader.share("codeLens.minimumMemoryShare"),
            min_capacity_share: reader.share("codeLens.minimumCapacityShare"),
            min_scope_share: reader.share("codeLens.minimumScopeShare"),
            memory: reader.switch("codeLens.memory"),
            scopes: reader.switch("codeLens.scopes"),
            headline: reader.switch("codeLens.headline"),
            profile: reader.switch("codeLens.profile"),
            panel: reader.switch("codeLens.panel"),
            one_per_line: reader.switch("codeLens.oneALine"),
        };
        let settings = Settings {
            run_on_save: reader.switch("runOnSave"),
            watch_files: reader.switch("watchFiles"),
            interpreter: reader.text("interpreter").map(PathBuf::from),
            device: reader.text("device"),
            hints: reader.switch("inlayHints.enable").then_some(hints),
            lenses: reader.switch("codeLens.enable").then_some(lenses),
            hover: reader.switch("hover.enable"),
            explore_batch: reader.explore("batchSize.explore"),
            measure_batches: reader.switch("batchSize.measureInBackground"),
            background: Duration::from_secs_f64(reader.number("background.seconds", 0.0, 3600.0)),
            batch_memory_limit: reader.size("batchSize.memoryLimit"),
            findings: reader.findings(),
            diagnostics: reader.switch("diagnostics.enable"),
            remarks: reader.automatic(
                "diagnostics.costs",
                client.takes_diagnostics && !client.refreshes_hints,
            ),
            live: reader.switch("live.enable"),
            live_delay: Duration::from_secs_f64(
                reader.number("live.delayMilliseconds", 0.0, 60_000.0) / 1e3,
            ),
            live_without_sandbox: reader.switch("live.withoutSandbox"),
            target_gpu: reader.text("targetGpu"),
            measure_device: reader.measure_device("measureDevice"),
            prices: reader.prices("prices"),
        };
        (settings, reader.complaints)
    }
}

fn section_of(value: &Value) -> &Value {
    value.get(SECTION).filter(|section| section.is_object()).unwrap_or(value)
}

struct Reader<'a> {
    /// Values missing in the first are looked up in the second.
    sections: [&'a Value; 2],
    complaints: Vec<String>,
}

impl Reader<'_> {
    /// Reads the value at `a.b`. Editors write it nested, or with the dot in the key.
    fn value(&self, name: &str) -> Option<&Value> {
        self.sections.iter().find_map(|section| {
            let nested = name.split('.').try_fold(*section, |at, key| at.get(key));
            nested.or_else(|| section.get(name)).filter(|value| !value.is_null())
        })
    }

    fn switch(&mut self, name: &'static str) -> bool {
        let standard = default_of(name).as_bool().unwrap_or_default();
        match self.value(name) {
            None => standard,
            Some(Value::Bool(on)) => *on,
            Some(_) => self.complain(name, "true or false", standard),
        }
    }

    /// Reads a switch that the server decides unless the user does.
    fn automatic(&mut self, name: &'static str, automatic: bool) -> bool {
        match self.value(name) {
            None => automatic,
            Some(Value::Bool(on)) => *on,
            Some(value) => match value.as_str() {
                Some("auto") => automatic,
                Some("on") => true,
                Some("off") => false,
                _ => self.complain(name, "auto, on or off", automatic),
            },
        }
    }

    fn share(&mut self, name: &'static str) -> f64 {
        self.number(name, 0.0, 1.0)
    }

    fn number(&mut self, name: &'static str, least: f64, most: f64) -> f64 {
        let standard = default_of(name).as_f64().unwrap_or_default();
        match self.value(name).map(Value::as_f64) {
            None => standard,
            Some(Some(number)) if (least..=most).contains(&number) => number,
            Some(_) => self.complain(name, &format!("a number from {least} to {most}"), standard),
        }
    }

    fn explore(&mut self, name: &'static str) -> SweepTrigger {
        match self.value(name).map(Value::as_str) {
            None | Some(Some("automatic")) => SweepTrigger::Automatic,
            Some(Some("onDemand")) => SweepTrigger::OnDemand,
            Some(_) => self.complain(name, "automatic or onDemand", SweepTrigger::Automatic),
        }
    }

    fn measure_device(&mut self, name: &'static str) -> MeasureDevice {
        match self.value(name).map(Value::as_str) {
            None | Some(Some("ask")) => MeasureDevice::Ask,
            Some(Some("always")) => MeasureDevice::Always,
            Some(Some("never")) => MeasureDevice::Never,
            Some(_) => self.complain(name, "ask, always or never", MeasureDevice::Ask),
        }
    }

    fn findings(&mut self) -> Option<Severity> {
        let minimum = match self.value("findings.minimum").map(Value::as_str) {
            None | Some(Some("hint")) => Severity::Hint,
            Some(Some("information")) => Severity::Information,
            Some(Some("warning")) => Severity::Warning,
            Some(_) => {
                let allowed = "hint, information or warning";
                self.complain("findings.minimum", allowed, Severity::Hint)
            }
        };
        self.switch("findings.enable").then_some(minimum)
    }

    fn change(&mut self, name: &'static str) -> Since {
        match self.value(name).map(Value::as_str) {
            None | Some(Some("off")) => Since::Off,
            Some(Some("lastRun")) => Since::LastRun,
            Some(Some("head")) => Since::Head,
            Some(_) => self.complain(name, "off, lastRun or head", Since::Off),
        }
    }

    /// Reads a size in bytes, written as in a project's configuration. Empty text means none.
    fn size(&mut self, name: &'static str) -> Option<u64> {
        let value = self.value(name)?;
        if value.as_str().is_some_and(|text| text.trim().is_empty()) {
            return None;
        }
        match serde_json::from_value::<Size>(value.clone()) {
            Ok(size) => Some(size.bytes()),
            Err(_) => self.complain(name, "a size such as 16 GB", None),
        }
    }

    /// Reads a text. Empty text means none, because forms in editors cannot express it otherwise.
    fn text(&mut self, name: &'static str) -> Option<String> {
        match self.value(name) {
            None => None,
            Some(Value::String(text)) if text.trim().is_empty() => None,
            Some(Value::String(text)) if !text.contains('\0') => Some(text.clone()),
            Some(_) => self.complain(name, "text", None),
        }
    }

    /// Numbers by name. Invalid ones are ignored one by one.
    fn prices(&mut self, name: &'static str) -> BTreeMap<String, f64> {
        const HIGHEST_PRICE: f64 = 1e6;
        let table = match self.value(name) {
            None => return BTreeMap::new(),
            Some(Value::Object(table)) => table.clone(),
            Some(_) => return self.complain(name, "an object with numbers", BTreeMap::new()),
        };
        let mut prices = BTreeMap::new();
        for (gpu, usd) in table.into_iter().take(PRICE_LIMIT) {
            match usd.as_f64().filter(|usd| (0.0..=HIGHEST_PRICE).contains(usd)) {
                Some(usd) => {
                    prices.insert(gpu, usd);
                }
                None => {
                    let gpu: String = gpu.chars().take(60).collect();
                    self.complaints.push(format!(
                        "{SECTION}.{name}: the price of `{gpu}` must be a number in US dollars; it \
                        is ignored"
                    ));
                }
            }
        }
        prices
    }

    fn complain<T>(&mut self, name: &str, allowed: &str, standard: T) -> T {
        self.complaints.push(format!("{SECTION}.{name} must be {allowed}; using the default"));
        standard
    }
}

fn default_of(name: &str) -> Value {
    let text = TABLE.iter().find(|setting| setting.name == name).map(|setting| setting.default);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
