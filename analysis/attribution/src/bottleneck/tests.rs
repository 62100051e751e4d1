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
struct Made(Graph);

impl Made {
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
fn check(made: Made, gpu_busy: Option<f64>, expected: &[(Cause, f64)]) {
    let found = made.bottleneck();
    assert_eq!(found.gpu_busy.map(percent), gpu_busy);
    let savings: Vec<(Cause, f64)> =
        found.savings.iter().map(|saving| (saving.cause, percent(saving.share))).collect();
    assert_eq!(savings, expected);
    let Verdict::Cause(saving) = found.verdict() else { panic!("{:?}", found.verdict()) };
    assert_eq!(Some(saving.cause), expected.first().map(|(cause, _)| *cause));
}

#[test]
fn a_gpu_that_waits_for_python() {
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 90.0);
    made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 20.0);
    // The combined host cause saves everything except the GPU's time.
    check(
        made,
        Some(20.0),
        &[(Cause::HostCode, 80.0), (Cause::Launches, 10.0), (Cause::Host, 80.0)],
    );
}

#[test]
fn a_busy_host_ahead_of_a_busy_gpu_costs_nothing() {
    let mut made = Made::default();
    for _ in 0..4 {
        made.host(TaskKind::HostGap, 40.0);
        made.host(TaskKind::HostOperator, 40.0);
        made.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 100.0);
    }
    // The host works 90% of the time, and nothing waits for it.
    check(made, Some(100.0), &[(Cause::Compute, 10.0)]);
}

#[test]
fn a_host_that_leaves_the_gpu_idle_now_and_then() {
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 300.0);
    for _ in 0..2 {
        for _ in 0..20 {
            made.host(TaskKind::HostOperator, 10.0);
            made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 2.0);
        }
        made.host(TaskKind::HostOperator, 5.0);
        made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 505.0);
    }
    // The host takes 1130 and the GPU 1090: launches are 73% of the critical path, but removing all
    // of them saves 3.5%.
    let found = made.bottleneck();
    assert_eq!(found.iteration_ns, 1130.0);
    assert_eq!(percent(found.gpu_busy.unwrap_or_default()), 96.5);
    assert_eq!(percent(found.share(Cause::Launches)), 3.5);
    assert_eq!(percent(found.share(Cause::HostCode)), 3.5);
}

#[test]
fn a_gpu_that_is_always_busy() {
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 10.0);
    let product = made.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 300.0);
    made.operator(product, "aten::mm", [&[20, 20], &[20, 20]]);
    let copy = made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 100.0);
    made.operator(copy, "aten::add", [&[20, 20], &[20, 20]]);
    check(made, Some(100.0), &[(Cause::Compute, 75.0), (Cause::MemoryBandwidth, 25.0)]);
}

#[test]
fn a_products_other_kernels_move_data() {
    let mut made = Made::default();
    let product = made.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 300.0);
    made.operator(product, "aten::mm", [&[20, 20], &[20, 20]]);
    let order = made.on_gpu(7, TaskKind::Kernel, "nchwToNhwcKernel", 100.0);
    if let Some(task) = made.0.task_mut(order) {
        (task.operator, task.call) = (Some(0), Some(0));
    }
    check(made, Some(100.0), &[(Cause::Compute, 75.0), (Cause::MemoryBandwidth, 25.0)]);
}

#[test]
fn kernels_that_nobody_knows() {
    let mut made = Made::default();
    made.on_gpu(7, TaskKind::Kernel, "mine", 300.0);
    made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 100.0);
    check(made, Some(100.0), &[(Cause::Kernels, 75.0), (Cause::MemoryBandwidth, 25.0)]);
}

#[test]
fn many_small_kernels() {
    let mut made = Made::default();
    for _ in 0..50 {
        made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 2.0);
    }
    check(made, Some(20.0), &[(Cause::Launches, 80.0), (Cause::Host, 80.0)]);
}

