//! Batches loaded by worker processes concurrently with the training loop:
//! `DataLoader(num_workers=…)` (PyTorch's documentation of `torch.utils.data`, "Multi-process data
//! loading").

use crate::facts::Facts;
use crate::loading::{Cores, Loading, workers};
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskKind};
use ridgeline_graph::simulate;
use ridgeline_profile::Phase;

pub(super) struct LoaderWorkers;

impl Optimization for LoaderWorkers {
    fn name(&self) -> &'static str {
        "loader-workers"
    }

    fn title(&self) -> &'static str {
        "DataLoader workers"
    }

    fn source(&self) -> &'static str {
        "PyTorch, torch.utils.data, \"Multi-process data loading\""
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        let run = |graph: &Graph| {
            let schedule = simulate::steady(graph).map_err(|error| error.to_string());
            schedule.map(|schedule| schedule.iteration_ns)
        };
        let loading = Loading::new(graph, facts, run(graph)?)?;
        let count = workers(facts.manifest);
        let cores = Cores::new(graph, facts);
        // The loop takes batches that are already loaded.
        graph.scale(&loading.tasks, loading.handover_ns(bound) / loading.load_ns);
        let own_ns = run(graph)?;
        let each_ns = loading.load_ns / f64::from(count);
        let shared_ns = cores.map_or(own_ns, |cores| {
            cores.shared_ns(own_ns, loading.on_a_core_ns, f64::from(count), bound)
        });
        // Workers load while the loop computes. The loop waits if they are slower.
        let resource = graph.resource(&Resource::Added("DataLoader workers".to_owned()));
        let pace_ns = each_ns.max(if shared_ns > own_ns { shared_ns } else { 0.0 });
        let batch = graph.push(resource, Task::new(TaskKind::HostGap, pace_ns, Phase::Data));
        if let Some(first) = loading.tasks.first() {
            graph.wait(batch, *first, 0.0);
        }
        let mut effect = Effect::default();
        for task in &loading.tasks {
            let line = graph.task(*task).and_then(|task| task.line);
            effect.lines.extend(line.filter(|line| !effect.lines.contains(line)));
        }
        let s = if count == 1 { "" } else { "s" };
        effect.notes.push(match cores {
            Some(Cores { all, .. }) if all < 1.5 => format!("{count} worker{s} on 1 core"),
            Some(Cores { all, .. }) => format!("{count} worker{s} on {all:.0} cores"),
            None => format!("{count} worker{s}, assuming idle cores"),
        });
        Ok(effect)
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::LoaderWorkers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::example::ExampleInputs;
    use ridgeline_recording::manifest::{Loader, Machine, Manifest};

    /// Creates an iteration of 100 ms on the host, including `load_ns` of loading.
    fn step(load_ns: f64) -> Graph {
        let mut graph = Graph::default();
        let host = graph.resource(&Resource::Host);
        graph.push(host, Task::new(TaskKind::HostGap, load_ns, Phase::Data));
        graph.push(host, Task::new(TaskKind::HostGap, 100e6 - load_ns, Phase::Forward));
        graph
    }

    fn manifest(cores: u32, workers: u32) -> Manifest {
        Manifest {
            loaders: vec![Loader { workers: Some(workers), ..Loader::default() }],
            machine: Some(Machine { cores: Some(cores) }),
            ..Manifest::default()
        }
    }

    fn apply(graph: &mut Graph, manifest: &Manifest) -> Result<f64, String> {
        let known = ExampleInputs::on("NVIDIA H200");
        let facts = Facts { manifest: Some(manifest), ..known.facts(1, 1, 1.0) };
        LoaderWorkers.apply(graph, &facts, Bound::Likely)?;
        Ok(simulate::steady(graph).expect("it runs").iteration_ns)
    }

    #[track_caller]
    fn check(load_ns: f64, cores: u32, expected_ns: f64) {
        let found = apply(&mut step(load_ns), &manifest(cores, 0)).expect("it applies");
        assert!((found - expected_ns).abs() < 0.1e6, "{found} is not {expected_ns}");
    }

    #[test]
    fn the_slower_of_loop_and_workers_determines_the_time() {
        // 30 ms of loading overlap with 70 ms; the loop takes 1 ms to fetch a batch.
        check(30e6, 8, 71e6);
        // Four workers load 90 ms in 22.5 ms, concurrently with 10 ms of computation.
        check(90e6, 8, 22.5e6);
        // One core does both.
        check(30e6, 1, 101e6);
    }

    #[test]
    fn processes_that_train_share_the_cores() {
        let mut shared = manifest(8, 0);
        shared.child_processes = Some(8);
        let found = apply(&mut step(30e6), &shared).expect("it applies");
        assert!((found - 101e6).abs() < 0.1e6, "{found}");
    }

    #[test]
    fn loading_that_waits_for_a_disk_does_not_use_a_core() {
        let mut waits = manifest(1, 0);
        waits.loaders[0].fetch_ns = vec![30_000_000];
        waits.loaders[0].fetch_cpu_ns = Some(3_000_000);
        // Of 30 ms of loading, 3 ms are spent on the only core.
        let found = apply(&mut step(30e6), &waits).expect("it applies");
        assert!((found - 74e6).abs() < 0.1e6, "{found}");
        // If it waited for a core instead, a worker has to wait for one, too.
        waits.iterations.timed_ns = vec![100_000_000];
        waits.iterations.timed_waited_ns = vec![90_000_000];
        let found = apply(&mut step(30e6), &waits).expect("it applies");
        assert!((found - 101e6).abs() < 0.1e6, "{found}");
    }

    #[test]
    fn it_applies_if_loading_takes_time_and_there_are_no_workers() {
        let refused = |load_ns: f64, workers: u32| {
            apply(&mut step(load_ns), &manifest(8, workers)).expect_err("it should not apply")
        };
        assert!(refused(0.5e6, 0).contains("0.5%"));
        assert!(refused(30e6, 2).contains("already uses 2 workers"));
        let mut without_loading = Graph::default();
        let host = without_loading.resource(&Resource::Host);
        without_loading.push(host, Task::new(TaskKind::HostGap, 1e6, Phase::Forward));
        assert!(apply(&mut without_loading, &manifest(8, 0)).is_err());
    }
}
