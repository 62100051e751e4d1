//! Activations that overwrite their input if nothing else needs it.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::HashSet;

use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::models::is_module_class;
use super::super::program::Program;
use super::super::syntax::{callee, everything, written};
use super::TargetLines;
use super::activations::{KEEP_A_COPY, kind_of};
use super::attributes::{
    LayerAttribute, calls_of, has_other_uses, layer_attributes, layer_before, only_argument,
};
use super::layers::{Candidate, change_all, does_not_save_output, layer, refuse_all, switch};
use super::sequences::sequences;
use super::taken_apart::taken_apart;
use ridgeline_python::semantics::call_sites::Arguments;
use ridgeline_python::semantics::module::last_name;

/// Adds `inplace=True` to activations after layers that do not need their output for the backward
/// pass.
pub fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let found = candidates(program);
    let nothing = "no activation here has an input that nothing else uses";
    let change = |edits: &mut Edits<'a>, one: &Candidate<'a>| {
        in_place(program, edits, one.module, one.creation)
    };
    let made = change_all(program, edits, at, &found, change, ("already works in place", nothing));
    made.map_err(|refusal| match refusal_for_copies(program, at) {
        Some(copy) if refusal == Refusal::not_understood(nothing) => copy,
        _ => refusal,
    })
}

/// An activation in a method that could overwrite a layer's output.
pub struct OverwritingActivation<'a> {
    pub module: usize,
    /// The call that creates or computes it: `nn.LeakyReLU(0.2)`, `F.leaky_relu(x)`.
    pub creation: Node<'a>,
    /// The calls that compute it, each with the call of the preceding layer.
    pub calls: Vec<(Node<'a>, Node<'a>)>,
}

/// Returns the activations in methods for which the edit is safe and not yet applied.
pub fn overwriting<'a>(program: &Program<'a>) -> Vec<OverwritingActivation<'a>> {
    let all = layer_attributes(program);
    let found = candidates(program).into_iter().filter(|one| one.refusal.is_none());
    let found = found.filter_map(|Candidate { module, creation: made, uses, .. }| {
        let class =
            program.class_of((module, program.module(module).function_at(made.start_byte())))?;
        let computed = if uses.is_empty() { vec![made] } else { uses };
        let with_layer = |call: Node<'a>| {
            let given = program.arguments(module, call)?.positional.first().copied()?;
            let (_, before) = layer_before(program, &all, (module, class), given)?;
            Some((call, before))
        };
        let calls = computed.into_iter().map(with_layer).collect::<Option<Vec<_>>>()?;
        let edit = in_place(program, &mut Edits::new(program), module, made);
        (edit == Ok(true)).then_some(OverwritingActivation { module, creation: made, calls })
    });
    found.collect()
}

/// Returns the activations whose input nothing else needs.
fn candidates<'a>(program: &Program<'a>) -> Vec<Candidate<'a>> {
    let all = layer_attributes(program);
    let sequential = in_sequences(program);
    let read: HashSet<usize> = sequential
        .iter()
        .filter(|(_, is_read)| *is_read)
        .map(|(one, _)| one.creation.id())
        .collect();
    let mut found: Vec<Candidate<'a>> = sequential.into_iter().map(|(one, _)| one).collect();
    found.extend(in_methods(program, &all));
    found.extend(functions(program, &all));
    if found.is_empty() {
        return found;
    }
    let known: HashSet<usize> = found.iter().map(|one| one.creation.id()).collect();
    if let Some((module, offset)) = changed_in_place(program, |node| known.contains(&node.id())) {
        let why = "modifies a tensor in place, possibly the output that this activation needs for \
            its gradient";
        let refusal = program.refuse(module, offset, why);
        for one in &mut found {
            // ReLU saves its output in any case: code that overwrites it already fails.
            let kind = kind_of(program, one.module, one.creation);
            let is_relu = kind.is_some_and(|kind| kind.function == "relu");
            if !is_relu && !read.contains(&one.creation.id()) {
                one.refusal = Some(refusal.clone());
            }
        }
    }
    if let Some((module, offset)) = taken_apart(program) {
        let why = "accesses single layers of the model, possibly the output that this one would \
            overwrite";
        refuse_all(&mut found, &program.refuse(module, offset, why));
    }
    found
}

