use super::*;
use crate::harness::{Case, FileLine};
use ridgeline_recording::observed::LineTimes;

const PROGRAM: &str = "\
import torch
for step, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)  # forward
    loss.backward()
    optimizer.step()
    total += loss.item()  # item
    if loss > 10:  # if
        break
    kept = x[mask]  # mask
    scaler.step(optimizer)  # scaler
    if step % 10 == 0:
        print(loss)  # now and then
    print(f'{loss}')  # print
    torch.cuda.synchronize()  # explicit
";

/// Kernels of 10 ms that the host launches in 1 ms, a line that waits for them in an operator, and
/// then 4 ms on the host.
fn waiting_at(mark: &str, operator: Option<&str>) -> Case {
    let mut case = Case::new(PROGRAM).on_gpu();
    kernels_and_wait(&mut case, Some(mark), operator);
    case.host(TaskKind::HostGap, 4e6, Phase::Other, None);
    case
}

fn kernels_and_wait(case: &mut Case, mark: Option<&str>, operator: Option<&str>) {
    let at: FileLine = case.line("forward");
    case.host(TaskKind::HostGap, 1e6, Phase::Forward, Some(at));
    let (_, kernel) = case.launch(TaskKind::Kernel, "k", 10e6, Some(at));
    let at = mark.map(|mark| case.line(mark));
    let wait = case.host(TaskKind::Wait, 0.0, Phase::Other, at);
    if let Some(operator) = operator {
        case.operator(wait, operator);
    }
    case.graph.wait(kernel, wait, 0.0);
}

#[track_caller]
fn check(mark: &str, operator: Option<&str>, shown: &str) {
    let found = waiting_at(mark, operator).finds(&HiddenSync, mark);
    assert!(found.message.starts_with(shown), "{}", found.message);
    // The host's 5 ms overlap with the kernel's 10 ms, which then determine the time.
    let cost = found.cost.expect("a cost");
    assert!((cost.time_ns - 5e6).abs() < 0.1e6 && cost.is_predicted, "{cost:?}");
}

#[test]
fn waits_are_reported_with_their_effect_on_the_iteration() {
    check("item", Some("aten::_local_scalar_dense"), "`.item()`");
    check("if", Some("aten::_local_scalar_dense"), "A condition on a tensor");
    check("mask", Some("aten::index"), "Indexing with a mask");
    check("print", Some("aten::copy_"), "`print()`");
    check("explicit", None, "`.synchronize()`");
}

#[test]
fn library_waits_and_occasional_waits_are_not_reported() {
    // The gradient scaler has to read whether gradients overflowed.
    waiting_at("scaler", Some("aten::_local_scalar_dense")).finds_nothing(&HiddenSync);
    waiting_at("now and then", Some("aten::copy_")).finds_nothing(&HiddenSync);
    let mut seldom = waiting_at("item", Some("aten::_local_scalar_dense"));
    seldom.ran("item", 0.5);
    seldom.finds_nothing(&HiddenSync);
    // The measurement itself synchronizes at its end.
    waiting_at("item", None).finds_nothing(&HiddenSync);
}

/// Whether a wait on the line `# here` of a program is reported.
fn is_reported(program: &str, change: impl FnOnce(&mut Case)) -> bool {
    let mut case = Case::new(&format!("import torch\n{program}")).on_gpu();
    kernels_and_wait(&mut case, Some("here"), Some("aten::_local_scalar_dense"));
    case.host(TaskKind::HostGap, 4e6, Phase::Other, None);
    change(&mut case);
    !case.measured(&HiddenSync).is_empty()
}

#[test]
fn only_conditions_on_counters_exclude_a_line() {
    let reported = |condition: &str| {
        let program = format!(
            "for step, (x, y) in enumerate(loader):  # forward\n    done += 1\n    loss = model(x)\n    \
                 if {condition}:\n        total += loss.item()  # here\n"
        );
        is_reported(&program, |_| ())
    };
    for counts in ["step % 100 == 0", "step == 5", "done > 9", "is_due(step)", "not done"] {
        assert!(!reported(counts), "{counts}");
    }
    for other in ["rank == 0", "is_main_process()", "y is not None", "flags[step]"] {
        assert!(reported(other), "{other}");
    }
}

