//! `ridgeline check [PATH]`: checks a run against budgets and a baseline, for continuous
//! integration.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ridgeline_analysis::compare::check::{
    Budgets, Check, CheckInput, Status, check, severity_named,
};
use ridgeline_analysis::compare::run::Run;
use ridgeline_analysis::diagnose::finding::{Finding, SourceLine};
use ridgeline_analysis::diagnose::severity::{Severity, severity};
use ridgeline_analysis::present::check as present;
use ridgeline_analysis::present::terminal::Style;
use serde::Serialize;

use super::CheckArgs;
use super::exit::{self, Failure};
use super::terminal::Terminal;
use super::{compare, output_file, profile, run, run_findings};
use crate::config::{self, Config, Launcher, Milliseconds, Percent, Size};
use crate::discover::project_root;
use crate::pipeline::{self, Pipeline};
use crate::profiler::Profiled;
use crate::store::Store;
use crate::{findings, what_if};

/// The findings of a run, highest cost first, or the reason why there are none.
type FindingsResult = Result<Vec<Finding>, String>;

/// The default number of timed iterations: enough to separate a change of a few percent from noise.
const DEFAULT_ITERATIONS: u32 = 7;

/// Output format of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for the terminal.
    Text,
    /// JSON, as described in docs/schema/check.schema.json.
    Json,
    /// SARIF 2.1.0, for GitHub code scanning and similar tools.
    Sarif,
    /// JUnit XML, for test reports.
    Junit,
    /// GitLab code quality report.
    CodeQuality,
}

/// Runs the subcommand. Naming the path on the command line is the user's consent to run it.
pub(super) fn run(args: &CheckArgs, terminal: &Terminal) -> Result<(), Failure> {
    // Report invalid arguments before anything runs.
    let options = CheckOptions::read(args)?;
    let launcher = profile::launcher(args.launcher.as_deref())?;
    let path = profile::absolute(profile::named(args.path.as_deref()))?;
    let store = run::open_store()?;
    let is_recording = pipeline::is_recording(&path);
    let root = match is_recording {
        true => project_root(&path, None),
        false => profile::project_of(&path),
    };
    let config = match is_recording {
        true => Config::default(),
        false => config::load(&root).map_err(|why| Failure::usage(why.to_string(), ""))?.config,
    };
    let budgets = options.budgets(&config);
    let baseline = options.baseline(args, &config, &root, &store)?;
    let judge = |profiled: &Profiled, found: FindingsResult| {
        check_findings(profiled, found, baseline.as_ref(), &budgets)
    };
    let checked = match is_recording {
        true => pipeline::open(&path)
            .map(|profiled| {
                let found = findings::of_run(&profiled, &what_if::recorded_run(&profiled));
                (judge(&profiled, found), profiled)
            })
            .map_err(|why| Failure::failed(format!("{}: {why}", path.display()), "")),
        false => of_program(args, launcher, &store, terminal, judge),
    };
    let (check, profiled) =
        checked.inspect_err(|failure| report_failure(args, failure, terminal))?;
    let check = if args.strict || config.check.strict { check.strict() } else { check };
    if let Some(file) = &args.write_baseline {
        write_baseline(&profiled, file)?;
    }
    // The project folder of a recording is unknown.
    let prefix = if is_recording { String::new() } else { prefix(&profiled.root) };
    write_result(args, &check, &prefix, terminal)?;
    match check.items.iter().filter(|item| item.status == Status::Broken).count() {
        0 => Ok(()),
        broken => {
            Err(Failure::failed(format!("{broken} of {} checks failed", check.items.len()), ""))
        }
    }
}

