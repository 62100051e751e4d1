//! cuDNN autotuning (NVIDIA cuDNN; PyTorch, "Performance Tuning Guide"): faster if sizes stay the
//! same, slower if they change.

use super::super::edits::Edits;
use super::super::imports::{self, leading_imports};
use super::super::layout::Layout;
use super::super::program::Program;
use super::super::{Refusal, syntax::mentions};
use super::TargetLines;

/// Adds `torch.backends.cudnn.benchmark = True` once, after the imports of the entry. If a finding
/// is at the line that enables it, it is disabled there.
pub(super) fn rewrite(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    for (module, text) in program.modules().iter().enumerate() {
        let set = text.assignments.iter().find(|one| one.target.ends_with("cudnn.benchmark"));
        let Some(set) = set else { continue };
        let Some(value) = text.node(&set.value) else { continue };
        let is_here = !at.is_empty() && at.includes(program, module, value);
        match text.text(&set.value) {
            "True" if is_here => edits.replace(module, set.value.clone(), "False"),
            "True" => {
                let at = program.at(module, set.at.start);
                return Err(Refusal::done(format!("{at} already enables it")));
            }
            "False" => edits.replace(module, set.value.clone(), "True"),
            _ => return Err(program.refuse(module, set.at.start, "sets it from a variable")),
        }
        return Ok(());
    }
    check_not_deterministic(program)?;
    let text = program.module(0);
    let torch = imports::torch(edits, 0, text);
    let line = format!("{torch}.backends.cudnn.benchmark = True");
    let Some((last, _)) = leading_imports(text).pop() else {
        return Err(Refusal::not_understood(format!("{} has no imports", text.path)));
    };
    // Preceded by an empty line.
    let layout = Layout::of(text);
    let end = layout.line_end_at(last.end_byte());
    edits.insert(0, end, format!("{0}{0}{line}", layout.line_end));
    Ok(())
}

/// Rejects programs that request deterministic results, which autotuning would change.
fn check_not_deterministic(program: &Program<'_>) -> Result<(), Refusal> {
    for (module, text) in program.modules().iter().enumerate() {
        for name in ["use_deterministic_algorithms", "deterministic"] {
            let source = text.index.text();
            if !mentions(source, name) {
                continue;
            }
            let at = source.find(name).unwrap_or_default();
            let why = "requests deterministic results";
            return Err(program.refuse(module, at, why));
        }
    }
    Ok(())
}
