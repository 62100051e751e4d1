//! Findings: what is slow or wasteful, why, at which line, and how to mend it.
//!
//! A [`rule`] looks at the [`evidence`] of one measured iteration, or at the text alone, and gives
//! [`finding`]s. A rule is a file in [`rules`], and has a page in `docs/findings`. One false alarm
//! costs more trust than ten findings earn: a rule that is not sure says nothing.

mod branches;
pub(crate) mod carried;
mod dataset;
pub(crate) mod evaluation;
pub(crate) mod evidence;
pub mod finding;
#[cfg(test)]
pub(crate) mod harness;
pub(crate) mod loading;
pub(crate) mod loops;
pub mod pages;
mod parameter_loops;
mod plausible;
pub(crate) mod reading;
pub(crate) mod rounds;
pub(crate) mod rule;
pub(crate) mod rules;
mod samples;
pub mod severity;
pub mod silence;
pub(crate) mod switched_off;
pub(crate) mod tally;
pub mod today;
pub(crate) mod validation;
pub(crate) mod waits;
pub(crate) mod what_if;

use std::sync::atomic::{AtomicUsize, Ordering};

use evidence::Evidence;
use finding::Finding;
use plausible::plausible;
use ridgeline_graph::calls::calls;
use ridgeline_optimize::facts::Probes;
use ridgeline_optimize::probe_list::Wanted;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::study::Subject;
use ridgeline_python::semantics::project::Modules;
use ridgeline_python::semantics::{Entry, Project};

/// Below so many tasks another thread is not worth starting.
const WORTH_A_THREAD: usize = 20_000;

/// The findings of a measured iteration, the costliest first. `project` has the texts, as they ran or
/// as they are today: a rule that reads a line whose text has changed since says nothing about it.
/// What no probe tells goes by the cost model.
pub fn diagnose(
    subject: &Subject,
    probes: &Probes,
    project: &dyn Project,
    entry: &Entry,
) -> Vec<Finding> {
    let graph = &subject.recorded.graph;
    let is_large = graph.tasks.len() >= WORTH_A_THREAD;
    let read = || Modules::read(project, entry);
    let sum_up = || {
        // Kept for the rules that ask a what-if.
        calls(graph);
        evidence::work(graph)
    };
    let (modules, work) = beside(is_large, read, sum_up);
    // Rules that ask a what-if take long and others nothing: who is done takes the next one.
    let next = AtomicUsize::new(0);
    let look = || {
        // What a program is asked it remembers, so that each thread has its own.
        let program = Program::new(&modules, project, entry);
        let evidence = Evidence::new(subject, probes, &program, &work);
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(rule) = rules::ALL.get(at) else { return found };
            let measured = rule.measured(&evidence).into_iter();
            let measured = measured.map(|finding| Finding { is_measured: true, ..finding });
            let measured = measured.map(|finding| plausible(finding, &subject.profile));
            found.extend(measured.map(|finding| (at, finding)));
        }
    };
    let (mut found, others) = beside(is_large, look, look);
    found.extend(others);
    found.sort_by(|(one_rule, one), (other_rule, other)| {
        let weight = |finding: &Finding| severity::weight(finding, &subject.profile);
        weight(other).total_cmp(&weight(one)).then(one_rule.cmp(other_rule))
    });
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// Does both, on two threads where that is worth it.
fn beside<A, B: Send>(
    is_worth_it: bool,
    here: impl FnOnce() -> A,
    there: impl FnOnce() -> B + Send,
) -> (A, B) {
    if !is_worth_it {
        return (here(), there());
    }
    std::thread::scope(|scope| {
        let there = scope.spawn(there);
        let here = here();
        (here, there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Which operators to run by themselves, so that the costs of these findings are known better.
pub fn wanted(findings: &[Finding]) -> Wanted {
    let says = |rules: &[&str]| findings.iter().any(|finding| rules.contains(&finding.rule));
    Wanted {
        types: false,
        layouts: says(&["channels-last-missed"]),
        switches: says(&["fp32-without-tf32", "cudnn-benchmark-off", "cudnn-benchmark-changing"]),
        stand_ins: says(&["attention-written-out", "tensor-core-sizes"]),
        optimizers: says(&["unfused-optimizer"]),
        cells: says(&["python-loop"]),
    }
}

/// What the text alone shows, without a measurement.
pub fn read(project: &dyn Project, entry: &Entry) -> Vec<Finding> {
    read_until(project, entry, &|| false)
}

/// The same; it is cut short where `stop` says so.
pub fn read_until(project: &dyn Project, entry: &Entry, stop: &dyn Fn() -> bool) -> Vec<Finding> {
    let modules = Modules::read(project, entry);
    if stop() {
        return Vec::new();
    }
    let program = Program::new(&modules, project, entry);
    let rules = rules::ALL.iter().take_while(|_| !stop());
    rules.flat_map(|rule| rule.unmeasured(&program)).collect()
}

/// Whether a measurement that finds nothing at a line shows that the text's finding of this rule there
/// is none, also where the line did not run.
pub fn measurement_decides(rule: &str) -> bool {
    let known = rules::ALL.iter().find(|one| one.name() == rule);
    known.is_none_or(|known| known.measurement_decides())
}

/// Whether a rule's fault makes results wrong or lets memory grow until it runs out.
pub fn affects_correctness(rule: &str) -> bool {
    rules::ALL.iter().any(|known| known.name() == rule && known.affects_correctness())
}

/// The rules' names with what each looks for, in the order in which they are listed.
pub fn rules() -> Vec<(&'static str, &'static str)> {
    rules::ALL.iter().map(|rule| (rule.name(), rule.title())).collect()
}