#[test]
fn conditions_up_to_the_training_loop_and_of_callers_count() {
    let inner = "for step in range(9):  # forward\n    if step % 100 == 0:\n        for p in model.parameters():\n            p.grad.norm().item()  # here\n";
    assert!(!is_reported(inner, |_| ()));
    let helper = |call: &str| {
        format!(
            "def show(loss):\n    print(loss.item())  # here\n\nfor step in range(9):  # forward\n    {call}\n"
        )
    };
    assert!(!is_reported(&helper("if step % 9 == 0:\n        show(loss)"), |_| ()));
    assert!(is_reported(&helper("show(loss)"), |_| ()));
    let outer = "for epoch in range(9):\n    if epoch % 2 == 0:\n        for x in loader:  # forward\n            total += loss.item()  # here\n";
    let trains = |case: &mut Case| case.manifest.training_loop = Some(case.location("forward"));
    assert!(is_reported(outer, trains));
    let validation = "def evaluate():\n    for x in data:\n        model(x).item()  # here\n\nfor x in loader:  # forward\n    evaluate()\n";
    assert!(!is_reported(validation, |_| ()));
}

#[test]
fn line_that_some_iterations_skip_is_not_reported() {
    let program = "for x in loader:  # forward\n    print(loss.item())  # here\n";
    let with = |ns: Vec<u64>| {
        is_reported(program, |case| {
            let at = case.location("here");
            case.manifest.observed.line_times = vec![LineTimes { at, ns }];
            case.ran("here", 10.0);
        })
    };
    assert_eq!((with(vec![5, 7]), with(vec![0, 70])), (true, false));
}

#[test]
fn cpu_runs_have_no_waits() {
    let mut case = waiting_at("item", Some("aten::_local_scalar_dense"));
    case.profile.device.kind = "cpu".to_owned();
    case.finds_nothing(&HiddenSync);
}

#[test]
fn wait_without_cost_is_not_reported() {
    // A host that is busy for longer than the GPU does not wait for the value.
    let mut case = Case::new(PROGRAM).on_gpu();
    let (_, kernel) = case.launch(TaskKind::Kernel, "k", 1e6, None);
    case.host(TaskKind::HostGap, 20e6, Phase::Forward, None);
    let at = case.line("item");
    let wait = case.host(TaskKind::Wait, 0.0, Phase::Other, Some(at));
    case.operator(wait, "aten::_local_scalar_dense");
    case.graph.wait(kernel, wait, 0.0);
    case.finds_nothing(&HiddenSync);
}

#[test]
fn lines_that_wait_for_the_same_work_share_the_cost() {
    let mut case = Case::new(PROGRAM).on_gpu();
    kernels_and_wait(&mut case, Some("item"), Some("aten::_local_scalar_dense"));
    kernels_and_wait(&mut case, Some("print"), Some("aten::copy_"));
    case.host(TaskKind::HostGap, 4e6, Phase::Other, None);
    let found = case.measured(&HiddenSync);
    let all: f64 = found.iter().filter_map(|one| one.cost).map(|cost| cost.time_ns).sum();
    // 26 ms with both waits; without them the GPU's 20 ms determine the time.
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!((all - 6e6).abs() < 0.2e6, "{all}");
}

#[test]
fn batch_copies_are_left_to_other_rules() {
    let mut case = Case::new("for x in loader:\n    x = x.to(device)  # to\n").on_gpu();
    let at = case.line("to");
    case.host(TaskKind::HostGap, 1e6, Phase::Other, Some(at));
    let (launch, copy) =
        case.launch(TaskKind::HostCopy, "Memcpy HtoD (Pageable -> Device)", 10e6, Some(at));
    let call = case.operator(launch, "aten::copy_");
    let wait = case.host(TaskKind::Wait, 0.0, Phase::Other, Some(at));
    for task in [copy, wait] {
        let task = case.graph.task_mut(task).expect("a task");
        (task.operator, task.call) = (Some(call), Some(call));
    }
    case.graph.wait(copy, wait, 0.0);
    case.host(TaskKind::HostGap, 4e6, Phase::Other, None);
    case.finds_nothing(&HiddenSync);
    // The same copy in the forward pass waits for all work before it.
    case.graph.task_mut(wait).expect("a task").phase = Phase::Forward;
    assert_eq!(case.finds(&HiddenSync, "to").message.split(' ').next(), Some("A"));
}
