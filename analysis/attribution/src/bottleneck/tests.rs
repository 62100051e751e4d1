//! Bottlenecks of small iterations, computed by hand in nanoseconds.

use proptest::prelude::*;

use super::*;
use ridgeline_graph::graph::Task;
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;
use ridgeline_profile::bottleneck::Verdict;

/// 1 operation and 1 byte per nanosecond: the ridge is at one operation per byte.
const ROOF: Roof =
    Roof { fp32_flops: Some(1e9), tf32_flops: None, fp16_flops: None, bandwidth: Some(1e9) };

#[derive(Default)]
struct GraphBuilder(Graph);

impl GraphBuilder {
    fn task(&mut self, resource: &Resource, kind: TaskKind, time_ns: f64, phase: Phase) -> TaskId {
        let resource = self.0.resource(resource);
        self.0.push(resource, Task::new(kind, time_ns, phase))
    }

    fn host(&mut self, kind: TaskKind, time_ns: f64) -> TaskId {
        self.task(&Resource::Host, kind, time_ns, Phase::Forward)
    }

    /// Adds a launch of 10 ns and its GPU task.
    fn on_gpu(&mut self, stream: i64, kind: TaskKind, name: &str, time_ns: f64) -> TaskId {
        let launch = self.host(TaskKind::Launch, 10.0);
        let started = self.task(&Resource::Stream(0, stream), kind, time_ns, Phase::Forward);
        let name = self.0.name(name);
        if let Some(task) = self.0.task_mut(started) {
            (task.name, task.launched_by) = (Some(name), Some(launch));
        }
        self.0.wait(launch, started, 0.0);
        started
    }

    fn wait_for(&mut self, task: TaskId, line: u32) {
        let wait = self.host(TaskKind::Wait, 0.0);
        self.0.wait(task, wait, 0.0);
        if let Some(wait) = self.0.task_mut(wait) {
            wait.line = Some((FileId(0), line));
        }
    }

    fn operator(&mut self, task: TaskId, name: &str, shapes: [&[u64]; 2]) {
        let tensor = |shape: &[u64]| Tensor::new(ElementType::Float32, shape);
        let inputs = shapes.iter().map(|shape| Arg::Tensor(tensor(shape))).collect();
        let [first, second] = shapes;
        let output = tensor(&[first[0], second[1]]);
        let place = self.0.operators.len() as u32;
        self.0.operators.push(Operator::new(name, inputs, vec![output]));
        if let Some(task) = self.0.task_mut(task) {
            (task.operator, task.call) = (Some(place), Some(place));
        }
    }

    fn recorded(self) -> Recorded {
        let schedule = simulate::steady(&self.0).expect("it runs");
        let (graph, measured_ns) = (self.0, schedule.iteration_ns);
        let (replay_error, host_factor, notes) = (0.0, 1.0, Vec::new());
        Recorded { graph, schedule, replay_error, measured_ns, host_factor, notes }
    }

    fn bottleneck(self) -> Bottleneck {
        let found = bottleneck(&self.recorded(), Some(&ROOF)).expect("it takes time");
        holds(&found);
        found
    }
}

/// Waiting costs at most the idle time of the GPU.
#[track_caller]
fn holds(found: &Bottleneck) {
    let Some(busy) = found.gpu_busy else { return };
    for cause in WAITING {
        let share = found.share(cause);
        assert!(share <= 1.0 - busy + 1e-9, "{cause:?} {share} beside {busy}");
    }
}

/// Causes without GPU work.
const WAITING: [Cause; 5] =
    [Cause::Launches, Cause::HostCode, Cause::Synchronization, Cause::DataLoading, Cause::Host];

