//! Predicts training throughput on several GPUs from that on one: the tables of `lambda/`.

use super::{Cases, Question, TargetErrors};
use crate::benchmark_facts::{Benchmark, UNPUBLISHED, Unpublished, benchmark};
use crate::case::{Case, ListSource, Prediction, Task, Unanswered};
use crate::device_name::named_with_power;
use crate::ground_truth::GroundTruth;
use crate::lambda_results::LambdaRow;
use crate::list_request::ListRequest;
use crate::trivial::Guess;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::range::Range;
use ridgeline_optimize::distributed::all_reduce::Topology;
use ridgeline_optimize::distributed::links::{self, Route};
use ridgeline_optimize::distributed::single_step::{Fitted, SHIPPED, SingleStep, on_several};

/// The question about data parallelism.
pub struct DataParallel;

impl Question for DataParallel {
    fn id(&self) -> &'static str {
        "data_parallel"
    }

    fn title(&self) -> &'static str {
        "Data parallel: 1 GPU to 2, 4 and 8"
    }

    fn bar(&self) -> TargetErrors {
        TargetErrors { mean: 0.10, median: None, aim: 0.06 }
    }

    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases {
        let mut found = Cases::default();
        for pair in pairs(truth, devices, &mut found) {
            let Pair { label, task, measured_milliseconds } = pair;
            let group = format!("{} GPUs", task.gpus);
            found.cases.push(Case::new(label, group, Box::new(task), measured_milliseconds));
        }
        found
    }
}

/// A measurement on several GPUs, with the task that predicts it.
pub struct Pair {
    /// The name of the case.
    pub label: String,
    /// The task that predicts it.
    pub task: FromOneGpu,
    /// Measured time of a step.
    pub measured_milliseconds: f64,
}

/// Pairs each row with several GPUs with the row of one such GPU with the same model and precision.
pub fn pairs(truth: &GroundTruth, devices: &'static DeviceTable, found: &mut Cases) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for row in truth.lambda.iter().filter(|row| row.gpus > 1) {
        let Some(facts) = benchmark(&row.model) else {
            found.pass_over(format!("nothing is known of the model {}", row.model), 1);
            continue;
        };
        let Some(gpu) = named_with_power(&row.gpu, row.watts, devices) else {
            found.pass_over(format!("no GPU of the table is called {}", row.gpu), 1);
            continue;
        };
        let Some(single) = single(truth, row, gpu.device, devices) else {
            found.pass_over(format!("no row of a single {}", row.gpu), 1);
            continue;
        };
        let batch = f64::from(single.batch);
        let milliseconds = facts.step_milliseconds(batch, 1, single.per_second);
        let all = f64::from(row.batch);
        pairs.push(Pair {
            label: format!(
                "{}: {} in {}",
                row.machine,
                row.model,
                if row.half { "FP16" } else { "FP32" }
            ),
            task: FromOneGpu {
                facts,
                half: row.half,
                device: gpu.device,
                gpus: row.gpus,
                batch: all / f64::from(row.gpus),
                // If the batch on each GPU differs from that on one GPU, scale the step.
                milliseconds: milliseconds * all / f64::from(row.gpus) / batch,
                counted: facts.counted(all, row.gpus) / facts.counted(batch, 1),
            },
            measured_milliseconds: facts.step_milliseconds(all, row.gpus, row.per_second),
        });
    }
    pairs
}

/// Returns the row with one GPU: of the same owner, otherwise without an owner, otherwise of any
/// owner.
fn single<'a>(
    truth: &'a GroundTruth,
    row: &LambdaRow,
    device: &DeviceSpec,
    devices: &'static DeviceTable,
) -> Option<&'a LambdaRow> {
    let candidates = truth.lambda.iter().filter(|one| {
        let same_run = one.gpus == 1 && one.model == row.model && one.half == row.half;
        let named = |one: &LambdaRow| named_with_power(&one.gpu, one.watts, devices);
        same_run && named(one).is_some_and(|named| named.device.name == device.name)
    });
    let owned = row.owned_gpu();
    candidates.min_by_key(|one| (one.gpu != owned, one.gpu != row.gpu))
}

/// The facts that are known without a measurement on several GPUs.
#[derive(Clone, Debug)]
pub struct FromOneGpu {
    /// The model of the benchmark.
    pub facts: &'static Benchmark,
    /// Whether it is FP16 rather than FP32.
    pub half: bool,
    /// The GPU.
    pub device: &'static DeviceSpec,
    /// The number of GPUs.
    pub gpus: u32,
    /// Samples per step on each GPU.
    pub batch: f64,
    /// Time of a step on one GPU with this batch.
    pub milliseconds: f64,
    /// The ratio of counted to actual work, relative to one GPU.
    counted: f64,
}

impl FromOneGpu {
    /// Predicts the milliseconds of a step on all GPUs.
    pub fn milliseconds(&self, fitted: &Fitted, unpublished: &Unpublished) -> Range {
        // Steps scale with the counted units if these are fitted.
        let units = match self.facts.name {
            "gnmt" => unpublished.gnmt_tokens / self.facts.counted_per_sample,
            _ => 1.0,
        };
        let step = SingleStep {
            milliseconds: self.milliseconds * units,
            gradient_bytes: self.facts.gradient_bytes(self.half),
            feeding_milliseconds: self.facts.feeding_milliseconds(self.batch, unpublished),
        };
        let topology = topology(self.device, self.gpus, fitted);
        on_several(&step, &topology, fitted).times(1.0 / units)
    }

    /// The prediction of linear scaling, which does not account for work that is counted but not
    /// done.
    pub fn linear_milliseconds(&self) -> f64 {
        self.milliseconds * self.counted
    }
}

/// The topology of a machine in the tables.
pub fn topology(device: &DeviceSpec, gpus: u32, fitted: &Fitted) -> Topology {
    let link = links::link(device, gpus, route(device), fitted.through_host);
    Topology { gpus, per_machine: gpus, link, network: link }
}

/// From October 2022 to 6 February 2023 the benchmark ran with `NCCL_P2P_DISABLE=1`: GPUs exchanged
/// data through host memory, regardless of their link (`benchmark_pytorch.sh` of
/// lambdal/deeplearning-benchmark, its commits of that time). GPUs sold before that were measured
/// then. The RTX 6000 Ada was released in December 2022, so it may have been measured before or
/// after the change. Hopper exchanges directly: 20 to 45 GB/s over PCIe in these tables.
fn route(device: &DeviceSpec) -> Route {
    match (links::route_of(device), device.capability()) {
        (Route::ThroughHost, _) => Route::ThroughHost,
        (_, Some((major, _))) if major >= 9 => Route::Direct,
        (_, Some((8, 9)) | None) => Route::Unknown,
        (_, Some(_)) => Route::ThroughHost,
    }
}

impl Task for FromOneGpu {
    fn lists(&self) -> Vec<ListRequest> {
        Vec::new()
    }

    fn predict(&self, _: &dyn ListSource) -> Result<Prediction, Unanswered> {
        let milliseconds = self.milliseconds(&SHIPPED, &UNPUBLISHED);
        let linear = Guess::plain("linear scaling", self.linear_milliseconds());
        Ok(Prediction { milliseconds, trivial: vec![linear] })
    }
}
