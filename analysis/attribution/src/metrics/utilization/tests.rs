//! Utilization of small graphs, with times computed by hand in nanoseconds.

use super::*;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_graph::recorded::{Measurement, Recorded, calibrated};
use ridgeline_graph::simulate;
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::{FileId, KernelCost, ModuleCost, ModuleId, Phase, Profile};

const LINE: (FileId, u32) = (FileId(0), 7);

#[derive(Default)]
struct GraphBuilder(Graph);

impl GraphBuilder {
    fn push(&mut self, resource: &Resource, task: Task) -> TaskId {
        let resource = self.0.resource(resource);
        self.0.push(resource, task)
    }

    /// Adds a task on a stream with a launch of 10 ns.
    fn on_gpu(&mut self, stream: i64, kind: TaskKind, name: &str, time_ns: f64) -> TaskId {
        let phase = Phase::Forward;
        let launch = self.push(&Resource::Host, Task::new(TaskKind::Launch, 10.0, phase));
        let name = Some(self.0.name(name));
        let mut task = Task::new(kind, time_ns, phase);
        (task.name, task.line) = (name, Some(LINE));
        let task = self.push(&Resource::Stream(0, stream), task);
        self.0.wait(launch, task, 0.0);
        task
    }

    fn matmul(&mut self, element: ElementType, tasks: &[TaskId]) {
        let tensor = || Tensor::new(element, &[10, 10]);
        let inputs = vec![Arg::Tensor(tensor()), Arg::Tensor(tensor())];
        let place = self.0.operators.len() as u32;
        self.0.operators.push(Operator::new("aten::mm", inputs, vec![tensor()]));
        for task in tasks {
            let task = self.0.task_mut(*task).expect("a task");
            (task.operator, task.call, task.module) = (Some(place), Some(place), Some(1));
        }
    }

    fn measured(self, profile: &Profile) -> UtilizationMetrics {
        let schedule = simulate::steady(&self.0).expect("it runs");
        let (graph, measured_ns) = (self.0, schedule.iteration_ns);
        let notes = Vec::new();
        measure(
            &Recorded { graph, schedule, replay_error: 0.0, measured_ns, host_factor: 1.0, notes },
            profile,
        )
    }
}

fn profile() -> Profile {
    let module = |parent| ModuleCost { parent, ..ModuleCost::default() };
    let kernel = |name: &str, occupancy| KernelCost {
        name: name.to_owned(),
        occupancy: Some(occupancy),
        ..KernelCost::default()
    };
    Profile {
        modules: vec![module(None), module(Some(ModuleId(0)))],
        kernels: vec![kernel("ampere_fp16_s16816gemm", 0.25), kernel("order", 0.75)],
        ..Profile::default()
    }
}

#[test]
fn a_matrix_multiplication_on_tensor_cores() {
    let mut builder = GraphBuilder::default();
    let matmul = builder.on_gpu(7, TaskKind::Kernel, "ampere_fp16_s16816gemm", 300.0);
    let order = builder.on_gpu(7, TaskKind::Kernel, "order", 100.0);
    builder.matmul(ElementType::Float16, &[matmul, order]);
    let found = builder.measured(&profile());
    let whole = found.metrics.whole;
    // 2000 operations and 600 bytes in 400 ns, 300 of them for the matrix multiplication.
    assert_eq!(whole.half, MeasuredWork { amount: 2000.0, time_ns: 400.0 });
    assert_eq!(whole.moved, MeasuredWork { amount: 600.0, time_ns: 400.0 });
    assert_eq!((whole.fp32, whole.tf32), (MeasuredWork::default(), MeasuredWork::default()));
    assert_eq!(whole.half.of_peak(Some(10e9)), Some(0.5));
    assert_eq!(whole.tensor_cores(), Some(1.0));
    assert_eq!(whole.occupancy(), Some((0.25 * 300.0 + 0.75 * 100.0) / 400.0));
    assert_eq!((whole.busy_ns, whole.kernel_ns, whole.launches), (400.0, 400.0, 2.0));
    assert_eq!(found.lines.get(&LINE).map(|line| line.half), Some(whole.half));
    // Parents include their children.
    assert_eq!(found.modules.iter().map(|one| one.half.amount).sum::<f64>(), 4000.0);
    let [data, forward, ..] = found.metrics.phases;
    assert_eq!((data.launches, forward.launch_ns), (0.0, 20.0));
}

#[test]
fn long_launches_are_counted_without_their_time() {
    let mut builder = GraphBuilder::default();
    builder.on_gpu(7, TaskKind::Kernel, "one", 100.0);
    let launches = builder.0.select(|task| task.kind == TaskKind::Launch);
    builder.0.task_mut(launches[0]).expect("a launch").duration_ns = 2e6;
    builder.on_gpu(7, TaskKind::Kernel, "two", 100.0);
    let whole = builder.measured(&profile()).metrics.whole;
    assert_eq!((whole.launches, whole.long_launches, whole.launch_ns), (2.0, 1.0, 10.0));
}