fn percent(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

/// Checks how busy the GPU is and what each cause would save, in percent; the verdict is the first
/// of them.
#[track_caller]
fn check(builder: GraphBuilder, gpu_busy: Option<f64>, expected: &[(Cause, f64)]) {
    let found = builder.bottleneck();
    assert_eq!(found.gpu_busy.map(percent), gpu_busy);
    let savings: Vec<(Cause, f64)> =
        found.savings.iter().map(|saving| (saving.cause, percent(saving.share))).collect();
    assert_eq!(savings, expected);
    let Verdict::Cause(saving) = found.verdict() else { panic!("{:?}", found.verdict()) };
    assert_eq!(Some(saving.cause), expected.first().map(|(cause, _)| *cause));
}

#[test]
fn a_gpu_that_waits_for_python() {
    let mut builder = GraphBuilder::default();
    builder.host(TaskKind::HostGap, 90.0);
    builder.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 20.0);
    // The combined host cause saves everything except the GPU's time.
    check(
        builder,
        Some(20.0),
        &[(Cause::HostCode, 80.0), (Cause::Launches, 10.0), (Cause::Host, 80.0)],
    );
}

#[test]
fn a_busy_host_ahead_of_a_busy_gpu_is_free() {
    let mut builder = GraphBuilder::default();
    for _ in 0..4 {
        builder.host(TaskKind::HostGap, 40.0);
        builder.host(TaskKind::HostOperator, 40.0);
        builder.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 100.0);
    }
    // The host works 90% of the time, and nothing waits for it.
    check(builder, Some(100.0), &[(Cause::Compute, 10.0)]);
}

#[test]
fn a_host_that_sometimes_leaves_the_gpu_idle() {
    let mut builder = GraphBuilder::default();
    builder.host(TaskKind::HostGap, 300.0);
    for _ in 0..2 {
        for _ in 0..20 {
            builder.host(TaskKind::HostOperator, 10.0);
            builder.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 2.0);
        }
        builder.host(TaskKind::HostOperator, 5.0);
        builder.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 505.0);
    }
    // The host takes 1130 and the GPU 1090: launches are 73% of the critical path, but removing all
    // of them saves 3.5%.
    let found = builder.bottleneck();
    assert_eq!(found.iteration_ns, 1130.0);
    assert_eq!(percent(found.gpu_busy.unwrap_or_default()), 96.5);
    assert_eq!(percent(found.share(Cause::Launches)), 3.5);
    assert_eq!(percent(found.share(Cause::HostCode)), 3.5);
}

#[test]
fn a_gpu_that_is_always_busy() {
    let mut builder = GraphBuilder::default();
    builder.host(TaskKind::HostGap, 10.0);
    let matmul = builder.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 300.0);
    builder.operator(matmul, "aten::mm", [&[20, 20], &[20, 20]]);
    let copy = builder.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 100.0);
    builder.operator(copy, "aten::add", [&[20, 20], &[20, 20]]);
    check(builder, Some(100.0), &[(Cause::Compute, 75.0), (Cause::MemoryBandwidth, 25.0)]);
}

#[test]
fn other_kernels_of_a_gemm_are_memory_bound() {
    let mut builder = GraphBuilder::default();
    let matmul = builder.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 300.0);
    builder.operator(matmul, "aten::mm", [&[20, 20], &[20, 20]]);
    let order = builder.on_gpu(7, TaskKind::Kernel, "nchwToNhwcKernel", 100.0);
    if let Some(task) = builder.0.task_mut(order) {
        (task.operator, task.call) = (Some(0), Some(0));
    }
    check(builder, Some(100.0), &[(Cause::Compute, 75.0), (Cause::MemoryBandwidth, 25.0)]);
}

#[test]
fn kernels_with_unknown_limits() {
    let mut builder = GraphBuilder::default();
    builder.on_gpu(7, TaskKind::Kernel, "mine", 300.0);
    builder.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 100.0);
    check(builder, Some(100.0), &[(Cause::Kernels, 75.0), (Cause::MemoryBandwidth, 25.0)]);
}

#[test]
fn many_small_kernels() {
    let mut builder = GraphBuilder::default();
    for _ in 0..50 {
        builder.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 2.0);
    }
    check(builder, Some(20.0), &[(Cause::Launches, 80.0), (Cause::Host, 80.0)]);
}

