//! Batches in pinned memory, copied while the GPU computes (PyTorch `DataLoader`).

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::argument::{self, Argument};
use super::edits::Edits;
use super::forward::backwards;
use super::loader::loaders;
use super::models::Models;
use super::program::{Program, Scope};
use super::syntax::{object_of, written};

/// Adds `pin_memory=True` to the loader and `non_blocking=True` to the copies of its batches.
pub fn rewrite(program: &Program<'_>, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    let loaders = loaders(program)?;
    let copies = copies(program)?;
    if copies.is_empty() {
        return Err(Refusal::not_understood("no batch is copied to a GPU in the loop"));
    }
    for loader in loaders {
        let (module, call) = (loader.module, loader.call);
        let Some(arguments) = program.arguments(module, call) else { continue };
        if arguments.has_star || !arguments.splats.is_empty() {
            let why =
                "passes starred arguments to the DataLoader, which may already set pin_memory";
            return Err(program.refuse(module, call.start_byte(), why));
        }
        let given = arguments.named("pin_memory");
        argument::set(program, edits, (module, call), ("pin_memory", "True"), given)?;
    }
    for (module, call) in copies {
        make_non_blocking(program, edits, module, call)?;
    }
    if edits.is_empty() {
        return Err(Refusal::done("batches are already pinned and copied asynchronously"));
    }
    Ok(())
}

/// Adds `non_blocking=True` to a copy. Returns false if the argument is already given.
pub fn make_non_blocking(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    call: Node<'_>,
) -> Result<bool, Refusal> {
    let Some(arguments) = program.arguments(module, call) else { return Ok(true) };
    let given = arguments.named("non_blocking");
    let became = argument::set(program, edits, (module, call), ("non_blocking", "True"), given)?;
    Ok(became == Argument::Set)
}

/// Returns the copies of batches in training loops and in the functions that these call.
pub fn copies<'a>(program: &Program<'a>) -> Result<Vec<(usize, Node<'a>)>, Refusal> {
    let models = Models::of(program);
    let mut scopes: Vec<(Scope, Option<std::ops::Range<usize>>)> = Vec::new();
    for backward in backwards(program)? {
        let (module, function) = backward.scope;
        let text = program.module(module);
        let around = text
            .loops
            .iter()
            .find(|one| one.function == function && one.span.contains(&backward.call.start_byte()));
        let span = around.map(|one| one.span.clone());
        if span.is_none() && function.is_none() {
            continue;
        }
        scopes.push((backward.scope, span.clone()));
        // Functions called from there: `loss = self.loss(batch)`.
        let calls = text.calls.iter().filter(|call| {
            call.function == function
                && span.as_ref().is_none_or(|span| span.contains(&call.span.start))
        });
        for call in calls {
            let inner = text.functions.iter().position(|one| {
                one.name == call.name() && one.name != "forward" && one.name != "__init__"
            });
            scopes.extend(inner.map(|inner| ((module, Some(inner)), None)));
        }
    }
    let mut found: Vec<(usize, Node<'a>)> = Vec::new();
    for (module, call) in program.calls() {
        let within = scopes.iter().any(|((of, function), span)| {
            *of == module
                && *function == call.function
                && span.as_ref().is_none_or(|span| span.contains(&call.span.start))
        });
        let Some(node) = program.node(module, call).filter(|_| within) else { continue };
        if is_device_copy(program, &models, module, node) && !found.contains(&(module, node)) {
            found.push((module, node));
        }
    }
    Ok(found)
}

/// Whether a call is `x.to(device)` or `x.cuda()` for a value that is not a model.
fn is_device_copy(program: &Program<'_>, models: &Models, module: usize, call: Node<'_>) -> bool {
    let text = program.module(module);
    let cuda = object_of(text, call, "cuda");
    let Some(object) = cuda.or_else(|| object_of(text, call, "to")) else { return false };
    if models.is_one(&written(text, object)) || object.is(Kind::Call) {
        return false;
    }
    let Some(arguments) = program.arguments(module, call) else { return false };
    let target = arguments.named("device").or(arguments.positional.first().copied());
    cuda.is_some() || target.is_some_and(|target| names_a_device(&written(text, target)))
}

/// Whether an argument of `to` is a device, judged by its name.
pub(super) fn names_a_device(argument: &str) -> bool {
    let argument = argument.to_lowercase();
    ["device", "cuda", "rank", "gpu"].iter().any(|word| argument.contains(word))
        && !argument.contains("dtype")
}
