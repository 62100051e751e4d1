//! `ridgeline predict PATH --gpu NAME…`.

use std::path::{Path, PathBuf};

use ridgeline_analysis::attribution;
use ridgeline_analysis::base::units::percent;
use ridgeline_analysis::devices::device_spec::DeviceSpec;
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::operators::op_list::OpList;
use ridgeline_analysis::operators::recorded_step::RecordedStep;
use ridgeline_analysis::predict::device_comparison::{
    Comparison, ComparisonInput, compare, compare_with_host,
};
use ridgeline_analysis::predict::gpu_batches::GpuBatches;
use ridgeline_analysis::present::panel::Devices;
use ridgeline_analysis::present::terminal::Style;
use ridgeline_analysis::present::{self, devices, machines};
use ridgeline_gpu::devices as devices_here;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::PredictArgs;
use super::exit::Failure;
use super::terminal::Terminal;
use super::{gpu_batches, output_file, profile, recorded, run, script_choice};
use crate::pipeline::{self, Pipeline, Plan};
use crate::{known_devices, measured_rates};

/// A recording with a larger share of its time in operators of unknown cost is not predicted for
/// GPUs.
const MAX_UNKNOWN_SHARE: f64 = 0.2;
/// The name that selects all known GPUs.
const ALL: &str = "all";

/// Runs the subcommand. Naming the path on the command line is the user's consent to run it.
pub(super) fn run(args: &PredictArgs, terminal: &Terminal) -> Result<(), Failure> {
    let path = profile::absolute(profile::named(args.path.as_deref()))?;
    // Report a misspelled name before anything runs.
    let (mut table, notes) = known_devices::of_project(&project_of(&path));
    for note in notes {
        terminal.note(&format!("note: {note}"));
    }
    let chosen = choose(&args.gpu, &mut table)?;
    let is_chosen = |device: &DeviceSpec| {
        let is_named = chosen.as_ref().is_none_or(|names| names.contains(&device.name));
        let price = device.price.as_ref().map(|price| price.usd_per_hour);
        is_named && args.max_price.is_none_or(|max| price.is_some_and(|usd| usd <= max))
    };
    let predictions = predicted(&path, args, &table, &is_chosen, terminal)?;
    let is_empty = |one: &Prediction| one.comparison.rows.iter().all(|row| row.here);
    if let (Some(max), true) = (args.max_price, predictions.iter().all(is_empty)) {
        return Err(Failure::usage(
            format!("no GPU with a price of at most ${max} per hour"),
            "`devices.prices` in the configuration sets prices",
        ));
    }
    if let Some(file) = &args.json {
        output_file::write(&document(&predictions), file)?;
    }
    if output_file::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    let style = Style { color: terminal.colors(), width: terminal.width() };
    let tables: Vec<String> = predictions
        .iter()
        .map(|one| {
            let table = match &one.batches {
                Some(batches) => present::gpu_batches::page(&one.comparison, batches, style),
                None => devices::table(&one.comparison, style),
            };
            let batches = one.batches.as_ref();
            table + &machines::section(&one.comparison, batches, args.max_price, style)
        })
        .collect();
    terminal.print(&tables.join("\n"))
}

/// What was predicted for one batch size.
struct Prediction {
    comparison: Comparison,
    /// The batch size that each GPU needs, if it was predicted.
    batches: Option<GpuBatches>,
}

impl Prediction {
    /// Keeps only the chosen GPUs, and the one that ran.
    fn new(mut comparison: Comparison, is_chosen: &dyn Fn(&DeviceSpec) -> bool) -> Prediction {
        comparison.rows.retain(|row| row.here || is_chosen(&row.device));
        Prediction { comparison, batches: None }
    }
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document {
    schema: u32,
    predictions: Vec<Devices>,
}

fn document(predictions: &[Prediction]) -> Document {
    let devices = predictions
        .iter()
        .map(|one| Devices::with_all_machines(&one.comparison, one.batches.as_ref()));
    Document { schema: 1, predictions: devices.collect() }
}

/// The folder whose configuration applies: the project's, or the working directory for a recording.
fn project_of(path: &Path) -> PathBuf {
    if pipeline::is_recording(path) {
        return std::env::current_dir().unwrap_or_default();
    }
    profile::project_of(path)
}

/// The names of the requested GPUs, or `None` for all. Adds files to the table.
pub(super) fn choose(
    wanted: &[String],
    table: &mut DeviceTable,
) -> Result<Option<Vec<String>>, Failure> {
    if wanted.iter().any(|name| name.eq_ignore_ascii_case(ALL)) {
        return Ok(None);
    }
    let mut chosen = Vec::new();
    for name in wanted {
        if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
            let device = known_devices::read(Path::new(name)).map_err(|why| {
                Failure::usage(
                    format!("{name}: {why}"),
                    "docs/configuration.md describes the format of GPU files",
                )
            })?;
            chosen.push(device.name.clone());
            table.add(device);
            continue;
        }
        match table.choose_variants(name) {
            Ok(devices) => chosen.extend(devices.into_iter().map(|device| device.name.clone())),
            Err(unknown) => {
                return Err(Failure::usage(
                    unknown.to_string(),
                    "`--gpu all` lists all known GPUs; you can also pass a file that describes a \
                    GPU",
                ));
            }
        }
    }
    Ok(Some(chosen))
}