#[test]
fn delays_before_kernels_are_launch_overhead() {
    let mut builder = GraphBuilder::default();
    for _ in 0..4 {
        let launch = builder.host(TaskKind::Launch, 10.0);
        let stream = builder.0.resource(&Resource::Stream(0, 7));
        let kernel = builder.0.push(stream, Task::new(TaskKind::Kernel, 50.0, Phase::Forward));
        builder.0.wait(launch, kernel, 40.0);
        builder.wait_for(kernel, 3);
    }
    // Without the waits, launches run ahead of kernels.
    check(
        builder,
        Some(50.0),
        &[
            (Cause::Kernels, 50.0),
            (Cause::Launches, 50.0),
            (Cause::Synchronization, 50.0),
            (Cause::Host, 50.0),
        ],
    );
}

#[test]
fn a_kernel_that_is_late_for_an_unknown_reason() {
    let mut builder = GraphBuilder::default();
    let launch = builder.host(TaskKind::Launch, 1_000.0);
    let stream = builder.0.resource(&Resource::Stream(0, 7));
    let kernel = builder.0.push(stream, Task::new(TaskKind::Kernel, 9_000.0, Phase::Forward));
    builder.0.wait(launch, kernel, 90_000.0);
    builder.wait_for(kernel, 3);
    let found = builder.bottleneck();
    // At most 20 of the 90 µs can be launch delay.
    assert_eq!(percent(found.share(Cause::Launches)), 21.0);
}

#[test]
fn an_operator_that_searches_for_an_algorithm_is_host_code() {
    let mut builder = GraphBuilder::default();
    let search = builder.host(TaskKind::HostOperator, 3e6);
    let dispatch = builder.host(TaskKind::HostOperator, 20e3);
    let kernel = builder.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 1e6);
    let launch = builder.0.task(kernel).and_then(|kernel| kernel.launched_by).expect("its launch");
    for task in [search, dispatch, launch] {
        builder.operator(task, "aten::conv2d", [&[20, 20], &[20, 20]]);
        builder.0.task_mut(task).expect("a task").call = Some(0);
    }
    let found = builder.bottleneck();
    assert_eq!(percent(found.share(Cause::HostCode)), 66.9);
    assert_eq!(percent(found.share(Cause::Launches)), 0.7);
}

#[test]
fn overlapping_host_causes() {
    // Two threads launch the same work for one GPU each, one with slow Python and one with slow
    // launches.
    let mut builder = GraphBuilder::default();
    builder.host(TaskKind::HostGap, 90.0);
    builder.on_gpu(7, TaskKind::Kernel, "mine", 20.0);
    let other = Resource::OtherThread(2);
    let launch = builder.task(&other, TaskKind::Launch, 100.0, Phase::Forward);
    let kernel = builder.task(&Resource::Stream(1, 7), TaskKind::Kernel, 20.0, Phase::Forward);
    builder.0.wait(launch, kernel, 0.0);
    let found = builder.bottleneck();
    // Removing one cause does not help, because the other thread still takes as long.
    assert_eq!(found.share(Cause::HostCode), 0.0);
    assert_eq!(percent(found.share(Cause::Launches)), 10.0);
    assert_eq!(percent(found.share(Cause::Host)), 80.0);
    assert!(matches!(found.verdict(), Verdict::Cause(saving) if saving.cause == Cause::Host));
}

#[test]
fn waiting_costs_the_time_that_running_ahead_would_save() {
    let mut builder = GraphBuilder::default();
    builder.host(TaskKind::HostGap, 90.0);
    let kernel = builder.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 300.0);
    builder.wait_for(kernel, 12);
    let found = builder.bottleneck();
    // 400 with the wait, 300 without it.
    assert_eq!(found.iteration_ns, 400.0);
    assert_eq!(found.share(Cause::Synchronization), 0.25);
    assert_eq!(found.share(Cause::MemoryBandwidth), 0.75);
    assert_eq!(found.share(Cause::HostCode), 0.225);
    assert_eq!(found.share(Cause::Launches), 0.025);
    let synchronization = found.saving(Cause::Synchronization);
    let lines = synchronization.map(|saving| saving.lines.clone());
    assert_eq!(lines, Some(vec![((FileId(0), 12), 100.0)]));
}

