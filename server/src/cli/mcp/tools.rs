//! The tools.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::compare::compare;
use ridgeline_analysis::diagnose::severity::{Severity, severity};
use ridgeline_analysis::optimize::rewrite::EditKind;
use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::present::hover::{HoverContext, hover};
use ridgeline_analysis::present::terminal::{self, Style};
use ridgeline_analysis::present::{
    compare as comparison, devices, findings as pages, machines, what_ifs,
};
use rmcp::handler::server::tool::{InputResponses, RequestState};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, Implementation, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, tool, tool_handler, tool_router};

use super::super::edits::Program;
use super::super::exit::Failure;
use super::super::latest::{Latest, Target};
use super::super::{compare as runs, predict, profile, run, whatif};
use super::arguments::{
    CompareArgs, CostsArgs, LineArgs, OptimizationArgs, PredictArgs, ProfileArgs, ProjectArgs,
};
use super::consent::{Consent, ConsentError, Reply};
use super::progress;
use crate::config::DeviceChoice;
use crate::documents::real_path;
use crate::findings;
use crate::findings::{FindingSet, in_text};
use crate::pipeline::{Overrides, Pipeline, Plan, Request};
use crate::profiler::Profiled;
use crate::store::Store;
use crate::{known_devices, what_if};

/// An answer is cut off after this many characters.
const MAX_ANSWER_CHARS: usize = 30_000;
/// Findings that get a patch in one answer.
const MAX_PATCHES: usize = 20;
/// Wide enough for tables, without colors.
const STYLE: Style = Style { color: false, width: 120 };
/// Wide enough that source is not cut off.
const SOURCE_STYLE: Style = Style { color: false, width: 200 };

const INSTRUCTIONS: &str = "\
Ridgeline measures where PyTorch training spends time and memory, by source line. Start with `profile`, which runs a \
few training steps; the other tools read its result and are quick. `findings` names what is slow or wasteful, with \
patches. `optimizations` predicts the effect of changes, and `measure_optimization` checks a prediction. After an \
edit, call `profile` again and `compare_runs`. Times are per training iteration, memory is at the peak, and ~ marks \
estimates.";

/// The tools of a server, and what calls share.
#[derive(Clone)]
pub(super) struct Tools {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    pipeline: Pipeline,
    consent: Consent,
    /// Held while code runs: concurrent runs would slow each other down.
    machine: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").finish_non_exhaustive()
    }
}

impl Tools {
    pub(super) fn new(store: Store, allowed: Vec<PathBuf>) -> Tools {
        let shared = Shared {
            pipeline: Pipeline::lasting(store.clone()),
            consent: Consent::new(store.clone(), allowed),
            machine: tokio::sync::Mutex::new(()),
            store,
        };
        Tools { shared: Arc::new(shared) }
    }

    /// Reads the latest run and answers from it, on a thread where that blocks nobody.
    async fn read(
        &self,
        path: Option<String>,
        answer: impl FnOnce(&Store, &Latest) -> Result<String, Failure> + Send + 'static,
    ) -> CallToolResponse {
        let shared = self.shared.clone();
        answered(move || {
            let latest = Latest::read(&shared.store, &Target::of(path.as_deref().map(Path::new))?)?;
            Ok(format!("{}\n{}", latest.heading(), answer(&shared.store, &latest)?))
        })
        .await
    }
}