/// The predictions for each batch size.
fn predicted(
    path: &Path,
    args: &PredictArgs,
    table: &DeviceTable,
    is_chosen: &dyn Fn(&DeviceSpec) -> bool,
    terminal: &Terminal,
) -> Result<Vec<Prediction>, Failure> {
    if pipeline::is_recording(path) {
        let refused = |option: &str, why: &str| {
            Failure::usage(
                format!("{option} cannot be used with a recording: {why}"),
                "Pass the recorded script instead",
            )
        };
        if !args.batch_size.is_empty() {
            return Err(refused("`--batch-size`", "its batch size is fixed"));
        }
        if args.estimate {
            return Err(refused("`--estimate`", "it is already measured"));
        }
        return Ok(vec![Prediction::new(of_recording(path, table)?, is_chosen)]);
    }
    let pipeline = Pipeline::new(run::open_store()?);
    run::block_on(|cancel| async move {
        let program = Program { pipeline: &pipeline, table, is_chosen, terminal, cancel: &cancel };
        match &args.batch_size[..] {
            [] => Ok(vec![program.at_its_batch(args).await?]),
            sizes => program.at_batches(args, sizes).await,
        }
    })?
}

/// The operators of a program at one batch size.
enum Operators {
    /// Those of fake tensors.
    Estimated(Box<OpList>),
    /// Those of a run, with the host's nanoseconds per operator if it ran on a CPU.
    Recorded(Box<RecordedStep>, Option<f64>),
}

/// A program to run for its predictions.
struct Program<'a> {
    pipeline: &'a Pipeline,
    table: &'a DeviceTable,
    is_chosen: &'a dyn Fn(&DeviceSpec) -> bool,
    terminal: &'a Terminal,
    cancel: &'a CancellationToken,
}

impl Program<'_> {
    /// Predicts for the program's own batch size.
    async fn at_its_batch(&self, args: &PredictArgs) -> Result<Prediction, Failure> {
        let plan = self.plan(args, None).await?;
        if args.estimate {
            let operators = self.operators(args, &plan, true).await?;
            let comparison = self.compared(&operators, None, &plan).await?;
            return Ok(Prediction::new(comparison, self.is_chosen));
        }
        let (terminal, cancel) = (self.terminal, self.cancel);
        let profiled =
            run::reuse_or_run(self.pipeline, &plan, args.fresh, terminal, cancel).await?;
        let Some(recording) = &profiled.recording else {
            return Err(Failure::failed("the run left no recording", ""));
        };
        self.of_profiled(recording, &plan).await
    }

    /// Predicts for each of these batch sizes.
    async fn at_batches(
        &self,
        args: &PredictArgs,
        sizes: &[u32],
    ) -> Result<Vec<Prediction>, Failure> {
        let mut found = Vec::new();
        for (at, &size) in sizes.iter().enumerate() {
            let plan = self.plan(args, Some(size)).await?;
            if at > 0 {
                self.terminal.note(&format!("Profiling with batch size {size}"));
            }
            found.push((size, self.operators(args, &plan, at == 0).await?, plan));
        }
        // Other programs only add time, and an operator takes the same time on the host with any batch size.
        let host_times = found.iter().filter_map(|(_, operators, _)| match operators {
            Operators::Recorded(_, host_ns) => *host_ns,
            Operators::Estimated(_) => None,
        });
        let host_ns = host_times.min_by(f64::total_cmp);
        let mut predictions = Vec::new();
        for (size, operators, plan) in &found {
            let comparison = self.compared(operators, host_ns, plan).await?;
            let used = comparison.batch_size;
            if used != Some(u64::from(*size)) {
                let used = used.map_or("an unknown size".to_owned(), |used| used.to_string());
                return Err(Failure::failed(
                    format!("batch size {size} was requested, but the program used {used}"),
                    "Omit `--batch-size` to predict for the program's own batch size",
                ));
            }
            predictions.push(Prediction::new(comparison, self.is_chosen));
        }
        Ok(predictions)
    }

    async fn plan(&self, args: &PredictArgs, batch_size: Option<u32>) -> Result<Plan, Failure> {
        let request = profile::request(args.path.as_deref(), batch_size, &args.run)?;
        let plan = script_choice::plan(self.pipeline, request, self.terminal, self.cancel).await?;
        let Some(batch_size) = batch_size else { return Ok(plan) };
        plan.at_batch(batch_size).map_err(|refusal| {
            Failure::usage(
                format!("`--batch-size {batch_size}`: {refusal}"),
                "Omit it to predict for the program's own batch size",
            )
        })
    }

    /// Runs the program, or estimates its operators.
    async fn operators(
        &self,
        args: &PredictArgs,
        plan: &Plan,
        is_announced: bool,
    ) -> Result<Operators, Failure> {
        let Program { pipeline, terminal, cancel, .. } = *self;
        if is_announced {
            run::announce(pipeline, plan, terminal, cancel).await?;
        }
        if args.estimate {
            let operators = pipeline.operators(plan, cancel).await.map_err(run::failure_of)?;
            return Ok(Operators::Estimated(Box::new(operators)));
        }
        let step = run::with_progress_bar(async |progress| {
            pipeline.recorded_step(plan, &progress, cancel).await
        });
        let (step, host_ns) = step.await.map_err(run::failure_of)?;
        Ok(Operators::Recorded(Box::new(step), host_ns))
    }

    /// Compares the GPUs of the table. `host_ns` is the host's time per operator.
    async fn compared(
        &self,
        operators: &Operators,
        host_ns: Option<f64>,
        plan: &Plan,
    ) -> Result<Comparison, Failure> {
        let comparison = match operators {
            Operators::Estimated(operators) => {
                let here = devices_here::query().await;
                let is_simulated = here.gpus.iter().any(|gpu| gpu.is_simulated);
                compare(ComparisonInput::Estimated(operators), &measured(self.table, is_simulated))
            }
            Operators::Recorded(step, _) => {
                let table = measured(self.table, step.device.is_simulated);
                compare_with_host(ComparisonInput::Recorded(step), &table, host_ns)
            }
        };
        comparison.ok_or_else(|| {
            Failure::failed(format!("{} ran no operators to predict from", plan.entry_name()), "")
        })
    }

    /// Predicts from the program's recording. If a GPU would wait for its host, also predicts the batch
    /// size that each GPU needs.
    async fn of_profiled(&self, recording: &Path, plan: &Plan) -> Result<Prediction, Failure> {
        let predicted = Prediction::new(of_recording(recording, self.table)?, self.is_chosen);
        let comparison = &predicted.comparison;
        if !comparison.rows.iter().any(|row| row.waits_for_host) {
            return Ok(predicted);
        }
        self.terminal.note("Estimating the batch size that each GPU needs");
        let batches = gpu_batches::find(self.pipeline, plan, comparison, self.cancel).await;
        if let Err(why) = &batches {
            self.terminal
                .note(&format!("note: the batch size that each GPU needs is unknown: {why}"));
        }
        Ok(Prediction { batches: batches.ok(), ..predicted })
    }
}