#[test]
fn a_loader_that_is_slow() {
    let mut builder = GraphBuilder::default();
    builder.task(&Resource::Host, TaskKind::HostGap, 190.0, Phase::Data);
    builder.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 100.0);
    check(
        builder,
        Some(50.0),
        &[(Cause::DataLoading, 50.0), (Cause::Launches, 5.0), (Cause::Host, 50.0)],
    );
}

#[test]
fn a_batch_copy_that_everything_waits_for() {
    let mut builder = GraphBuilder::default();
    let copy = builder.on_gpu(7, TaskKind::HostCopy, "Memcpy HtoD (Pageable -> Device)", 290.0);
    builder.wait_for(copy, 3);
    builder.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 5.0);
    // The copy's launch and the wait are part of it.
    check(
        builder,
        Some(95.2),
        &[(Cause::HostCopies, 96.8), (Cause::Launches, 3.2), (Cause::Host, 3.2)],
    );
}

#[test]
fn a_wait_for_the_kernels_before_a_small_copy_is_synchronization() {
    let mut builder = GraphBuilder::default();
    builder.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 500.0);
    let copy = builder.on_gpu(7, TaskKind::HostCopy, "Memcpy HtoD (Host -> Device)", 5.0);
    builder.wait_for(copy, 3);
    builder.host(TaskKind::HostGap, 200.0);
    let found = builder.bottleneck();
    assert!(found.share(Cause::Synchronization) > 0.25, "{found:?}");
    assert!(found.share(Cause::HostCopies) < 0.05, "{found:?}");
}

#[test]
fn exposed_gradient_communication() {
    let mut builder = GraphBuilder::default();
    let backward = builder.on_gpu(7, TaskKind::Kernel, "void softmax_warp_backward", 100.0);
    let reduce = builder.on_gpu(9, TaskKind::Communication, "ncclKernel_AllReduce", 300.0);
    builder.0.wait(backward, reduce, 0.0);
    let step = builder.on_gpu(7, TaskKind::Kernel, "void multi_tensor_apply_kernel", 100.0);
    builder.0.wait(reduce, step, 0.0);
    check(builder, Some(100.0), &[(Cause::Communication, 60.0), (Cause::MemoryBandwidth, 40.0)]);
}

#[test]
fn hidden_gradient_communication_is_free() {
    let mut builder = GraphBuilder::default();
    builder.on_gpu(7, TaskKind::Kernel, "void softmax_warp_backward", 300.0);
    builder.on_gpu(9, TaskKind::Communication, "ncclKernel_AllReduce", 200.0);
    check(builder, Some(100.0), &[(Cause::MemoryBandwidth, 33.3)]);
}

#[test]
fn kernels_do_not_overlap_more_than_recorded() {
    // A slow host starts the streams one after the other. A faster one would start them at the same
    // time, but one GPU cannot do twice the work.
    let mut builder = GraphBuilder::default();
    for stream in 0..4 {
        builder.host(TaskKind::HostGap, 90.0);
        builder.on_gpu(stream, TaskKind::Kernel, "mine", 80.0);
    }
    let recorded = builder.recorded();
    let causes = Causes::new(&recorded.graph, &recorded.schedule, None);
    let then_ns = causes.without(&recorded.graph, Cause::is_of_host).expect("it runs");
    let found = bottleneck(&recorded, None).expect("it takes time");
    holds(&found);
    assert_eq!((found.iteration_ns, then_ns), (400.0, 80.0));
    assert_eq!((percent(found.share(Cause::Host)), found.gpu_busy), (20.0, Some(0.8)));
}

