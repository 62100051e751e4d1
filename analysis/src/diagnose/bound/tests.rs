//! Verdicts on iterations that were thought out by hand, in nanoseconds.

use proptest::prelude::*;

use super::*;
use crate::predict::operator::{Arg, ElementType, Operator, Tensor};
use crate::profile::Phase;
use crate::whatif::graph::Task;

/// 1 operation and 1 byte a nanosecond: the ridge is at one operation a byte.
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

    /// A launch of 10 ns and what it starts.
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

    fn bound(self) -> Bound {
        let schedule = simulate::steady(&self.0).expect("it runs");
        let measured_ns = schedule.iteration_ns;
        let (graph, notes) = (self.0, Vec::new());
        let recorded = Recorded { graph, schedule, replay_error: 0.0, measured_ns, notes };
        let found = bound(&recorded, Some(&ROOF)).expect("it takes time");
        let sum: f64 = found.shares.iter().map(|share| share.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        found
    }
}

/// What bounds it, in percent.
#[track_caller]
fn check(made: Made, expected: &[(Bottleneck, f64)]) {
    let found = made.bound();
    let shares: Vec<(Bottleneck, f64)> = found
        .shares
        .iter()
        .map(|share| (share.by, (share.share * 1000.0).round() / 10.0))
        .collect();
    assert_eq!(shares, expected);
    assert_eq!(found.verdict().map(|share| share.by), expected.first().map(|(by, _)| *by));
}

#[test]
fn a_gpu_that_waits_for_python() {
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 90.0);
    made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 20.0);
    check(made, &[(Bottleneck::HostCode, 90.0), (Bottleneck::Launches, 10.0)]);
}

#[test]
fn a_gpu_that_is_always_at_work() {
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 10.0);
    let product = made.on_gpu(7, TaskKind::Kernel, "volta_sgemm_128x64_nt", 300.0);
    made.operator(product, "aten::mm", [&[20, 20], &[20, 20]]);
    let copy = made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 100.0);
    made.operator(copy, "aten::add", [&[20, 20], &[20, 20]]);
    check(made, &[(Bottleneck::Compute, 75.0), (Bottleneck::MemoryBandwidth, 25.0)]);
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
    check(made, &[(Bottleneck::Compute, 75.0), (Bottleneck::MemoryBandwidth, 25.0)]);
}

#[test]
fn kernels_that_nobody_knows() {
    let mut made = Made::default();
    made.on_gpu(7, TaskKind::Kernel, "mine", 300.0);
    made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 100.0);
    let found = made.bound();
    assert_eq!(found.verdict(), None);
    assert_eq!(found.share(Bottleneck::Unknown), 0.75);
    assert_eq!(found.shares.last().map(|share| share.by), Some(Bottleneck::Unknown));
}

#[test]
fn many_small_kernels() {
    let mut made = Made::default();
    for _ in 0..50 {
        made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 2.0);
    }
    check(made, &[(Bottleneck::Launches, 100.0)]);
}

#[test]
fn waiting_costs_what_running_ahead_would_save() {
    let mut made = Made::default();
    made.host(TaskKind::HostGap, 90.0);
    let kernel = made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_forward", 300.0);
    made.wait_for(kernel, 12);
    let found = made.bound();
    // 400 with the wait, of which 300 are left without it.
    assert_eq!(found.iteration_ns, 400.0);
    assert_eq!(found.share(Bottleneck::Synchronization), 0.25);
    assert_eq!(found.share(Bottleneck::MemoryBandwidth), 0.75);
    let lines = found.shares.iter().find(|share| share.by == Bottleneck::Synchronization);
    assert_eq!(lines.map(|share| share.lines.clone()), Some(vec![((FileId(0), 12), 100.0)]));
}

#[test]
fn a_loader_that_is_slow() {
    let mut made = Made::default();
    made.task(&Resource::Host, TaskKind::HostGap, 190.0, Phase::Data);
    made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 100.0);
    check(made, &[(Bottleneck::DataLoading, 95.0), (Bottleneck::Launches, 5.0)]);
}

#[test]
fn a_batch_that_is_copied_while_everybody_waits() {
    let mut made = Made::default();
    let copy = made.on_gpu(7, TaskKind::HostCopy, "Memcpy HtoD (Pageable -> Device)", 290.0);
    made.wait_for(copy, 3);
    made.on_gpu(7, TaskKind::Kernel, "void elementwise_kernel", 5.0);
    // The copy's own launch is part of it, and so is the wait.
    check(made, &[(Bottleneck::HostCopies, 96.8), (Bottleneck::Launches, 3.2)]);
}

#[test]
fn gradients_that_nothing_hides() {
    let mut made = Made::default();
    let backward = made.on_gpu(7, TaskKind::Kernel, "void softmax_warp_backward", 100.0);
    let reduce = made.on_gpu(9, TaskKind::Communication, "ncclKernel_AllReduce", 300.0);
    made.0.wait(backward, reduce, 0.0);
    let step = made.on_gpu(7, TaskKind::Kernel, "void multi_tensor_apply_kernel", 100.0);
    made.0.wait(reduce, step, 0.0);
    check(made, &[(Bottleneck::Communication, 60.0), (Bottleneck::MemoryBandwidth, 40.0)]);
}

#[test]
fn a_processor_by_its_own_ceilings() {
    let mut made = Made::default();
    let on_cpu = |made: &mut Made, name: &str, size: u64, time_ns: f64| {
        let task = made.host(TaskKind::HostOperator, time_ns);
        made.operator(task, name, [&[size, size], &[size, size]]);
    };
    made.task(&Resource::Host, TaskKind::HostGap, 1e6, Phase::Data);
    // 2 GFLOP in 10 ms, and the same product twenty times slower: neither arithmetic nor memory.
    on_cpu(&mut made, "aten::mm", 1000, 10e6);
    on_cpu(&mut made, "aten::mm", 1000, 200e6);
    // 12 MB in 5 ms.
    on_cpu(&mut made, "aten::add", 1000, 5e6);
    made.host(TaskKind::HostGap, 4e6);
    check(
        made,
        &[
            (Bottleneck::Operators, 90.9),
            (Bottleneck::Compute, 4.5),
            (Bottleneck::MemoryBandwidth, 2.3),
            (Bottleneck::HostCode, 1.8),
            (Bottleneck::DataLoading, 0.5),
        ],
    );
}

#[test]
fn small_operators_of_a_processor_show_no_ceiling() {
    let mut made = Made::default();
    for _ in 0..10 {
        let task = made.host(TaskKind::HostOperator, 5e3);
        made.operator(task, "aten::mm", [&[8, 8], &[8, 8]]);
    }
    check(made, &[(Bottleneck::Operators, 100.0)]);
}

#[test]
fn nothing_has_no_verdict() {
    let schedule = Schedule::default();
    let graph = Graph::default();
    let recorded =
        Recorded { graph, schedule, replay_error: 0.0, measured_ns: 0.0, notes: Vec::new() };
    assert_eq!(bound(&recorded, None), None);
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
    fn shares_add_up_whatever_waits_for_whom(
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
        // The sum is checked in it.
        let found = made.bound();
        prop_assert!(found.shares.iter().all(|share| share.share > 0.0 && share.share <= 1.0 + 1e-9));
    }
}