/// The device table with this machine's measured rates, for real or for simulated GPUs.
fn measured(table: &DeviceTable, is_simulated: bool) -> DeviceTable {
    let mut table = table.clone();
    measured_rates::add_to(&mut table, is_simulated);
    table
}

/// The share of GPU time in kernels without a recorded operator; `None` if no GPU ran.
fn share_without_operator(step: &RecordedStep) -> Option<f64> {
    let without = step.activities.iter().filter(|work| work.operator.is_none());
    let without_ns: f64 = without.map(|work| work.part_ns).sum();
    (step.busy_ns() > 0.0).then(|| without_ns / step.busy_ns())
}

/// Predicts a recording on the GPUs of the table. Runs nothing.
pub(super) fn of_recording(path: &Path, table: &DeviceTable) -> Result<Comparison, Failure> {
    let (recording, profile, _) = recorded::read(path)?;
    let mut step = attribution::recorded_step(&recording, &profile);
    let unknown_share = attribution::unknown_cost_share(&recording);
    if unknown_share > MAX_UNKNOWN_SHARE {
        let share = percent(unknown_share);
        // Ridgeline records shapes itself, so these are operators that it does not know.
        if recording.manifest.is_none() {
            return Err(Failure::failed(
                format!("{}: {share} of the time is in ops of unknown cost", path.display()),
                "Record the operators' shapes and arguments with a current PyTorch \
                (`record_shapes=True`)",
            ));
        }
        step.notes.push(format!(
            "{share} of the time is in ops of unknown cost, so these predictions may be far off"
        ));
    }
    step.notes.extend(recording.trace.truncation_note());
    let table = measured(table, step.device.is_simulated);
    if table.find(&step.device.name).is_none()
        && let Some(share) =
            share_without_operator(&step).filter(|share| *share > MAX_UNKNOWN_SHARE)
    {
        let share = percent(share);
        return Err(Failure::failed(
            format!(
                "{}: the GPU is unknown, and {share} of its time is in kernels without a recorded \
                operator, such as those of CUDA graphs",
                path.display()
            ),
            "Describe the GPU in a file (docs/configuration.md), or record without CUDA graphs",
        ));
    }
    let host = attribution::host_ns_per_operator(&recording, &profile);
    let compared = compare_with_host(ComparisonInput::Recorded(&step), &table, host);
    let compared = compared.map(|comparison| match attribution::runs_fp8(&recording.trace) {
        true => comparison.only_with_fp8(),
        false => comparison,
    });
    compared.ok_or_else(|| {
        let device = match step.device.name.as_str() {
            "unknown" => "the recorded GPU",
            name => name,
        };
        if step.ran_on_gpu() && table.find(&step.device.name).is_none() {
            return Failure::failed(
                format!("{device} is not a known GPU, and operators were recorded without shapes"),
                "Describe the GPU in a file (docs/configuration.md), or record shapes",
            );
        }
        recorded::failure(path, "it has no kernels or operators with shapes to predict from")
    })
}
