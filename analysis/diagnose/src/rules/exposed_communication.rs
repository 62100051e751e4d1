//! `exposed-communication`: communication that does not overlap with computation.
//! DistributedDataParallel all-reduces the gradients of a bucket while the backward pass computes
//! the next (Li et al., "PyTorch Distributed", VLDB 2020). What does not overlap, or is issued
//! outside of the backward pass, adds to the iteration time.

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use ridgeline_graph::graph::TaskKind;
use ridgeline_profile::Profile;

/// The minimum share of the iteration time. Every program with several ranks exposes some
/// communication: nothing is left to overlap with the last bucket.
const MIN_SHARE: f64 = 0.1;

pub(crate) struct ExposedCommunication;

impl Rule for ExposedCommunication {
    fn name(&self) -> &'static str {
        "exposed-communication"
    }

    fn title(&self) -> &'static str {
        "Exposed communication"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(exchange) = evidence.profile().exchange.as_deref() else { return Vec::new() };
        let exposed_ns = network_ns(evidence.profile()).min(critical_path_ns(evidence));
        let Some(line) = exchange.lines.first() else { return Vec::new() };
        // On a CPU, communication uses the same cores as the backward pass: how much of it is
        // exposed depends on the load of the machine, not on the program.
        if line.in_backward && !evidence.on_gpu() {
            return Vec::new();
        }
        if exposed_ns < MIN_SHARE * evidence.iteration_ns() {
            return Vec::new();
        }
        let (message, why) = if line.in_backward {
            (
                "The gradient all-reduce does not overlap fully with the backward pass",
                "Communication is hidden only while the backward pass computes. Synchronize less \
                often (`no_sync` during gradient accumulation), send fewer bytes (a compression \
                hook, bf16 gradients), or use a larger batch per rank.",
            )
        } else {
            (
                "The rank waits for communication outside the backward pass",
                "The GPU computes nothing while it waits. Let DistributedDataParallel overlap the \
                all-reduce with the backward pass, merge many small collectives into one, or pass \
                `async_op=True` and wait where the result is needed.",
            )
        };
        let others = exchange.lines.iter().skip(1);
        let others = others.filter(|other| other.exposed_ns >= 0.1 * exchange.exposed_ns).take(4);
        vec![Finding {
            rule: self.name(),
            at: evidence.place(line.file, line.line),
            related: others
                .map(|other| (evidence.place(other.file, other.line), "also waits here".to_owned()))
                .collect(),
            message: message.to_owned(),
            why: why.to_owned(),
            cost: Some(Cost::time(exposed_ns)),
            fix: None,
            ..Finding::default()
        }]
    }
}

/// The exposed time that is not due to waiting for another rank, in nanoseconds: that of the rank
/// with the least. With a single rank, waiting for others cannot be distinguished.
fn network_ns(profile: &Profile) -> f64 {
    let own = profile.exchange.as_deref().map_or(0.0, |exchange| exchange.exposed_ns);
    let ranks = profile.ranks.iter().flat_map(|ranks| &ranks.ranks);
    ranks.filter_map(|rank| rank.exchange_ns.map(|(_, exposed_ns)| exposed_ns)).fold(own, f64::min)
}

/// The time by which the iteration is shorter without communication, in nanoseconds. A GPU that
/// waits for its host anyway loses nothing. On the host, exposed communication is a wait of the
/// training thread.
fn critical_path_ns(evidence: &Evidence<'_>) -> f64 {
    let is_communication = |kind: TaskKind| kind == TaskKind::Communication;
    if !evidence.graph().tasks.iter().any(|task| is_communication(task.kind)) {
        return f64::INFINITY;
    }
    evidence.saved(|graph| {
        for task in graph.tasks.iter_mut().filter(|task| is_communication(task.kind)) {
            task.duration_ns = 0.0;
        }
    })
}

#[cfg(test)]
mod tests {
    use ridgeline_attribution::ranks::{rank_cost, side_by_side};
    use std::sync::Arc;

    use super::*;
    use crate::harness::Case;
    use ridgeline_profile::Phase;
    use ridgeline_profile::exchange::{Exchange, ExposedLine};

    const TEXT: &str = "\
for batch in batches:
    loss.backward()  # backward
    for parameter in parameters:
        dist.all_reduce(parameter.grad)  # exchange
";

    fn case(mark: &str, exposed_ms: f64) -> Case {
        let mut case = Case::new(TEXT);
        let (file, line) = case.line(mark);
        let (exposed_ns, in_backward) = (exposed_ms * 1e6, mark == "backward");
        let lines = vec![ExposedLine { file, line, exposed_ns, in_backward }];
        case.profile.iteration.time_ns = 100e6;
        case.profile.exchange =
            Some(Arc::new(Exchange { total_ns: 50e6, exposed_ns, lines, ..Exchange::default() }));
        case.host(TaskKind::HostOperator, 100e6, Phase::Forward, None);
        case
    }

    #[test]
    fn exposed_communication_is_reported_where_it_waits() {
        let found = case("exchange", 30.0).finds(&ExposedCommunication, "exchange");
        assert!(found.message.contains("outside the backward pass"), "{}", found.message);
        assert_eq!(found.cost, Some(Cost::time(30e6)));
        let on_gpu = case("backward", 30.0).on_gpu();
        let found = on_gpu.finds(&ExposedCommunication, "backward");
        assert_eq!(
            found.message,
            "The gradient all-reduce does not overlap fully with the backward pass"
        );
        // A CPU computes and communicates with the same cores.
        case("backward", 30.0).finds_nothing(&ExposedCommunication);
    }

    #[test]
    fn small_exposure_is_normal() {
        case("backward", 8.0).on_gpu().finds_nothing(&ExposedCommunication);
        let mut none = case("backward", 30.0).on_gpu();
        none.profile.exchange = None;
        none.finds_nothing(&ExposedCommunication);
    }

    #[test]
    fn waiting_for_a_slower_rank_is_not_communication() {
        let mut waits = case("backward", 40.0).on_gpu();
        let slow = case("backward", 4.0);
        let costs = [&waits, &slow].map(|case| &case.profile);
        let costs = (0..).zip(costs).map(|(rank, profile)| rank_cost(rank, profile));
        waits.profile.ranks = side_by_side(2, costs.collect()).map(Arc::new);
        waits.finds_nothing(&ExposedCommunication);
    }

    #[test]
    fn communication_off_the_critical_path_costs_nothing() {
        let mut hidden = case("backward", 40.0).on_gpu();
        // The host takes 100 ms; the kernels finish long before.
        hidden.launch(TaskKind::Communication, "ncclDevKernel_AllReduce", 40e6, None);
        hidden.host(TaskKind::HostOperator, 100e6, Phase::Optimizer, None);
        hidden.finds_nothing(&ExposedCommunication);
        let mut alone = Case::new(TEXT).on_gpu();
        alone.profile = case("backward", 40.0).on_gpu().profile;
        alone.launch(TaskKind::Communication, "ncclDevKernel_AllReduce", 40e6, None);
        alone.finds(&ExposedCommunication, "backward");
    }
}
