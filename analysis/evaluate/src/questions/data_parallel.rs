//! From the training throughput that was measured on one GPU to that on several of it: the tables of
//! `lambda/`.

use super::{Bar, Cases, Question};
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

/// The question.
pub struct DataParallel;

impl Question for DataParallel {
    fn id(&self) -> &'static str {
        "data_parallel"
    }

    fn title(&self) -> &'static str {
        "Data parallel: 1 GPU to 2, 4 and 8"
    }

    fn bar(&self) -> Bar {
        Bar { mean: 0.10, median: None, aim: 0.06 }
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

/// A measurement on several GPUs, with what is known without it.
pub struct Pair {
    /// What it is.
    pub label: String,
    /// What predicts.
    pub task: FromOneGpu,
    /// Milliseconds of a step, as measured.
    pub measured_milliseconds: f64,
}

/// Each row of several GPUs with the row of one such GPU that ran the same.
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
                // Where a GPU takes another batch than alone, the step is as much longer.
                milliseconds: milliseconds * all / f64::from(row.gpus) / batch,
                counted: facts.counted(all, row.gpus) / facts.counted(batch, 1),
            },
            measured_milliseconds: facts.step_milliseconds(all, row.gpus, row.per_second),
        });
    }
    pairs
}

/// The same on one GPU: of the same owner, else of nobody in particular, else of anyone.
fn single<'a>(
    truth: &'a GroundTruth,
    row: &LambdaRow,
    device: &DeviceSpec,
    devices: &'static DeviceTable,
) -> Option<&'a LambdaRow> {
    let alike = truth.lambda.iter().filter(|one| {
        let same_run = one.gpus == 1 && one.model == row.model && one.half == row.half;
        let named = |one: &LambdaRow| named_with_power(&one.gpu, one.watts, devices);
        same_run && named(one).is_some_and(|named| named.device.name == device.name)
    });
    let owned = row.owned_gpu();
    alike.min_by_key(|one| (one.gpu != owned, one.gpu != row.gpu))
}

/// What is known before several GPUs are measured.
#[derive(Clone, Debug)]
pub struct FromOneGpu {
    /// The model.
    pub facts: &'static Benchmark,
    /// In FP16; else FP32.
    pub half: bool,
    /// The GPU.
    pub device: &'static DeviceSpec,
    /// How many of it.
    pub gpus: u32,
    /// Samples in a step on each of them.
    pub batch: f64,
    /// A step on one, with the batch that each has.
    pub milliseconds: f64,
    /// How much more is counted than is done, beside one GPU.
    counted: f64,
}

impl FromOneGpu {
    /// Milliseconds of a step on all of them.
    pub fn milliseconds(&self, fitted: &Fitted, unpublished: &Unpublished) -> Range {
        // Steps of a model whose counted units were fitted scale with them.
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

    /// What N times the throughput of one GPU comes to: it knows nothing of what is counted without
    /// being done.
    pub fn linear_milliseconds(&self) -> f64 {
        self.milliseconds * self.counted
    }
}

/// How so many GPUs of a machine of the tables exchange.
pub fn topology(device: &DeviceSpec, gpus: u32, fitted: &Fitted) -> Topology {
    let link = links::link(device, gpus, route(device), fitted.through_host);
    Topology { gpus, per_machine: gpus, link, network: link }
}

/// From October 2022 to 6 February 2023 the benchmark ran with `NCCL_P2P_DISABLE=1`: GPUs exchanged
/// through the host's memory, whatever link they had (`benchmark_pytorch.sh` of
/// lambdal/deeplearning-benchmark, its commits of these days). What was sold before was measured then.
/// The RTX 6000 Ada came out in December 2022, so that it was measured on either side of the change.
/// Hopper exchanges directly: 20 to 45 GB/s over PCIe in the tables here.
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
