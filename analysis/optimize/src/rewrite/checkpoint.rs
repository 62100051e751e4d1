//! Activation recomputation in the backward pass (Chen et al., 2016; `torch.utils.checkpoint`).

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::imports;
use super::models::is_module_class;
use super::program::Program;
use super::syntax::{callee, calls_in, reads, within, written};
use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::module::Module;
use ridgeline_python::semantics::project::file;
use ridgeline_python::semantics::trace::Place;

/// The module of the function.
const MODULE: &str = "torch.utils.checkpoint";

/// Writes `checkpoint(self.block, x, use_reentrant=False)` for `self.block(x)`: at the requested
/// lines, or else for the model's repeated blocks.
pub(super) fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    lines: &[(&str, u32)],
) -> Result<(), Refusal> {
    let calls = if lines.is_empty() { repeated(program)? } else { at_lines(program, lines)? };
    for (module, call) in calls {
        wrap(program, edits, module, call)?;
    }
    Ok(())
}

/// Returns the outermost module calls on lines.
fn at_lines<'a>(
    program: &Program<'a>,
    lines: &[(&str, u32)],
) -> Result<Vec<(usize, Node<'a>)>, Refusal> {
    let mut found: Vec<(usize, Node<'a>)> = Vec::new();
    for (path, line) in lines {
        let Some((module, part)) = file(program.modules(), path) else {
            return Err(Refusal::not_understood(format!("{path} is not part of the program")));
        };
        let text = program.module(module);
        let in_module = part.line_in_module(*line);
        let on_line = text.calls.iter().filter(|call| text.line(call.span.start) == in_module);
        let nodes: Vec<Node<'a>> = on_line.filter_map(|call| program.node(module, call)).collect();
        if nodes.iter().any(|node| is_checkpoint(program, module, *node)) {
            return Err(Refusal::done(format!("{path}:{line} already uses a checkpoint")));
        }
        let module_calls: Vec<Node<'a>> =
            nodes.into_iter().filter(|node| calls_module(program, module, *node)).collect();
        // Keep only the outermost of nested calls.
        let outermost = module_calls.iter().filter(|one| {
            let inside = |other: &Node<'_>| {
                other.id() != one.id()
                    && other.start_byte() <= one.start_byte()
                    && one.end_byte() <= other.end_byte()
            };
            !module_calls.iter().any(inside)
        });
        found.extend(outermost.map(|one| (module, *one)));
    }
    // Some lines of a prediction call functions, which save nothing themselves.
    match lines.first().filter(|_| found.is_empty()) {
        Some((path, line)) => {
            let why = format!("{path}:{line} does not call a module of the model");
            Err(Refusal::NotUnderstood(why))
        }
        None => Ok(found),
    }
}

/// Returns the calls of blocks in a loop over a list of them, in a model's forward.
fn repeated<'a>(program: &Program<'a>) -> Result<Vec<(usize, Node<'a>)>, Refusal> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for one in &text.loops {
            let over = one.iterable.as_ref().map(|span| text.text(span)).unwrap_or_default();
            let is_forward = one.function.is_some_and(|at| {
                text.functions[at].name.starts_with("forward")
                    && text.functions[at]
                        .class
                        .is_some_and(|class| is_module_class(program, module, class, 0))
            });
            if !is_forward || !over.contains("self.") {
                continue;
            }
            let Some(node) = text.node(&one.span) else { continue };
            for call in calls_in(node) {
                if is_checkpoint(program, module, call) {
                    let at = program.at(module, call.start_byte());
                    return Err(Refusal::done(format!("{at} already uses a checkpoint")));
                }
                if loop_variable(text, call) {
                    found.push((module, call));
                }
            }
        }
    }
    if found.is_empty() {
        found = parts(program)?;
    }
    match found.is_empty() {
        true => Err(Refusal::not_understood(
            "no repeated blocks were found in the model; name a line to checkpoint",
        )),
        false => Ok(found),
    }
}