#[test]
fn an_inaccurate_replay_has_no_verdict() {
    let mut builder = GraphBuilder::default();
    builder.on_gpu(7, TaskKind::Kernel, "mine", 80.0);
    let recorded = Recorded { replay_error: -0.3, ..builder.recorded() };
    let found = bottleneck(&recorded, None).expect("it takes time");
    assert_eq!((found.verdict(), found.savings.len()), (Verdict::Unknown, 0));
    assert_eq!((found.untrusted, found.gpu_busy), (Some(0.3), None));
}

#[test]
fn a_cpu_with_measured_peaks() {
    let mut builder = GraphBuilder::default();
    let on_cpu = |builder: &mut GraphBuilder, name: &str, size: u64, time_ns: f64| {
        let task = builder.host(TaskKind::HostOperator, time_ns);
        builder.operator(task, name, [&[size, size], &[size, size]]);
    };
    builder.task(&Resource::Host, TaskKind::HostGap, 1e6, Phase::Data);
    // 2 GFLOP in 10 ms, and the same matrix multiplication 20 times slower: limited by neither
    // arithmetic nor memory.
    on_cpu(&mut builder, "aten::mm", 1000, 10e6);
    on_cpu(&mut builder, "aten::mm", 1000, 200e6);
    // 12 MB in 5 ms.
    on_cpu(&mut builder, "aten::add", 1000, 5e6);
    builder.host(TaskKind::HostGap, 4e6);
    // Everything runs on one thread: the savings add up.
    check(
        builder,
        None,
        &[
            (Cause::Operators, 90.9),
            (Cause::Compute, 4.5),
            (Cause::MemoryBandwidth, 2.3),
            (Cause::HostCode, 1.8),
            (Cause::DataLoading, 0.5),
        ],
    );
}

#[test]
fn small_cpu_operators_do_not_determine_peaks() {
    let mut builder = GraphBuilder::default();
    for _ in 0..10 {
        let task = builder.host(TaskKind::HostOperator, 5e3);
        builder.operator(task, "aten::mm", [&[8, 8], &[8, 8]]);
    }
    check(builder, None, &[(Cause::Operators, 100.0)]);
}

#[test]
fn an_empty_graph_has_no_bottleneck() {
    assert_eq!(bottleneck(&GraphBuilder::default().recorded(), None), None);
}

fn any_kind() -> impl Strategy<Value = TaskKind> {
    prop::sample::select(vec![
        TaskKind::HostOperator,
        TaskKind::HostGap,
        TaskKind::Launch,
        TaskKind::Wait,
        TaskKind::Kernel,
        TaskKind::HostCopy,
        TaskKind::DeviceCopy,
        TaskKind::Communication,
    ])
}

proptest! {
    #[test]
    fn waiting_costs_at_most_the_idle_time(
        tasks in prop::collection::vec((any_kind(), 0i64..3, 0.0..1e6, 0usize..40, -1e3..1e4), 1..40),
    ) {
        let mut builder = GraphBuilder::default();
        let mut ids: Vec<TaskId> = Vec::new();
        for (kind, stream, time_ns, from, lag_ns) in tasks {
            let resource =
                if kind.is_host() { Resource::Host } else { Resource::Stream(0, stream) };
            let id = builder.task(&resource, kind, time_ns, Phase::Forward);
            if let Some(from) = ids.get(from).copied() {
                builder.0.wait(from, id, lag_ns);
            }
            ids.push(id);
        }
        prop_assume!(simulate::steady(&builder.0).is_ok_and(|schedule| schedule.iteration_ns > 0.0));
        let found = builder.bottleneck();
        prop_assert!(found.savings.iter().all(|it| it.share > 0.0 && it.share <= 1.0 + 1e-9));
        let parts = found.savings.iter().filter(|it| it.cause.is_of_host());
        prop_assert!(parts.fold(0.0, |most: f64, it| most.max(it.share)) <= found.share(Cause::Host) + 1e-9 || found.gpu_busy.is_none());
    }
}