#[test]
fn the_type_of_a_matrix_multiplication() {
    for (element, kernel, expected) in [
        (ElementType::Float32, "volta_sgemm_128x64_nt", [2000.0, 0.0, 0.0]),
        (ElementType::Float32, "cutlass_80_tensorop_s1688gemm_64x64", [0.0, 2000.0, 0.0]),
        // Types decide if the name does not.
        (ElementType::BFloat16, "Cijk_Alik_Bljk_BBS_BH_MT64x64_MI16x16", [0.0, 0.0, 2000.0]),
        // There is no peak for it.
        (ElementType::Float64, "volta_dgemm_64x64_nn", [0.0; 3]),
    ] {
        let mut builder = GraphBuilder::default();
        let matmul = builder.on_gpu(7, TaskKind::Kernel, kernel, 300.0);
        builder.matmul(element, &[matmul]);
        let whole = builder.measured(&profile()).metrics.whole;
        let amounts = [whole.fp32.amount, whole.tf32.amount, whole.half.amount];
        assert_eq!(amounts, expected, "{kernel}");
    }
}

#[test]
fn busy_time_is_divided_among_running_kernels() {
    let mut builder = GraphBuilder::default();
    let first = builder.on_gpu(7, TaskKind::Kernel, "one", 100.0);
    let second = builder.on_gpu(9, TaskKind::Communication, "ncclKernel_AllReduce", 100.0);
    builder.0.wait(first, second, -40.0);
    let whole = builder.measured(&profile()).metrics.whole;
    assert_eq!((whole.busy_ns, whole.kernel_ns), (160.0, 100.0));
    assert_eq!((whole.communication_ns, whole.exposed_communication_ns), (100.0, 60.0));
}

#[test]
fn copies_by_direction() {
    let mut builder = GraphBuilder::default();
    for (name, bytes) in
        [("Memcpy HtoD (Host -> Device)", 5), ("CopyHostToDevice", 3), ("CopyDeviceToHost", 3)]
    {
        let copy = builder.on_gpu(7, TaskKind::HostCopy, name, 20.0);
        builder.0.task_mut(copy).expect("a copy").bytes = Some(bytes);
    }
    let whole = builder.measured(&profile()).metrics.whole;
    let copied = |bytes| CopyTotals { calls: 1.0, bytes, time_ns: 20.0 };
    let twice = CopyTotals { calls: 2.0, bytes: 8.0, time_ns: 40.0 };
    assert_eq!((whole.to_device, whole.to_host), (twice, copied(3.0)));
}

#[test]
fn unknown_kernel_names_make_tensor_core_use_unknown() {
    let part = Utilization {
        tensor_core_ns: 60.0,
        other_matmul_ns: 20.0,
        unknown_matmul_ns: 20.0,
        ..Utilization::default()
    };
    assert_eq!(part.tensor_cores(), Some(0.75));
    let unknown = Utilization { unknown_matmul_ns: 21.0, ..part };
    assert_eq!(unknown.tensor_cores(), None);
    assert_eq!(Utilization::default().tensor_cores(), None);
}

#[test]
fn a_cpu_has_operators() {
    let mut builder = GraphBuilder::default();
    let operator =
        builder.push(&Resource::Host, Task::new(TaskKind::HostOperator, 80.0, Phase::Forward));
    builder.matmul(ElementType::Float32, &[operator]);
    let gap = Task::new(TaskKind::HostGap, 20.0, Phase::Forward);
    let mut within = gap;
    within.is_in_operator = true;
    builder.push(&Resource::Host, within);
    builder.push(&Resource::Host, gap);
    let found = builder.measured(&profile()).metrics;
    assert!(!found.on_gpu);
    assert_eq!((found.iteration_ns, found.whole.operator_ns), (120.0, 100.0));
    assert_eq!(found.whole.fp32, MeasuredWork { amount: 2000.0, time_ns: 80.0 });
    assert_eq!((found.whole.busy_ns, found.whole.launches), (0.0, 0.0));
}

#[test]
fn launches_have_their_recorded_time() {
    // Two launches of 10 ns and two kernels of 100 ns that the host waits for, in iterations that
    // are shorter without the profiler than the kernels are with it.
    for measured_ns in [220.0, 210.0, 150.0] {
        let mut builder = GraphBuilder::default();
        for name in ["one", "two"] {
            let kernel = builder.on_gpu(7, TaskKind::Kernel, name, 100.0);
            let wait =
                builder.push(&Resource::Host, Task::new(TaskKind::Wait, 0.0, Phase::Forward));
            builder.0.wait(kernel, wait, 0.0);
        }
        let recorded =
            calibrated(builder.0, Measurement { time_ns: measured_ns, is_unprofiled: true }, 0.0)
                .expect("it runs");
        let whole = measure(&recorded, &profile()).metrics.whole;
        assert!((whole.launch_ns - 20.0).abs() < 1e-9, "{measured_ns}: {}", whole.launch_ns);
    }
}