#[tool_router]
impl Tools {
    /// Profiles a few iterations of the training loop and returns the summary: iteration time, phases, peak memory,
    /// the costliest lines, and findings. Runs code of the project, so the user may be asked first. Takes 10 s to a
    /// minute.
    #[tool(annotations(
        title = "Profile a training program",
        read_only_hint = false,
        destructive_hint = false
    ))]
    async fn profile(
        &self,
        Parameters(args): Parameters<ProfileArgs>,
        RequestState(state): RequestState,
        InputResponses(responses): InputResponses,
        context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let profiled = self.run(&args, Reply { state, responses }, &context).await;
        let profiled = match profiled {
            Ok(profiled) => profiled,
            Err(ConsentError::Ask(question)) => return (*question).into(),
            Err(ConsentError::Refused(failure)) => return response(Err(failure)),
        };
        answered(move || {
            let latest = Latest::of(profiled);
            let mut text =
                latest.heading() + "\n" + &terminal::summary(&latest.profiled.profile, STYLE);
            let (findings, why) = found(&latest.profiled);
            text += &pages::page(&findings.findings, &latest.profiled.profile, STYLE, false);
            text += &why;
            Ok(text)
        })
        .await
    }

    /// Returns the summary of the latest run again: iteration time, phases, peak memory and the costliest lines.
    #[tool(annotations(title = "Summary of the latest run", read_only_hint = true))]
    async fn summary(&self, Parameters(args): Parameters<ProjectArgs>) -> CallToolResponse {
        self.read(args.path, |_, latest| Ok(terminal::summary(&latest.profiled.profile, STYLE)))
            .await
    }

    /// Returns the source of a file with the time and memory of each line in the margin.
    #[tool(annotations(title = "Costs by line", read_only_hint = true))]
    async fn line_costs(&self, Parameters(args): Parameters<CostsArgs>) -> CallToolResponse {
        self.read(args.path, move |_, latest| {
            let (at, source) = latest.source(&args.file)?;
            let profile = &latest.profiled.profile;
            let costs = CostMap::build(profile, at, &source);
            Ok(match (args.first_line, args.last_line) {
                (None, None) => terminal::annotated_source(profile, &costs, &source, SOURCE_STYLE),
                (first, last) => {
                    let lines = first.unwrap_or(1)..=last.unwrap_or(u32::MAX);
                    terminal::annotated_lines(profile, &costs, &source, lines, SOURCE_STYLE)
                }
            })
        })
        .await
    }

    /// Explains the cost of one line: its share, why it is slow, what to do, and its operators.
    #[tool(annotations(title = "Explain a line", read_only_hint = true))]
    async fn explain_line(&self, Parameters(args): Parameters<LineArgs>) -> CallToolResponse {
        self.read(args.path, move |_, latest| {
            let (at, source) = latest.source(&args.file)?;
            let profile = &latest.profiled.profile;
            let costs = CostMap::build(profile, at, &source);
            let findings = [Arc::new(found(&latest.profiled).0)];
            let file = latest.profiled.files.get(at.0 as usize).and_then(Option::as_ref);
            let file = file.map(|file| real_path(file)).unwrap_or_default();
            let placed = in_text(&findings, &file, &source, Severity::Hint);
            let here = placed
                .iter()
                .filter(|one| (one.statement.0..=one.statement.1).contains(&args.line));
            let here: Vec<_> = here.map(|one| (one.finding, one.profile())).collect();
            let hover_context = HoverContext { findings: &here, ..HoverContext::default() };
            // After the line, where no single expression is meant.
            let offset = source.code_on_line(args.line).end;
            let page = hover(profile, hover_context, &costs, &source, offset);
            page.map(|page| page.plain).ok_or_else(|| {
                Failure::failed(
                    format!("line {} of {} has no measured cost", args.line, printable(&args.file)),
                    "`line_costs` shows which lines have one",
                )
            })
        })
        .await
    }

    /// Lists what is slow or wasteful in the latest run, the costliest first, each with its place, cost, cause, and a
    /// patch for today's source if there is an automatic fix.
    #[tool(annotations(title = "Findings with patches", read_only_hint = true))]
    async fn findings(&self, Parameters(args): Parameters<ProjectArgs>) -> CallToolResponse {
        self.read(args.path, |_, latest| {
            let (findings, why) = found(&latest.profiled);
            let profile = &latest.profiled.profile;
            let program = Program::of(&latest.profiled);
            let mut text = String::new();
            for (at, finding) in findings.findings.iter().enumerate() {
                let name = severity(finding, Some(profile)).name();
                let place = format!("{}:{}", finding.at.path, finding.at.line);
                let _ = writeln!(text, "## {} {} ({name})", finding.rule, printable(&place));
                let _ = writeln!(text, "{}", pages::plain_text(finding, Some(profile)));
                let patch = match &program {
                    Ok(program) if at < MAX_PATCHES => program.fix(finding, &findings),
                    _ => None,
                };
                match patch {
                    Some(Ok(patch)) => {
                        let _ = writeln!(text, "```diff\n{patch}```");
                    }
                    Some(Err(why)) => {
                        let _ = writeln!(text, "No patch: {}.", printable(&why));
                    }
                    None => {}
                }
                text.push('\n');
            }
            if findings.findings.is_empty() && why.is_empty() {
                text += "No findings.\n";
            }
            Ok(text + &why)
        })
        .await
    }

    /// Predicts the speedup and memory savings of optimizations for the latest run, with ranges, and says why others
    /// do not apply.
    #[tool(annotations(title = "Predict optimizations", read_only_hint = true))]
    async fn optimizations(&self, Parameters(args): Parameters<ProjectArgs>) -> CallToolResponse {
        self.read(args.path, |store, latest| {
            let recorded_run =
                what_if::recorded_run(&latest.profiled).map_err(|why| Failure::failed(why, ""))?;
            let study = what_if::study_of(&latest.profiled, &recorded_run, Some(store));
            let study = study.map_err(|why| Failure::failed(why, ""))?;
            let with_patch = EditKind::ALL.map(EditKind::name).join(", ");
            Ok(format!(
                "{}\n`optimization_patch` can apply: {with_patch}\n",
                what_ifs::page(&study, STYLE)
            ))
        })
        .await
    }

    /// Returns the patch that applies an optimization to today's source. Changes no file.
    #[tool(annotations(title = "Patch of an optimization", read_only_hint = true))]
    async fn optimization_patch(
        &self,
        Parameters(args): Parameters<OptimizationArgs>,
    ) -> CallToolResponse {
        self.read(args.path, move |_, latest| {
            let kind = EditKind::from_name(&args.name).ok_or_else(|| {
                let known = EditKind::ALL.map(EditKind::name).join(", ");
                Failure::usage(
                    format!("`{}` has no automatic edit", printable(&args.name)),
                    format!("Optimizations with one: {known}"),
                )
            })?;
            let failed = |why: String| Failure::failed(why, "");
            let program = Program::of(&latest.profiled).map_err(failed)?;
            let (patch, notes) = program.patch(kind, &[]).map_err(failed)?;
            let notes: String = notes.iter().map(|note| format!("Note: {note}.\n")).collect();
            Ok(format!("```diff\n{patch}```\n{notes}"))
        })
        .await
    }

    /// Measures an optimization: runs the program with and without its edit, side by side, and returns the predicted
    /// and the measured speedup. Changes no file. Runs code of the project, so the user may be asked first.
    #[tool(annotations(
        title = "Measure an optimization",
        read_only_hint = false,
        destructive_hint = false
    ))]
    async fn measure_optimization(
        &self,
        Parameters(args): Parameters<OptimizationArgs>,
        RequestState(state): RequestState,
        InputResponses(responses): InputResponses,
        context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        match self.measure(&args, Reply { state, responses }, &context).await {
            Ok(text) => response(Ok(text)),
            Err(ConsentError::Ask(question)) => (*question).into(),
            Err(ConsentError::Refused(failure)) => response(Err(failure)),
        }
    }

    /// Predicts iteration time, memory and price of the latest run on other GPUs.
    #[tool(annotations(title = "Predict other GPUs", read_only_hint = true))]
    async fn predict_gpus(&self, Parameters(args): Parameters<PredictArgs>) -> CallToolResponse {
        self.read(args.path, move |_, latest| {
            let (mut table, _) = known_devices::of_project(&latest.profiled.root);
            let gpus = if args.gpus.is_empty() { vec!["all".to_owned()] } else { args.gpus };
            let chosen = predict::choose(&gpus, &mut table)?;
            let recording = latest.profiled.recording.as_deref();
            let recording =
                recording.ok_or_else(|| Failure::failed("the run left no recording", ""))?;
            let mut predicted = predict::of_recording(recording, &table)?;
            if let Some(chosen) = &chosen {
                predicted.rows.retain(|row| row.here || chosen.contains(&row.device.name));
            }
            let machines = machines::section(&predicted, None, None, STYLE);
            Ok(devices::table(&predicted, STYLE) + &machines)
        })
        .await
    }

    /// Compares two runs of a project and reports significant changes of time and memory by line.
    #[tool(annotations(title = "Compare two runs", read_only_hint = true))]
    async fn compare_runs(&self, Parameters(args): Parameters<CompareArgs>) -> CallToolResponse {
        self.read(args.path, move |store, latest| {
            let root = &latest.profiled.root;
            let (before, named_before) = runs::find(&args.before, store, root)?;
            let (after, named_after) = runs::find(&args.after, store, root)?;
            Ok(comparison::page(&compare(&before, &after), [&named_before, &named_after], STYLE))
        })
        .await
    }
}

