//! Schedules of small graphs that were thought out by hand, and both ways to run one beside each other.

use proptest::prelude::*;

use super::*;
use crate::graph::{Order, Resource, Task, TaskId, TaskKind};
use ridgeline_profile::Phase;

/// A graph of tasks as `(resource, duration)`, with what waits for what.
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
fn the_slower_of_host_and_gpu_is_what_a_long_run_takes() {
    let launches = |host: f64, kernel: f64| {
        let tasks = [(Resource::Host, host), (GPU, kernel), (Resource::Host, host), (GPU, kernel)];
        graph(&tasks, &[(0, 1), (2, 3)])
    };
    check(&launches(10.0, 30.0), 70.0, 60.0);
    check(&launches(30.0, 10.0), 70.0, 60.0);
}

#[test]
fn waiting_adds_up() {
    let tasks = [(Resource::Host, 10.0), (GPU, 30.0), (Resource::Host, 5.0)];
    check(&graph(&tasks, &[(0, 1), (1, 2)]), 45.0, 45.0);
}

#[test]
fn the_next_iteration_waits_for_what_it_needs_of_this_one() {
    let mut graph = graph(&[(Resource::Host, 10.0), (GPU, 30.0)], &[(0, 1)]);
    check(&graph, 40.0, 30.0);
    graph.wait_across(TaskId(1), TaskId(0), 0.0);
    check(&graph, 40.0, 40.0);
}

#[test]
fn the_most_urgent_goes_first() {
    let link = Resource::Added("network".to_owned());
    let tasks = [(link.clone(), 10.0), (link.clone(), 10.0), (link.clone(), 10.0), (GPU, 5.0)];
    // The last message is what the GPU waits for.
    let mut graph = graph(&tasks, &[(2, 3)]);
    assert_eq!(once(&graph, &[]).unwrap().end_ns[3], 35.0);
    let link = graph.find(&link).unwrap();
    graph.set_order(link, Order::Priority);
    graph.tasks[2].priority = 1;
    let schedule = once(&graph, &[]).unwrap();
    // The first had begun when the urgent one came up at the same instant.
    assert_eq!(schedule.end_ns[3], 25.0);
    assert_eq!(schedule.iteration_ns, 30.0);
}

#[test]
fn what_waits_in_a_circle_is_an_error() {
    let graph = graph(&[(Resource::Host, 1.0), (GPU, 1.0)], &[(0, 1), (1, 0)]);
    assert_eq!(steady(&graph).unwrap_err(), SimulationError::Cycle { waiting: 2, all: 2 });
}

#[test]
fn nothing_takes_no_time() {
    check(&Graph::default(), 0.0, 0.0);
}

proptest! {
    /// One pass in order says what the queue of events says.
    #[test]
    fn both_ways_to_run_a_graph_agree(
        tasks in proptest::collection::vec((0_u8..3, 0.0_f64..100.0, 0.0_f64..10.0), 1..30),
        edges in proptest::collection::vec((0_usize..30, 0_usize..30, -5.0_f64..20.0), 0..30),
    ) {
        let mut graph = Graph::default();
        for (place, duration_ns, after_ns) in &tasks {
            let resource = match place {
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
            // What comes later waits, so that there is no circle.
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