/// Runs a program, and repeats the run if it was too slow. A time that either run reaches is not a
/// regression.
fn of_program(
    args: &CheckArgs,
    launcher: Option<Launcher>,
    store: &Store,
    terminal: &Terminal,
    judge: impl Fn(&Profiled, FindingsResult) -> Check,
) -> Result<(Check, Profiled), Failure> {
    let mut request = profile::request(args.path.as_deref(), args.batch_size, &args.run)?;
    // A check asks nothing.
    request.takes_likeliest = true;
    request.overrides.launcher = launcher;
    request.overrides.min_iterations = DEFAULT_ITERATIONS;
    let pipeline = Pipeline::new(store.clone());
    run::block_on(|cancel| async move {
        let plan = pipeline.plan(request).await.map_err(run::failure_of)?;
        let profiled = run::run_plan(&pipeline, &plan, terminal, &cancel).await?;
        let look = async |profiled: &Profiled| {
            let recorded_run = what_if::recorded_run(profiled);
            run_findings::findings_of_new_run(&pipeline, &plan, profiled, &recorded_run, &cancel)
                .await
        };
        let mut check = judge(&profiled, look(&profiled).await?);
        if check.is_slow() {
            terminal.note("Over budget; measuring again to rule out noise.");
            let again = run::run_plan(&pipeline, &plan, terminal, &cancel).await?;
            check = check.confirmed(&judge(&again, look(&again).await?));
        }
        Ok((check, profiled))
    })?
}

fn check_findings(
    profiled: &Profiled,
    found: FindingsResult,
    baseline: Option<&Run>,
    budgets: &Budgets,
) -> Check {
    let run = Run::of(&profiled.profile);
    let with_severity = |one: Finding| (severity(&one, Some(&profiled.profile)), one);
    let findings = found.map(|found| found.into_iter().map(with_severity).collect::<Vec<_>>());
    let findings = findings.as_deref().map_err(String::as_str);
    let at = place(profiled);
    check(&CheckInput { run: &run, baseline, findings, at: &at }, budgets)
}

/// The line of the training loop, or else the first line of the first file.
fn place(profiled: &Profiled) -> SourceLine {
    let profile = &profiled.profile;
    let (file, line) = match profile.iteration.loop_line {
        Some((file, line)) => (profile.files.get(file.0 as usize), line),
        None => (profile.files.first(), 1),
    };
    SourceLine { path: file.map(|file| file.path.clone()).unwrap_or_default(), line }
}

/// The parsed command line.
struct CheckOptions {
    max_regression: Option<f64>,
    max_memory: Option<u64>,
    max_time: Option<f64>,
    max_findings: Vec<(Severity, u32)>,
}

impl CheckOptions {
    fn read(args: &CheckArgs) -> Result<CheckOptions, Failure> {
        fn parsed<T>(
            text: Option<&String>,
            what: &str,
            example: &str,
            parse: impl Fn(&str) -> Option<T>,
        ) -> Result<Option<T>, Failure> {
            let wrong = |text: &str| Failure::usage(format!("`{text}` is not a {what}"), example);
            text.map(|text| parse(text).ok_or_else(|| wrong(text))).transpose()
        }
        let percent = |text: &str| Percent::parse(text).map(Percent::share);
        let size = |text: &str| Size::parse(text).map(Size::bytes);
        let time = |text: &str| {
            let number = text.trim().trim_end_matches("ms").trim_end().parse().ok()?;
            Milliseconds::new(number).map(Milliseconds::nanoseconds)
        };
        let most = |text: &String| {
            let wrong = || {
                Failure::usage(
                    format!("`{text}` is not a findings budget"),
                    "Use a severity and the number of findings allowed at that severity and above: \
                    `warning/0`, `information/5`, `hint/20`",
                )
            };
            let (name, count) = text.split_once('/').ok_or_else(wrong)?;
            let severity = severity_named(name).ok_or_else(wrong)?;
            Ok((severity, count.parse().map_err(|_| wrong())?))
        };
        Ok(CheckOptions {
            max_regression: parsed(
                args.max_regression.as_ref(),
                "percentage",
                "Use a percentage such as `5%`, from 0% to 1000%",
                percent,
            )?,
            max_memory: parsed(
                args.max_memory.as_ref(),
                "size",
                "Use a number of bytes or a size such as \"16 GB\"",
                size,
            )?,
            max_time: parsed(
                args.max_time.as_ref(),
                "time",
                "Use a number of milliseconds above 0",
                time,
            )?,
            max_findings: args.max_findings.iter().map(most).collect::<Result<_, Failure>>()?,
        })
    }