/// Returns the calls of a model's parts if it has several, each with several layers:
/// `self.layer1(x)`.
fn parts<'a>(program: &Program<'a>) -> Result<Vec<(usize, Node<'a>)>, Refusal> {
    for (module, text) in program.modules().iter().enumerate() {
        for (at, function) in text.functions.iter().enumerate() {
            let Some(class) = function.class.filter(|_| function.name == "forward") else {
                continue;
            };
            if !is_module_class(program, module, class, 0) {
                continue;
            }
            let own = text.calls.iter().filter(|call| call.function == Some(at));
            let nodes: Vec<Node<'a>> = own.filter_map(|call| program.node(module, call)).collect();
            let known = nodes.iter().find(|node| is_checkpoint(program, module, **node));
            if let Some(known) = known {
                let at = program.at(module, known.start_byte());
                return Err(Refusal::done(format!("{at} already uses a checkpoint")));
            }
            let part_calls =
                nodes.into_iter().filter(|node| is_part(program, module, class, *node));
            let found: Vec<(usize, Node<'a>)> = part_calls.map(|node| (module, node)).collect();
            if found.len() > 1 {
                return Ok(found);
            }
        }
    }
    Ok(Vec::new())
}

/// Whether a call calls a part with several layers: a sequence, an encoder, or a module of the
/// program.
fn is_part(program: &Program<'_>, module: usize, class: usize, call: Node<'_>) -> bool {
    let text = program.module(module);
    let name = callee(text, call);
    let set = text
        .assignments
        .iter()
        .find(|one| one.target == name && program.class_of((module, one.function)) == Some(class));
    let value = set.and_then(|set| text.node(&set.value)).filter(|node| node.is(Kind::Call));
    let Some(value) = value else { return false };
    let constructor = callee(text, value);
    let qualified = program.absolute(module, &constructor);
    let known =
        ["torch.nn.Sequential", "torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder"];
    if known.contains(&qualified.as_str()) {
        return true;
    }
    let place = Place { module, span: value.byte_range() };
    match callable(&program.tracer, &place, &constructor) {
        Some(Callable::Class(inner, class)) => is_module_class(program, inner, class, 0),
        // `self.layer1 = self._make_layer(64, 3)`
        Some(Callable::Function(inner, at)) => {
            let text = program.module(inner);
            let function = &text.functions[at];
            function.returns.iter().any(|value| text.text(value).contains("Sequential("))
        }
        None => false,
    }
}

fn is_checkpoint(program: &Program<'_>, module: usize, call: Node<'_>) -> bool {
    let name = callee(program.module(module), call);
    program.absolute(module, &name).starts_with(MODULE)
}

/// Whether a call calls a module: an attribute of `self` set in a constructor, or the variable of a
/// loop over such attributes.
fn calls_module(program: &Program<'_>, module: usize, call: Node<'_>) -> bool {
    let text = program.module(module);
    if loop_variable(text, call) {
        return true;
    }
    let name = callee(text, call);
    let Some(attribute) = name.strip_prefix("self.") else { return false };
    let root = format!("self.{}", attribute.split(['.', '[']).next().unwrap_or(attribute));
    let at = text.function_at(call.start_byte());
    let Some(class) = program.class_of((module, at)) else { return false };
    let is_method = text
        .functions
        .iter()
        .any(|one| one.class == Some(class) && format!("self.{}", one.name) == root);
    !is_method
        && is_module_class(program, module, class, 0)
        && text.assignments.iter().any(|one| {
            one.target == root && program.class_of((module, one.function)) == Some(class)
        })
}

/// Whether a call is `block(x)` in `for block in self.blocks:`, also with `enumerate`.
fn loop_variable(text: &Module, call: Node<'_>) -> bool {
    let name = callee(text, call);
    let mut at = call.parent();
    while let Some(node) = at.filter(|node| !node.is(Kind::FunctionDefinition)) {
        if node.is(Kind::ForStatement) {
            let left = node.field(Field::Left);
            let over = node.field(Field::Right).map(|right| written(text, right));
            let is_variable = left.is_some_and(|left| {
                within(left)
                    .into_iter()
                    .any(|one| one.is(Kind::Identifier) && text.text(&one.byte_range()) == name)
            });
            if is_variable {
                return over.is_some_and(|over| over.contains("self."));
            }
        }
        at = node.parent();
    }
    false
}

fn wrap(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    call: Node<'_>,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let start = call.start_byte();
    let (Some(function), Some(arguments)) =
        (call.field(Field::Function), program.arguments(module, call))
    else {
        return Ok(());
    };
    if arguments.has_star || !arguments.splats.is_empty() {
        return Err(program.refuse(module, start, "calls the module with starred arguments"));
    }
    if arguments.positional.is_empty() {
        return Err(program.refuse(module, start, "calls the module without a tensor argument"));
    }
    let checkpoint = match imports::imported(edits, module, text, MODULE, "checkpoint") {
        Some(name) => name,
        None => {
            return Err(program.refuse(
                module,
                start,
                "is in a file that uses the name `checkpoint` for something else",
            ));
        }
    };
    let has_norm = text.index.text().contains("BatchNorm");
    if has_norm {
        edits.note("batch norm layers inside a checkpoint update their running statistics twice");
    }
    let inner = calls_in(call);
    let is_chain =
        inner.iter().any(|one| one.id() != call.id() && calls_module(program, module, *one));
    if is_chain {
        // The whole chain is recomputed from its inputs.
        let names = locals(text, call);
        if names.is_empty() {
            return Err(program.refuse(
                module,
                start,
                "calls modules that are not held in a variable",
            ));
        }
        let names = names.join(", ");
        edits.insert(module, start, format!("{checkpoint}(lambda {names}: "));
        edits.insert(module, call.end_byte(), format!(", {names}, use_reentrant=False)"));
        return Ok(());
    }
    edits.insert(module, start, format!("{checkpoint}("));
    let list = call.field(Field::Arguments);
    let open = list.map_or(function.end_byte(), |list| list.start_byte());
    edits.replace(module, open..open + 1, ", ");
    edits.add_arguments(program, module, call, &["use_reentrant=False"])
}

/// Returns the local variables that an expression reads.
fn locals(text: &Module, node: Node<'_>) -> Vec<String> {
    let Some(at) = text.function_at(node.start_byte()) else { return Vec::new() };
    let function = &text.functions[at];
    let names = reads(text, node).into_iter().filter(|name| {
        let is_parameter = function.parameters.iter().any(|parameter| parameter.name == *name);
        let is_set =
            || text.assignments.iter().any(|one| one.function == Some(at) && one.target == *name);
        name != "self" && (is_parameter || is_set())
    });
    names.collect()
}
