//! CUDA graphs of a model's forward and backward pass: `torch.compile(model, mode="reduce-overhead")`
//! (PyTorch, "CUDAGraph Trees").
//!
//! A graph writes its outputs to the same memory in every replay. Programs that still use the outputs or the gradients
//! of an earlier iteration fail with it, so the edit refuses them.

use tree_sitter::Node;

use super::Refusal;
use super::compile;
use super::edits::Edits;
use super::forward::{Backward, backwards};
use super::layout::Layout;
use super::optimizers::is_optimizer;
use super::outputs;
use super::program::Program;
use super::syntax::written;
use ridgeline_python::semantics::module::last_name;

/// The compiler's mode.
const MODE: &str = "reduce-overhead";

/// Classes that train a model on several GPUs.
const PARALLEL: [&str; 5] =
    ["DataParallel", "DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"];

/// Compiles the model with CUDA graphs, or adds the mode where it is compiled already.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    let compiled = compile::compiled_models(program)?;
    for (module, call) in &compiled {
        set_mode(program, edits, *module, *call)?;
    }
    if let Some((module, call)) = compiled.first().filter(|_| edits.is_empty()) {
        let at = program.at(*module, call.start_byte());
        return Err(Refusal::done(format!("{at} already uses CUDA graphs")));
    }
    check_one_graph(program)?;
    check_gradients(program)?;
    outputs::check_not_kept(program)?;
    if compiled.is_empty() {
        let text = program.module(0);
        let mode = format!("mode={}", Layout::of(text).quoted(MODE));
        compile::compile(program, edits, &mode)?;
    }
    edits.note("the model has to be called with the same shapes in every iteration; each new shape is captured again");
    Ok(())
}

/// Adds the mode to an existing call of `torch.compile`.
fn set_mode<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    module: usize,
    call: Node<'a>,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let at = call.start_byte();
    let Some(arguments) = program.arguments(module, call) else {
        return Err(program.refuse(module, at, "compiles the model in an unsupported form"));
    };
    if !arguments.splats.is_empty() || arguments.has_star {
        return Err(program.refuse(module, at, "passes starred arguments to torch.compile"));
    }
    if let Some(other) = ["backend", "options"].iter().find(|one| arguments.named(one).is_some()) {
        let what = format!("compiles the model with `{other}`, which decides about CUDA graphs");
        return Err(program.refuse(module, at, &what));
    }
    let quoted = Layout::of(text).quoted(MODE);
    let Some(given) = arguments.named("mode") else {
        return edits.add_arguments(program, module, call, &[&format!("mode={quoted}")]);
    };
    match written(text, given).trim_matches(['"', '\'']) {
        MODE | "max-autotune" => {}
        "default" | "None" => edits.replace(module, given.byte_range(), quoted),
        _ => {
            let what = format!("compiles the model with another mode: change it to {quoted} there");
            return Err(program.refuse(module, at, &what));
        }
    }
    Ok(())
}

/// Rejects programs whose forward pass does not stay in one graph on one GPU.
fn check_one_graph(program: &Program<'_>) -> Result<(), Refusal> {
    for (module, call) in program.calls() {
        let qualified = program.called(module, call);
        let why = match last_name(&qualified) {
            name if PARALLEL.contains(&name) => {
                "trains on several GPUs, where this edit was not tried"
            }
            "save_on_cpu" | "saved_tensors_hooks" => {
                "changes how tensors are saved for the backward pass, which the compiler decides"
            }
            _ => continue,
        };
        return Err(program.refuse(module, call.span.start, why));
    }
    Ok(())
}

/// Rejects programs that keep gradients over several backward passes: the first one's gradients are in the memory of
/// the graph, which the second one overwrites.
fn check_gradients(program: &Program<'_>) -> Result<(), Refusal> {
    let backwards = backwards(program)?;
    let [backward] = &backwards[..] else {
        let why = "the program calls backward() in several places, and a CUDA graph would overwrite the gradients of \
            the first";
        return Err(Refusal::not_understood(why));
    };
    let (module, function) = backward.scope;
    let around = span_of_step(program, backward);
    let text = program.module(module);
    let here = text
        .calls
        .iter()
        .filter(|call| call.function == function && around.contains(&call.span.start));
    let unconditional = |call: &ridgeline_python::semantics::module::Call| {
        let branches = text.calls.iter().find(|one| one.span == backward.call.byte_range());
        branches.is_none_or(|one| one.branches.starts_with(&call.branches))
    };
    let mut clears = false;
    let mut steps = false;
    for call in here {
        let Some((owner, method)) = call.callee.rsplit_once('.') else { continue };
        let is_step =
            method == "step" && (is_optimizer(program, owner) || owner.ends_with("scaler"));
        if is_step && !unconditional(call) {
            let why = "accumulates gradients over several iterations, and a CUDA graph would overwrite them";
            return Err(program.refuse(module, call.span.start, why));
        }
        steps |= is_step;
        if method != "zero_grad" {
            continue;
        }
        let arguments = program.node(module, call).and_then(|node| program.arguments(module, node));
        let given =
            arguments.and_then(|one| one.named("set_to_none").or(one.positional.first().copied()));
        if given.is_some_and(|given| written(text, given) != "True") {
            let why = "keeps gradients instead of setting them to None, and a CUDA graph would overwrite them: apply \
                `zero-grad-none` first";
            return Err(program.refuse(module, call.span.start, why));
        }
        clears |= unconditional(call);
    }
    match clears && steps {
        true => Ok(()),
        false => {
            let why = "calls backward() without an optimizer step and a zero_grad() next to it";
            Err(program.refuse(module, backward.call.start_byte(), why))
        }
    }
}

/// Returns the innermost loop of a backward pass, or its function.
fn span_of_step(program: &Program<'_>, backward: &Backward<'_>) -> std::ops::Range<usize> {
    let (module, function) = backward.scope;
    let text = program.module(module);
    let at = backward.call.start_byte();
    let loops = text.loops.iter().filter(|one| one.function == function && one.span.contains(&at));
    let innermost = loops.min_by_key(|one| one.span.len()).map(|one| one.span.clone());
    let whole =
        || function.map_or(0..text.index.text().len(), |at| text.functions[at].span.clone());
    innermost.unwrap_or_else(whole)
}
