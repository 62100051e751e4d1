//! `anomaly-detection`: autograd's anomaly detection left enabled (PyTorch, "Performance Tuning
//! Guide: Disable debugging APIs").

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::rule::Rule;
use crate::source_queries::place;
use crate::switched_off;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::written;
use ridgeline_profile::FileId;
use ridgeline_python::semantics::module::Call;
use ridgeline_python::syntax::kind::{Kind, TypedNode as _};

pub(super) struct AnomalyDetection;

impl Rule for AnomalyDetection {
    fn name(&self) -> &'static str {
        "anomaly-detection"
    }

    fn title(&self) -> &'static str {
        "Anomaly detection enabled"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let Some(manifest) = evidence.manifest() else { return Vec::new() };
        if manifest.settings.anomaly != Some(true) {
            return Vec::new();
        }
        let sites = sites(evidence.program);
        let written = sites.iter().find_map(|site| {
            let (file, line) = evidence.recorded_line(site.module, site.line)?;
            Some(evidence.place(file, line))
        });
        let loop_place = || {
            let at = manifest.training_loop?;
            Some(evidence.place(FileId(at.file), at.line))
        };
        let Some(at) = written.or_else(loop_place) else { return Vec::new() };
        vec![finding(at, switched_off::cost(evidence, "anomaly"))]
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        let certain = sites(program).into_iter().filter(|site| site.is_always);
        certain.map(|site| finding(place(program, site.module, site.line), None)).collect()
    }
}

fn finding(at: SourceLine, cost: Option<Cost>) -> Finding {
    Finding {
        rule: "anomaly-detection",
        at,
        message: "Anomaly detection is enabled".to_owned(),
        why: "Every forward op records a Python stack trace, and every gradient is checked for \
            NaN. Use it to debug a NaN, not for training."
            .to_owned(),
        cost,
        fix: Some(EditKind::RemoveAnomalyDetection),
        ..Finding::default()
    }
}

/// Where the text enables it.
struct Site {
    module: usize,
    line: u32,
    /// Whether no condition guards it.
    is_always: bool,
}

fn sites(program: &Program<'_>) -> Vec<Site> {
    let found = program.calls().filter_map(|(module, call)| {
        let is_on = turns_on(program, module, call)?;
        let line = program.module(module).line(call.span.start);
        Some(Site { module, line, is_always: is_on && call.branches.is_empty() })
    });
    found.collect()
}

/// Whether a call definitely enables it. Returns `None` if it disables it or is another call.
fn turns_on(program: &Program<'_>, module: usize, call: &Call) -> Option<bool> {
    let name = call.name();
    if !matches!(name, "set_detect_anomaly" | "detect_anomaly") {
        return None;
    }
    let whole = program.called(module, call);
    let is_torch = whole.starts_with("torch.");
    let node = program.node(module, call).filter(|_| is_torch)?;
    let arguments = program.arguments(module, node)?;
    if name == "detect_anomaly" {
        // It only takes effect as a `with`.
        let mut around = node.parent();
        while around.is_some_and(|one| {
            matches!(Kind::of(&one), Kind::WithItem | Kind::AsPattern | Kind::WithClause)
        }) {
            around = around.and_then(|one| one.parent());
        }
        return around.is_some_and(|one| one.is(Kind::WithStatement)).then_some(true);
    }
    let mode = arguments.named("mode").or(arguments.positional.first().copied())?;
    match written(program.module(module), mode).as_str() {
        "True" => Some(true),
        "False" => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, lines_in};
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_profile::Phase;
    use ridgeline_recording::observed::SwitchedOff;

    const PROGRAM: &str = "\
import torch
torch.autograd.set_detect_anomaly(True)  # anomaly
for x, y in loader:  # loop
    loss.backward()  # backward
";

    #[track_caller]
    fn check(text: &str, expected: &[u32]) {
        assert_eq!(lines_in(&AnomalyDetection, text), expected, "{text}");
    }

    #[test]
    fn enabled_in_the_text() {
        check(PROGRAM, &[2]);
        check("from torch import autograd\nautograd.set_detect_anomaly(mode=True)\n", &[2]);
        check("import torch\nwith torch.autograd.detect_anomaly():\n    train()\n", &[2]);
        check(
            "import torch\nwith torch.autograd.detect_anomaly(check_nan=False), f() as g:\n    x()\n",
            &[2],
        );
    }

    #[test]
    fn disabled_or_conditional_is_not_reported() {
        check("import torch\ntorch.autograd.set_detect_anomaly(False)\n", &[]);
        check("import torch\ntorch.autograd.set_detect_anomaly(args.debug)\n", &[]);
        check("import torch\nif args.debug:\n    torch.autograd.set_detect_anomaly(True)\n", &[]);
        check("def unused():\n    torch.autograd.set_detect_anomaly(True)\n", &[]);
    }

    #[test]
    fn cost_comes_from_iterations_without_it() {
        let mut case = Case::new(PROGRAM);
        case.host(TaskKind::HostGap, 5e6, Phase::Backward, Some(case.line("backward")));
        assert_eq!(case.measured(&AnomalyDetection), [], "the setting is unknown");
        case.manifest.settings.anomaly = Some(true);
        assert_eq!(case.finds(&AnomalyDetection, "anomaly").cost, None);
        let name = "anomaly".to_owned();
        let (with_ns, without_ns) = (vec![5_000_000; 3], vec![3_500_000; 3]);
        case.manifest.observed.switched_off = vec![SwitchedOff { name, with_ns, without_ns }];
        assert_eq!(case.finds(&AnomalyDetection, "anomaly").cost, Some(Cost::time(1.5e6)));
        case.manifest.settings.anomaly = Some(false);
        assert_eq!(case.measured(&AnomalyDetection), []);
    }

    #[test]
    fn loop_is_reported_if_the_text_does_not_show_it() {
        let mut case = Case::new("import helper\nfor x in loader:  # loop\n    step(x)\n");
        case.host(TaskKind::HostGap, 1e6, Phase::Other, None);
        case.manifest.settings.anomaly = Some(true);
        case.manifest.training_loop = Some(case.location("loop"));
        assert_eq!(case.finds(&AnomalyDetection, "loop").cost, None);
    }
}