    /// The budgets of the command line, completed by those of the project's configuration.
    fn budgets(&self, config: &Config) -> Budgets {
        let own = &config.check;
        let configured = [
            (Severity::Warning, own.max_findings.warning),
            (Severity::Information, own.max_findings.information),
            (Severity::Hint, own.max_findings.hint),
        ];
        let mut max_findings = self.max_findings.clone();
        for (severity, most) in configured {
            let is_configured = max_findings.iter().any(|(configured, _)| *configured == severity);
            max_findings.extend(most.filter(|_| !is_configured).map(|most| (severity, most.get())));
        }
        let max_regression = own.max_regression.map(Percent::share);
        let standard = Budgets::default();
        Budgets {
            max_regression: self
                .max_regression
                .or(max_regression)
                .unwrap_or(standard.max_regression),
            max_time_ns: self.max_time.or(own.max_time.map(Milliseconds::nanoseconds)),
            max_memory_bytes: self.max_memory.or(own.max_memory.map(Size::bytes)),
            max_findings,
        }
    }

    /// The baseline. With `--write-baseline`, a configured baseline need not exist yet.
    fn baseline(
        &self,
        args: &CheckArgs,
        config: &Config,
        root: &Path,
        store: &Store,
    ) -> Result<Option<Run>, Failure> {
        let configured = config.check.baseline.as_ref().map(|path| root.join(path.as_path()));
        let file: Option<PathBuf> = args.baseline.clone().or(configured);
        let is_made_now = args.baseline.is_none() && args.write_baseline.is_some();
        let file = file.filter(|file| file.exists() || !is_made_now);
        file.map(|file| compare::baseline(&file, store)).transpose()
    }
}

fn write_baseline(profiled: &Profiled, file: &Path) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Baseline {
        schema: u32,
        run: Run,
    }
    output_file::write(&Baseline { schema: 1, run: Run::of(&profiled.profile) }, file)
}

/// Writes the failure in the check's format, for programs that read it instead of the log. Writes
/// nothing for the text format or after an interrupt.
fn report_failure(args: &CheckArgs, failure: &Failure, terminal: &Terminal) {
    if args.format == Format::Text || failure.code == exit::INTERRUPTED {
        return;
    }
    let text = written(args.format, &Check::failed(failure.what.as_str()), "");
    let written_failure = match args.output.as_deref() {
        Some(file) if !output_file::is_stdout(Some(file)) => {
            text.and_then(|text| output_file::save(file, text.as_bytes()))
        }
        _ => text.and_then(|text| terminal.print(&text)),
    };
    if let Err(why) = written_failure {
        terminal.note(&format!("note: {}", why.what));
    }
}

/// Formats the check for programs, or as text without colors.
fn written(format: Format, check: &Check, prefix: &str) -> Result<String, Failure> {
    match format {
        Format::Text => Ok(present::page(check, Style { color: false, width: 0 })),
        Format::Json => json(&present::document(check)),
        Format::Sarif => {
            let version = env!("CARGO_PKG_VERSION");
            json(&present::sarif(check, prefix, version))
        }
        Format::CodeQuality => json(&present::code_quality(check, prefix)),
        Format::Junit => present::junit(check, prefix).map_err(|error| defect(&error)),
    }
}

/// Writes the check to its output. If that is a file, also prints a summary for the log.
fn write_result(
    args: &CheckArgs,
    check: &Check,
    prefix: &str,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let style = |color| Style { color, width: terminal.width() };
    let file = args.output.as_deref().filter(|file| !output_file::is_stdout(Some(file)));
    let is_taken = output_file::is_stdout(args.write_baseline.as_deref());
    let is_shown = file.is_none() && !is_taken;
    let text = match args.format {
        Format::Text => present::page(check, style(is_shown && terminal.colors())),
        format => written(format, check, prefix)?,
    };
    let page = match file {
        None => text,
        Some(file) => {
            output_file::save(file, text.as_bytes())?;
            present::page(check, style(terminal.colors() && !is_taken))
        }
    };
    if is_taken {
        terminal.note(page.trim_end());
        return Ok(());
    }
    terminal.print(&page)
}

/// The project's path relative to the working directory. Code hosts expect paths relative to the
/// repository's root, which is the working directory of their pipelines.
fn prefix(root: &Path) -> String {
    let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
    let root = root.canonicalize().ok();
    let below =
        here.zip(root).and_then(|(here, root)| Some(root.strip_prefix(here).ok()?.to_owned()));
    below.unwrap_or_default().to_string_lossy().replace('\\', "/")
}

/// Serializes a document.
fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| defect(&error))
}

fn defect(error: &impl std::fmt::Display) -> Failure {
    Failure::failed(format!("could not write the check: {error}"), "")
}