/// Returns the activations in an `nn.Sequential` after a layer that does not need its output, and
/// whether only a layer after them sees and reads their output.
fn in_sequences<'a>(program: &Program<'a>) -> Vec<(Candidate<'a>, bool)> {
    let mut found = Vec::new();
    for (module, layers) in sequences(program) {
        for (at, pair) in layers.windows(2).enumerate() {
            let [one, next] = pair else { continue };
            if !does_not_save_output(&one.layer) || kind_of(program, module, next.made).is_none() {
                continue;
            }
            let candidate = Candidate::new(module, next.made, Vec::new());
            let next_layer = layers.get(at + 2).map(|one| one.layer.as_str()).unwrap_or_default();
            let is_only_read = does_not_save_output(next_layer) || next_layer.contains("Pool");
            found.push((candidate, is_only_read));
        }
    }
    found
}

/// Returns the activations held by a class for which each call takes the output of a preceding
/// layer.
fn in_methods<'a>(program: &Program<'a>, all: &[LayerAttribute<'a>]) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for one in all.iter().filter(|one| kind_of(program, one.module, one.creation).is_some()) {
        let calls = calls_of(program, one);
        let is_safe = |call: &Node<'a>| {
            let given = only_argument(*call);
            given.is_some_and(|given| is_free(program, all, (one.module, one.class), given))
        };
        if !calls.is_empty() && calls.iter().all(is_safe) && !has_other_uses(program, one) {
            found.push(Candidate::new(one.module, one.creation, calls));
        }
    }
    found
}

/// Returns activations computed by functions: `F.relu(self.bn(x))`.
fn functions<'a>(program: &Program<'a>, all: &[LayerAttribute<'a>]) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for (module, call) in program.calls() {
        let Some(node) = program.node(module, call) else { continue };
        let Some(class) = program.class_of((module, call.function)) else { continue };
        if layer(program, module, node).is_some() || kind_of(program, module, node).is_none() {
            continue;
        }
        let arguments: Option<Arguments<'a>> = program.arguments(module, node);
        let given = arguments.and_then(|all| all.positional.first().copied());
        if given.is_some_and(|given| is_free(program, all, (module, class), given)) {
            found.push(Candidate::new(module, node, Vec::new()));
        }
    }
    found
}

/// Whether a value may be overwritten: it is the output of a layer that does not need it.
fn is_free<'a>(
    program: &Program<'a>,
    all: &[LayerAttribute<'a>],
    class: (usize, usize),
    given: Node<'a>,
) -> bool {
    layer_before(program, all, class, given).is_some_and(|(by, _)| does_not_save_output(&by.layer))
}

/// Makes one activation in-place. Returns false if it already is.
fn in_place(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    made: Node<'_>,
) -> Result<bool, Refusal> {
    let start = made.start_byte();
    let text = program.module(module);
    let arguments = program.arguments(module, made);
    let (Some(arguments), Some(kind)) = (arguments, kind_of(program, module, made)) else {
        return Err(program.refuse(module, start, "creates it in an unsupported form"));
    };
    if arguments.has_star || !arguments.splats.is_empty() {
        let why = "passes starred arguments to the activation, which may already set inplace";
        return Err(program.refuse(module, start, why));
    }
    // The first argument of a function is its input.
    let first = usize::from(layer(program, module, made).is_none());
    let positional = |at: usize| arguments.positional.get(first + at).copied();
    if let Some(slope) = kind.slope
        && let Some(given) = arguments.named(slope).or(positional(0))
    {
        let given = written(text, given);
        if !given.parse::<f64>().is_ok_and(|value| value > 0.0) {
            let what =
                format!("takes {slope} from `{given}`; a negative slope has no gradient in place");
            return Err(program.refuse(module, start, &what));
        }
    }
    let given = arguments.named("inplace").or(positional(kind.place));
    switch(program, edits, (module, made), ("inplace", "True"), given)
}