#[test]
fn delays_before_kernels_are_launch_overhead() {
    let mut made = Made::default();
    for _ in 0..4 {
        let launch = made.host(TaskKind::Launch, 10.0);
        let stream = made.0.resource(&Resource::Stream(0, 7));
        let kernel = made.0.push(stream, Task::new(TaskKind::Kernel, 50.0, Phase::Forward));
        made.0.wait(launch, kernel, 40.0);
        made.wait_for(kernel, 3);
    }
    // Without the waits, launches run ahead of kernels.
    check(
        made,
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
fn a_kernel_that_comes_late_for_no_known_reason() {
    let mut made = Made::default();
    let launch = made.host(TaskKind::Launch, 1_000.0);
    let stream = made.0.resource(&Resource::Stream(0, 7));
    let kernel = made.0.push(stream, Task::new(TaskKind::Kernel, 9_000.0, Phase::Forward));
    made.0.wait(launch, kernel, 90_000.0);
    made.wait_for(kernel, 3);
    let found = made.bottleneck();
    // At most 20 of the 90 µs can be launch delay.
    assert_eq!(percent(found.share(Cause::Launches)), 21.0);
}

#[test]
fn an_operator_that_searches_for_an_algorithm_is_host_code() {
    let mut made = Made::default();
    let search = made.host(TaskKind::HostOperator, 3e6);
    let dispatch = made.host(TaskKind::HostOperator, 20e3);
    let kernel = made.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 1e6);
    let launch = made.0.task(kernel).and_then(|kernel| kernel.launched_by).expect("its launch");
    for task in [search, dispatch, launch] {
        made.operator(task, "aten::conv2d", [&[20, 20], &[20, 20]]);
        made.0.task_mut(task).expect("a task").call = Some(0);
    }
    let found = made.bottleneck();
    assert_eq!(percent(found.share(Cause::HostCode)), 66.9);
    assert_eq!(percent(found.share(Cause::Launches)), 0.7);
}

#[test]
fn parts_of_the_host_that_hide_behind_one_another() {
    // Two threads launch the same work for one GPU each, one with slow Python and one with slow
    // launches.
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 90.0);
    made.on_gpu(7, TaskKind::Kernel, "mine", 20.0);
    let other = Resource::OtherThread(2);
    let launch = made.task(&other, TaskKind::Launch, 100.0, Phase::Forward);
    let kernel = made.task(&Resource::Stream(1, 7), TaskKind::Kernel, 20.0, Phase::Forward);
    made.0.wait(launch, kernel, 0.0);
    let found = made.bottleneck();
    // Removing one cause does not help, because the other thread still takes as long.
    assert_eq!(found.share(Cause::HostCode), 0.0);
    assert_eq!(percent(found.share(Cause::Launches)), 10.0);
    assert_eq!(percent(found.share(Cause::Host)), 80.0);
    assert!(matches!(found.verdict(), Verdict::Cause(saving) if saving.cause == Cause::Host));
}

#[test]
fn waiting_costs_what_running_ahead_would_save() {
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 90.0);
    let kernel = made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 300.0);
    made.wait_for(kernel, 12);
    let found = made.bottleneck();
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
    let mut made = Made::default();
    made.task(&Resource::Host, TaskKind::HostGap, 190.0, Phase::Data);
    made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 100.0);
    check(
        made,
        Some(50.0),
        &[(Cause::DataLoading, 50.0), (Cause::Launches, 5.0), (Cause::Host, 50.0)],
    );
}

#[test]
fn a_batch_that_is_copied_while_everybody_waits() {
    let mut made = Made::default();
    let copy = made.on_gpu(7, TaskKind::HostCopy, "Memcpy HtoD (Pageable -> Device)", 290.0);
    made.wait_for(copy, 3);
    made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 5.0);
    // The copy's launch and the wait are part of it.
    check(
        made,
        Some(95.2),
        &[(Cause::HostCopies, 96.8), (Cause::Launches, 3.2), (Cause::Host, 3.2)],
    );
}

#[test]
fn gradients_that_nothing_hides() {
    let mut made = Made::default();
    let backward = made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_backward", 100.0);
    let reduce = made.on_gpu(9, TaskKind::Communication, "ncclKernel_AllReduce", 300.0);
    made.0.wait(backward, reduce, 0.0);
    let step = made.on_gpu(7, TaskKind::Kernel, "void multi_tensor_apply_kernel", 100.0);
    made.0.wait(reduce, step, 0.0);
    check(made, Some(100.0), &[(Cause::Communication, 60.0), (Cause::MemoryBandwidth, 40.0)]);
}

