//! TF32 matrix multiplications on tensor cores (NVIDIA, "TF32").

use super::Refusal;
use super::edits::Edits;
use super::imports::{self, leading_imports};
use super::layout::Layout;
use super::program::Program;

/// Adds `torch.set_float32_matmul_precision("high")` once, after the imports of the entry.
pub(super) fn rewrite(program: &Program<'_>, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    for (module, call) in program.calls() {
        if call.name() != "set_float32_matmul_precision" {
            continue;
        }
        let text = program.module(module);
        let at = program.at(module, call.span.start);
        let first = program
            .node(module, call)
            .and_then(|node| program.arguments(module, node)?.positional.first().copied());
        let Some(first) = first else {
            return Err(program.refuse(
                module,
                call.span.start,
                "sets the precision from a variable",
            ));
        };
        let value = text.text(&first.byte_range());
        return match value.trim_matches(['"', '\'']) {
            "high" | "medium" => Err(Refusal::done(format!("{at} already sets it"))),
            "highest" => {
                edits.replace(module, first.byte_range(), value.replace("highest", "high"));
                Ok(())
            }
            _ => Err(program.refuse(module, call.span.start, "sets the precision from a variable")),
        };
    }
    if let Some(refusal) = older_setting(program, edits) {
        return refusal;
    }
    let text = program.module(0);
    let torch = imports::torch(edits, 0, text);
    let line = format!("{torch}.set_float32_matmul_precision({})", Layout::of(text).quoted("high"));
    let line_end = Layout::of(text).line_end;
    match leading_imports(text).last() {
        Some((last, _)) => {
            // Preceded by an empty line.
            let end = Layout::of(text).line_end_at(last.end_byte());
            edits.insert(0, end, format!("{line_end}{line_end}{line}"));
        }
        None => return Err(Refusal::not_understood(format!("{} has no imports", text.path))),
    }
    Ok(())
}

/// Handles the older setting `torch.backends.cuda.matmul.allow_tf32 = True`.
fn older_setting(program: &Program<'_>, edits: &mut Edits<'_>) -> Option<Result<(), Refusal>> {
    for (module, text) in program.modules().iter().enumerate() {
        let set = text.assignments.iter().find(|one| {
            one.target.ends_with("cuda.matmul.allow_tf32")
                || one.target.ends_with("cuda.matmul.fp32_precision")
        });
        let Some(set) = set else { continue };
        let at = program.at(module, set.at.start);
        return Some(match text.text(&set.value) {
            "True" | "\"tf32\"" | "'tf32'" => Err(Refusal::done(format!("{at} already allows it"))),
            "False" => {
                edits.replace(module, set.value.clone(), "True");
                Ok(())
            }
            _ => Err(program.refuse(module, set.at.start, "sets it from a variable")),
        });
    }
    None
}
