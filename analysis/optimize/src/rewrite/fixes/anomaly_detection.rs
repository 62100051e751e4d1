//! Anomaly detection, which checks each gradient and stores a traceback of each operator (PyTorch,
//! "Automatic differentiation package").

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::program::Program;
use super::super::syntax::{callee, written};

/// Writes `set_detect_anomaly(False)`, also in place of `with detect_anomaly():`.
pub(super) fn rewrite(program: &Program<'_>, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    let mut done = None;
    for (module, call) in program.calls() {
        let is_switch = match call.name() {
            "set_detect_anomaly" => true,
            "detect_anomaly" => false,
            _ => continue,
        };
        let Some(node) = program.node(module, call) else { continue };
        let text = program.module(module);
        let start = call.span.start;
        if !is_switch {
            let name = callee(text, node);
            let switch =
                format!("{}set_detect_anomaly(False)", name.trim_end_matches("detect_anomaly"));
            if !name.contains('.') {
                let why = "is imported by name: disable anomaly detection there";
                return Err(program.refuse(module, start, why));
            }
            edits.replace(module, node.byte_range(), switch);
            continue;
        }
        let arguments = program.arguments(module, node);
        let given =
            arguments.and_then(|given| given.named("mode").or(given.positional.first().copied()));
        let Some(given) = given else { continue };
        match written(text, given).as_str() {
            "True" => edits.replace(module, given.byte_range(), "False"),
            "False" => {
                done.get_or_insert(program.at(module, start));
            }
            value => {
                let what = format!("takes it from `{value}`: disable it there");
                return Err(program.refuse(module, start, &what));
            }
        }
    }
    match done {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("{at} already disables it"))),
        None => Err(Refusal::not_understood("the program does not enable anomaly detection")),
    }
}