impl Tools {
    /// Asks for consent and profiles.
    async fn run(
        &self,
        args: &ProfileArgs,
        reply: Reply,
        context: &RequestContext<RoleServer>,
    ) -> Result<Profiled, ConsentError> {
        let target =
            Target::of(args.path.as_deref().map(Path::new)).map_err(ConsentError::Refused)?;
        let device = args
            .device
            .as_deref()
            .map(profile::parse_device)
            .transpose()
            .map_err(ConsentError::Refused)?;
        let request = request(&target, &args.arguments, device);
        let Shared { pipeline, consent, machine, .. } = &*self.shared;
        let failed = |outcome| ConsentError::Refused(run::failure_of(outcome));
        // Planning reads files only. The question names what would run.
        let plan = pipeline.plan(request).await.map_err(failed)?;
        consent.permit(&real_path(&target.root), &described(&plan), reply, context).await?;
        let _held = machine.lock().await;
        let outcome = progress::forwarded(context, async |progress| {
            pipeline.run(&plan, &progress, &context.ct).await
        })
        .await;
        run::measured(outcome).map_err(ConsentError::Refused)
    }

    /// Asks for consent and measures an optimization of the latest run.
    async fn measure(
        &self,
        args: &OptimizationArgs,
        reply: Reply,
        context: &RequestContext<RoleServer>,
    ) -> Result<String, ConsentError> {
        let target =
            Target::of(args.path.as_deref().map(Path::new)).map_err(ConsentError::Refused)?;
        let Shared { store, pipeline, consent, machine } = &*self.shared;
        let names =
            whatif::measurable(std::slice::from_ref(&args.name)).map_err(ConsentError::Refused)?;
        let name = names.first().copied().unwrap_or_default();
        let plan = pipeline.plan(request(&target, &[], None)).await;
        let plan = plan.map_err(|outcome| ConsentError::Refused(run::failure_of(outcome)))?;
        consent.permit(&real_path(&target.root), &described(&plan), reply, context).await?;
        let _held = machine.lock().await;
        let failed = |why: String| ConsentError::Refused(Failure::failed(why, ""));
        let (profiled, _) = pipeline.reusable(&plan).await.ok_or_else(|| {
            ConsentError::Refused(Failure::failed(
                "the source has changed since the latest run",
                "Call `profile` first",
            ))
        })?;
        let profiled = Arc::new(profiled);
        let (known, at_hand) = (store.clone(), profiled.clone());
        let study = tokio::task::spawn_blocking(move || {
            let recorded_run = what_if::recorded_run(&at_hand)?;
            what_if::study_of(&at_hand, &recorded_run, Some(&known))
        });
        let study = study.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        let pair = progress::forwarded(context, async |progress| {
            whatif::measured_pair(pipeline, &plan, &profiled, &study, name, &progress, &context.ct)
                .await
        });
        let pair = pair.await.map_err(ConsentError::Refused)?;
        let saved = what_if::pairs::add(store, &profiled.root, &pair);
        let note = saved.err().map(|why| format!("note: this measurement was not saved: {why}\n"));
        Ok(what_ifs::measured(&[pair], None) + &note.unwrap_or_default())
    }
}

