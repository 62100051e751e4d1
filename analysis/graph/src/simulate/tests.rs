//! Schedules of small graphs computed by hand, and a comparison of the two simulation algorithms.

use proptest::prelude::*;

use super::*;
use crate::graph::{Order, Resource, Task, TaskId, TaskKind};
use ridgeline_profile::Phase;

/// Creates a graph from tasks as `(resource, duration)` and edges as `(from, to)`.
fn graph(tasks: &[(Resource, f64)], edges: &[(u32, u32)]) -> Graph {
    let mut graph = Graph::default();
    for (resource, duration_ns) in tasks {
        let resource = graph.resource(resource);
        graph.push(resource, Task::new(TaskKind::Kernel, *duration_ns, Phase::Forward));
    }
    for (from, to) in edges {
        graph.wait(TaskId(*from), TaskId(*to), 0.0);
    }
    graph
}

#[track_caller]
fn check(graph: &Graph, once_ns: f64, steady_ns: f64) {
    assert_eq!(once(graph, &[]).unwrap().iteration_ns, once_ns);
    assert_eq!(steady(graph).unwrap().iteration_ns, steady_ns);
}

const GPU: Resource = Resource::Stream(0, 7);

#[test]
fn tasks_of_one_resource_follow_one_another() {
    check(&graph(&[(Resource::Host, 10.0), (Resource::Host, 20.0)], &[]), 30.0, 30.0);
}

#[test]
fn the_slower_of_host_and_gpu_limits_a_long_run() {
    let launches = |host: f64, kernel: f64| {
        let tasks = [(Resource::Host, host), (GPU, kernel), (Resource::Host, host), (GPU, kernel)];
        graph(&tasks, &[(0, 1), (2, 3)])
    };
    check(&launches(10.0, 30.0), 70.0, 60.0);
    check(&launches(30.0, 10.0), 70.0, 60.0);
}

#[test]
fn waits_add_up() {
    let tasks = [(Resource::Host, 10.0), (GPU, 30.0), (Resource::Host, 5.0)];
    check(&graph(&tasks, &[(0, 1), (1, 2)]), 45.0, 45.0);
}

#[test]
fn the_next_iteration_waits_for_its_dependencies() {
    let mut graph = graph(&[(Resource::Host, 10.0), (GPU, 30.0)], &[(0, 1)]);
    check(&graph, 40.0, 30.0);
    graph.wait_across(TaskId(1), TaskId(0), 0.0);
    check(&graph, 40.0, 40.0);
}

#[test]
fn the_highest_priority_runs_first() {
    let link = Resource::Added("network".to_owned());
    let tasks = [(link.clone(), 10.0), (link.clone(), 10.0), (link.clone(), 10.0), (GPU, 5.0)];
    // The GPU waits for the last message.
    let mut graph = graph(&tasks, &[(2, 3)]);
    assert_eq!(once(&graph, &[]).unwrap().end_ns[3], 35.0);
    let link = graph.find(&link).unwrap();
    graph.set_order(link, Order::Priority);
    graph.tasks[2].priority = 1;
    let schedule = once(&graph, &[]).unwrap();
    // The first message had already started when the urgent one became ready at the same instant.
    assert_eq!(schedule.end_ns[3], 25.0);
    assert_eq!(schedule.iteration_ns, 30.0);
}

#[test]
fn a_cycle_is_an_error() {
    let graph = graph(&[(Resource::Host, 1.0), (GPU, 1.0)], &[(0, 1), (1, 0)]);
    assert_eq!(steady(&graph).unwrap_err(), SimulationError::Cycle { waiting: 2, all: 2 });
}

#[test]
fn an_empty_graph_takes_no_time() {
    check(&Graph::default(), 0.0, 0.0);
}

proptest! {
    /// One pass in topological order and the event queue compute the same schedule.
    #[test]
    fn both_simulation_algorithms_agree(
        tasks in proptest::collection::vec((0_u8..3, 0.0_f64..100.0, 0.0_f64..10.0), 1..30),
        edges in proptest::collection::vec((0_usize..30, 0_usize..30, -5.0_f64..20.0), 0..30),
    ) {
        let mut graph = Graph::default();
        for (resource_number, duration_ns, after_ns) in &tasks {
            let resource = match resource_number {
                0 => Resource::Host,
                stream => Resource::Stream(0, i64::from(*stream)),
            };
            let resource = graph.resource(&resource);
            let mut task = Task::new(TaskKind::Kernel, *duration_ns, Phase::Forward);
            task.after_ns = *after_ns;
            graph.push(resource, task);
        }
        for (from, to, lag_ns) in edges {
            let (from, to) = (from % tasks.len(), to % tasks.len());
            // Only later tasks wait, so there is no cycle.
            if from < to {
                graph.wait(TaskId(from as u32), TaskId(to as u32), lag_ns);
            }
        }
        let runner = Runner::new(&graph);
        let order = graph.plan().order.clone().expect("an order");
        let (mut in_order, mut by_events) = (State::new(&graph, &[]), State::new(&graph, &[]));
        for _ in 0..2 {
            in_order.begin(&graph);
            by_events.begin(&graph);
            let one = runner.run_in_order(&mut in_order, &order).expect("a schedule");
            let other = runner.run_by_events(&mut by_events).expect("a schedule");
            prop_assert_eq!(one, other);
            prop_assert_eq!(&in_order.start_ns, &by_events.start_ns);
        }
    }
}