#[test]
fn gradients_that_hide_cost_nothing() {
    let mut made = Made::default();
    made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_backward", 300.0);
    made.on_gpu(9, TaskKind::Communication, "ncclKernel_AllReduce", 200.0);
    check(made, Some(100.0), &[(Cause::MemoryBandwidth, 33.3)]);
}

#[test]
fn kernels_do_not_overlap_more_than_they_did() {
    // A slow host starts the streams one after the other. A faster one would start them at the same
    // time, but one GPU cannot do twice the work.
    let mut made = Made::default();
    for stream in 0..4 {
        made.host(TaskKind::HostGap, 90.0);
        made.on_gpu(stream, TaskKind::Kernel, "mine", 80.0);
    }
    let recorded = made.recorded();
    let causes = Causes::new(&recorded.graph, None);
    let then_ns = causes.without(&recorded.graph, Cause::is_of_host).expect("it runs");
    let found = bottleneck(&recorded, None).expect("it takes time");
    holds(&found);
    assert_eq!((found.iteration_ns, then_ns), (400.0, 80.0));
    assert_eq!((percent(found.share(Cause::Host)), found.gpu_busy), (20.0, Some(0.8)));
}

#[test]
fn a_replay_that_is_far_off_has_no_verdict() {
    let mut made = Made::default();
    made.on_gpu(7, TaskKind::Kernel, "mine", 80.0);
    let recorded = Recorded { replay_error: -0.3, ..made.recorded() };
    let found = bottleneck(&recorded, None).expect("it takes time");
    assert_eq!((found.verdict(), found.savings.len()), (Verdict::Unknown, 0));
    assert_eq!((found.untrusted, found.gpu_busy), (Some(0.3), None));
}

#[test]
fn a_cpu_by_its_own_ceilings() {
    let mut made = Made::default();
    let on_cpu = |made: &mut Made, name: &str, size: u64, time_ns: f64| {
        let task = made.host(TaskKind::HostOperator, time_ns);
        made.operator(task, name, [&[size, size], &[size, size]]);
    };
    made.task(&Resource::Host, TaskKind::HostGap, 1e6, Phase::Data);
    // 2 GFLOP in 10 ms, and the same matrix multiplication 20 times slower: limited by neither
    // arithmetic nor memory.
    on_cpu(&mut made, "aten::mm", 1000, 10e6);
    on_cpu(&mut made, "aten::mm", 1000, 200e6);
    // 12 MB in 5 ms.
    on_cpu(&mut made, "aten::add", 1000, 5e6);
    made.host(TaskKind::HostGap, 4e6);
    // Everything runs on one thread: the savings add up.
    check(
        made,
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
fn small_operators_of_a_cpu_show_no_ceiling() {
    let mut made = Made::default();
    for _ in 0..10 {
        let task = made.host(TaskKind::HostOperator, 5e3);
        made.operator(task, "aten::mm", [&[8, 8], &[8, 8]]);
    }
    check(made, None, &[(Cause::Operators, 100.0)]);
}

#[test]
fn nothing_has_no_bottleneck() {
    assert_eq!(bottleneck(&Made::default().recorded(), None), None);
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
    fn waiting_costs_at_most_what_is_idle_whatever_waits_for_whom(
        tasks in prop::collection::vec((any_kind(), 0i64..3, 0.0..1e6, 0usize..40, -1e3..1e4), 1..40),
    ) {
        let mut made = Made::default();
        let mut ids: Vec<TaskId> = Vec::new();
        for (kind, stream, time_ns, from, lag_ns) in tasks {
            let resource =
                if kind.is_host() { Resource::Host } else { Resource::Stream(0, stream) };
            let id = made.task(&resource, kind, time_ns, Phase::Forward);
            if let Some(from) = ids.get(from).copied() {
                made.0.wait(from, id, lag_ns);
            }
            ids.push(id);
        }
        prop_assume!(simulate::steady(&made.0).is_ok_and(|schedule| schedule.iteration_ns > 0.0));
        let found = made.bottleneck();
        prop_assert!(found.savings.iter().all(|it| it.share > 0.0 && it.share <= 1.0 + 1e-9));
        let parts = found.savings.iter().filter(|it| it.cause.is_of_host());
        prop_assert!(parts.fold(0.0, |most: f64, it| most.max(it.share)) <= found.share(Cause::Host) + 1e-9 || found.gpu_busy.is_none());
    }
}