#[tool_handler]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let name = Implementation::new("ridgeline", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(name)
            .with_instructions(INSTRUCTIONS)
    }
}

/// What a tool asks to run.
fn request(target: &Target, arguments: &[String], device: Option<DeviceChoice>) -> Request {
    let arguments = (!arguments.is_empty()).then(|| arguments.to_vec());
    Request {
        workspace: target.root.clone(),
        script: target.file.clone(),
        takes_likeliest: target.file.is_none(),
        overrides: Overrides { arguments, device, ..Overrides::default() },
        ..Request::default()
    }
}

/// The program of a plan as the user is asked about it. A launcher may reach other machines, so it is named.
fn described(plan: &Plan) -> String {
    let launcher = plan.launched_by.as_ref().map(|launcher| format!(" with `{launcher}`"));
    plan.display() + &launcher.unwrap_or_default()
}

/// The findings of a run, or a sentence that says why there are none.
fn found(profiled: &Profiled) -> (FindingSet, String) {
    match what_if::recorded_run(profiled) {
        Ok(recorded_run) => (findings::of_recorded_run(profiled, &recorded_run), String::new()),
        Err(why) => {
            (FindingSet::default(), format!("Findings are not available: {}\n", printable(&why)))
        }
    }
}

/// Works out an answer on a thread that may block.
async fn answered(
    answer: impl FnOnce() -> Result<String, Failure> + Send + 'static,
) -> CallToolResponse {
    let answer = tokio::task::spawn_blocking(answer).await;
    let panicked = |error| Err(Failure::failed(format!("internal error: {error}"), ""));
    response(answer.unwrap_or_else(panicked))
}

/// The text of an answer, or of an error that the agent can act on.
fn response(answer: Result<String, Failure>) -> CallToolResponse {
    match answer {
        Ok(text) => CallToolResult::success(vec![ContentBlock::text(shortened(text))]).into(),
        Err(failure) => {
            let next =
                if failure.next.is_empty() { String::new() } else { format!("\n{}", failure.next) };
            let text = shortened(format!("{}{next}", failure.what));
            CallToolResult::error(vec![ContentBlock::text(text)]).into()
        }
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_ANSWER_CHARS) {
        let left_out = text.get(end..).map_or(0, |rest| rest.chars().count());
        text.truncate(end);
        let _ = write!(text, "\n… {left_out} more characters");
    }
    text
}