/// Returns a refusal for an activation at a requested line that copies its input even in place.
fn refusal_for_copies(program: &Program<'_>, at: &TargetLines<'_>) -> Option<Refusal> {
    if at.is_empty() {
        return None;
    }
    program.calls().find_map(|(module, call)| {
        let node = program.node(module, call).filter(|node| at.includes(program, module, *node))?;
        let name = layer(program, module, node)?;
        let what = format!("has {name}, which copies its input even in place: nothing is saved");
        KEEP_A_COPY
            .contains(&name.as_str())
            .then(|| program.refuse(module, node.start_byte(), &what))
    })
}

/// Returns where a model's code changes a tensor in place that may be an activation's output:
/// module and offset. Nodes for which `is_safe` holds are skipped.
fn changed_in_place<'a>(
    program: &Program<'a>,
    is_safe: impl Fn(Node<'a>) -> bool,
) -> Option<(usize, usize)> {
    let mut called: HashSet<String> = HashSet::new();
    for is_model in [true, false] {
        for (module, text) in program.modules().iter().enumerate() {
            for (at, function) in text.functions.iter().enumerate() {
                let class = program.class_of((module, Some(at)));
                let is_in_model = class.is_some_and(|at| is_module_class(program, module, at, 0));
                // Functions that models call are included.
                if function.name == "__init__"
                    || is_in_model != is_model
                    || !(is_model || called.contains(&function.name))
                {
                    continue;
                }
                let Some(body) = text.node(&function.body) else { continue };
                for node in everything(body) {
                    if changes(program, module, node) && !is_safe(node) {
                        return Some((module, node.start_byte()));
                    }
                    if is_model && node.is(Kind::Call) {
                        called.insert(last_name(&callee(text, node)).to_owned());
                    }
                }
            }
        }
    }
    // `nn.Dropout(0.5, inplace=True)` anywhere.
    program.calls().find_map(|(module, call)| {
        let node = program.node(module, call)?;
        (works_in_place(program, module, node) && !is_safe(node))
            .then_some((module, call.span.start))
    })
}

/// Whether a node changes a tensor in place: `x += y`, `x.mul_(2)`, `F.relu(x, inplace=True)`.
fn changes(program: &Program<'_>, module: usize, node: Node<'_>) -> bool {
    let text = program.module(module);
    match Kind::of(&node) {
        Kind::AugmentedAssignment => {
            let value = node.field(Field::Right).map(|value| value.kind());
            let plain = ["integer", "float", "list", "tuple", "string", "list_comprehension"];
            let target = node.field(Field::Left).map(|left| written(text, left));
            let function = text.function_at(node.start_byte());
            let is_list = text.assignments.iter().any(|one| {
                let value = text.node(&one.value).map(|value| value.kind());
                one.function == function
                    && Some(&one.target) == target.as_ref()
                    && value == Some("list")
            });
            !is_list && value.is_some_and(|value| !plain.contains(&value))
        }
        Kind::Call => {
            let name = callee(text, node);
            let last = last_name(&name);
            let is_method = last.ends_with('_') && !last.ends_with("__") && name.contains('.');
            let starts_values = program.absolute(module, &name).starts_with("torch.nn.init.");
            (is_method && last != "requires_grad_" && !starts_values)
                || works_in_place(program, module, node)
        }
        _ => false,
    }
}

/// Whether a call of `torch.nn` creates or runs an in-place operation.
fn works_in_place(program: &Program<'_>, module: usize, call: Node<'_>) -> bool {
    let text = program.module(module);
    let kind = kind_of(program, module, call);
    if kind.is_none() && !program.absolute(module, &callee(text, call)).starts_with("torch.nn.") {
        return false;
    }
    let Some(arguments) = program.arguments(module, call) else { return false };
    let first = usize::from(layer(program, module, call).is_none());
    let by_place = kind.and_then(|kind| arguments.positional.get(first + kind.place).copied());
    let given = arguments.named("inplace").or(by_place);
    given.is_some_and(|given| written(text, given) != "False")
}
