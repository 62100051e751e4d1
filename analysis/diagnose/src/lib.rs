//! Findings: what is slow or wasteful, at which line, why, and how to fix it.
//!
//! A [`rule`] inspects the [`evidence`] from one measured iteration, or only the source text, and
//! returns [`finding`]s. Each rule is a file in [`rules`] and has a page in `docs/findings`. One
//! false alarm costs more trust than ten findings earn: a rule that is not sure reports nothing.

pub(crate) mod autograd_flow;
mod branches;
mod cost_limit;
pub mod current_text;
pub(crate) mod data_loaders;
mod dataset;
mod element_loops;
pub(crate) mod evidence;
pub mod finding;
#[cfg(test)]
pub(crate) mod harness;
pub(crate) mod host_spans;
pub(crate) mod line_sums;
pub(crate) mod loop_cost;
pub(crate) mod loops;
pub mod pages;
mod parameter_loops;
mod per_sample_loops;
pub(crate) mod rule;
pub(crate) mod rules;
pub mod severity;
pub(crate) mod source_queries;
pub mod suppression;
pub(crate) mod switched_off;
pub(crate) mod validation;
pub(crate) mod waits;
pub(crate) mod what_if;

use std::sync::atomic::{AtomicUsize, Ordering};

use cost_limit::limit_cost;
use evidence::Evidence;
use finding::Finding;
use ridgeline_graph::calls::calls;
use ridgeline_optimize::facts::Probes;
use ridgeline_optimize::probe_list::ProbeKinds;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::study::RecordedRun;
use ridgeline_python::semantics::project::Modules;
use ridgeline_python::semantics::{Entry, Project};

/// A graph with fewer tasks is not worth a second thread.
const MIN_TASKS_FOR_THREADS: usize = 20_000;

/// Returns the findings of a measured iteration, the costliest first. `project` has the source
/// text, as it ran or as it is now: a rule reports nothing about a line that has changed since.
/// Costs that no probe measured come from the cost model.
pub fn diagnose(
    run: &RecordedRun,
    probes: &Probes,
    project: &dyn Project,
    entry: &Entry,
) -> Vec<Finding> {
    let graph = &run.recorded.graph;
    let is_large = graph.tasks.len() >= MIN_TASKS_FOR_THREADS;
    let read = || Modules::read(project, entry);
    let sum_work = || {
        // Computes and caches the calls, for the rules that run a what-if.
        calls(graph);
        evidence::work(graph)
    };
    let (modules, work) = join(is_large, read, sum_work);
    // Rules that run a what-if take long, the others almost no time: each thread takes the next
    // rule when it is done.
    let next = AtomicUsize::new(0);
    let run_rules = || {
        // A `Program` caches its answers and is not shared: each thread has one.
        let program = Program::new(&modules, project, entry);
        let evidence = Evidence::new(run, probes, &program, &work);
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(rule) = rules::ALL.get(at) else { return found };
            let measured = rule.measured(&evidence).into_iter();
            let measured = measured.map(|finding| Finding { is_measured: true, ..finding });
            let measured = measured.map(|finding| limit_cost(finding, &run.profile));
            found.extend(measured.map(|finding| (at, finding)));
        }
    };
    let (mut found, others) = join(is_large, run_rules, run_rules);
    found.extend(others);
    found.sort_by(|(a_rule, one), (b_rule, other)| {
        let weight = |finding: &Finding| severity::weight(finding, &run.profile);
        weight(other).total_cmp(&weight(one)).then(a_rule.cmp(b_rule))
    });
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// Runs both closures, on two threads if that is worth it.
fn join<A, B: Send>(
    in_parallel: bool,
    first: impl FnOnce() -> A,
    second: impl FnOnce() -> B + Send,
) -> (A, B) {
    if !in_parallel {
        return (first(), second());
    }
    std::thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = first();
        (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Returns the operators to probe in isolation, to refine the costs of these findings.
pub fn probes_for(findings: &[Finding]) -> ProbeKinds {
    let has_finding_of =
        |rules: &[&str]| findings.iter().any(|finding| rules.contains(&finding.rule));
    ProbeKinds {
        types: false,
        layouts: has_finding_of(&["channels-last-missed"]),
        switches: has_finding_of(&[
            "fp32-without-tf32",
            "cudnn-benchmark-off",
            "cudnn-benchmark-changing",
        ]),
        stand_ins: has_finding_of(&["attention-written-out", "tensor-core-sizes"]),
        optimizers: has_finding_of(&["unfused-optimizer"]),
        cells: has_finding_of(&["python-loop"]),
    }
}

/// Returns the findings of the source text, without a measurement.
pub fn diagnose_source(project: &dyn Project, entry: &Entry) -> Vec<Finding> {
    diagnose_source_until(project, entry, &|| false)
}

/// Like [`diagnose_source`], but stops early when `stop` returns true.
pub fn diagnose_source_until(
    project: &dyn Project,
    entry: &Entry,
    stop: &dyn Fn() -> bool,
) -> Vec<Finding> {
    let modules = Modules::read(project, entry);
    if stop() {
        return Vec::new();
    }
    let program = Program::new(&modules, project, entry);
    let rules = rules::ALL.iter().take_while(|_| !stop());
    rules.flat_map(|rule| rule.unmeasured(&program)).collect()
}

/// Whether a measurement that finds nothing at a line overrides this rule's source-text finding
/// there, even if the line did not run.
pub fn measurement_decides(rule: &str) -> bool {
    let known = rules::ALL.iter().find(|one| one.name() == rule);
    known.is_none_or(|known| known.measurement_decides())
}

/// Whether the problem makes results wrong or lets memory grow until it runs out.
pub fn affects_correctness(rule: &str) -> bool {
    rules::ALL.iter().any(|known| known.name() == rule && known.affects_correctness())
}

/// The names and titles of the rules, in the order in which they are listed.
pub fn rules() -> Vec<(&'static str, &'static str)> {
    rules::ALL.iter().map(|rule| (rule.name(), rule.title())).collect()
}
