//! The gradient scaler for float16: losses are scaled up, and gradients are unscaled before they
//! are used (PyTorch, "Automatic Mixed Precision examples").

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::devices;
use super::edits::Edits;
use super::forward::{Backward, backwards};
use super::imports;
use super::models::Models;
use super::optimizers::{self, is_optimizer};
use super::program::{Program, Scope};
use super::syntax::{callee, statement_of, written};
use ridgeline_python::semantics::call_sites::calls_of;
use ridgeline_python::semantics::module::last_name;

/// One `optimizer.step()`.
struct Step<'a> {
    scope: Scope,
    call: Node<'a>,
    statement: Node<'a>,
    optimizer: String,
}

/// An added scaler.
struct Scaler {
    /// Its name where the optimizer steps.
    name: String,
    /// Whether it is created at module level.
    is_global: bool,
}

/// Adds a scaler and uses it. Returns its name.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<String, Refusal> {
    let backwards = backwards(program)?;
    let steps = steps(program)?;
    for backward in &backwards {
        if backward.statement.byte_range() != backward.call.byte_range() {
            let why = "combines backward() with other work in one statement";
            return Err(program.refuse(backward.scope.0, backward.call.start_byte(), why));
        }
    }
    let Scaler { name, is_global } = place_scaler(program, edits, &steps)?;
    let models = Models::of(program);
    for backward in &backwards {
        let module = backward.scope.0;
        let text = program.module(module);
        let step_scope = steps.first().map(|step| step.scope);
        let is_same = step_scope == Some(backward.scope);
        let same_module = step_scope.is_some_and(|scope| scope.0 == module);
        let same_class = same_module
            && name.starts_with("self.")
            && program.class_of(backward.scope) == step_scope.and_then(|one| program.class_of(one));
        if !(is_same || same_class || (is_global && same_module)) {
            let why = "calls backward() in a different function than the optimizer step";
            return Err(program.refuse(module, backward.call.start_byte(), why));
        }
        if models.are_used_by(program, module, backward.loss) {
            continue; // The autocast edit names this loss and scales it.
        }
        let mut loss = backward.loss;
        if loss.is(Kind::ParenthesizedExpression) {
            loss = loss.named_child(0).unwrap_or(loss);
        }
        let scaled = format!("{name}.scale({})", text.text(&loss.byte_range()));
        edits.replace(module, backward.loss.byte_range(), scaled);
    }
    for (at, step) in steps.iter().enumerate() {
        let module = step.scope.0;
        edits.replace(module, step.call.byte_range(), format!("{name}.step({})", step.optimizer));
        unscale_for(program, edits, &backwards, step, &name)?;
        // One update for all steps of a block.
        let block = step.statement.parent().map(|one| one.id());
        let is_last = !steps.iter().skip(at + 1).any(|other| {
            other.scope == step.scope && other.statement.parent().map(|one| one.id()) == block
        });
        if is_last {
            edits.after(module, step.statement, &[format!("{name}.update()")]);
        }
    }
    Ok(name)
}

/// Returns the optimizer steps.
fn steps<'a>(program: &Program<'a>) -> Result<Vec<Step<'a>>, Refusal> {
    let mut found = Vec::new();
    for (module, call) in program.calls().filter(|(_, call)| call.name() == "step") {
        let Some((owner, _)) = call.callee.rsplit_once('.') else { continue };
        if !is_optimizer(program, owner) {
            continue;
        }
        let text = program.module(module);
        let Some(node) = program.node(module, call) else { continue };
        let Some(statement) = statement_of(node) else { continue };
        let arguments = program.arguments(module, node);
        if arguments.is_some_and(|one| !one.positional.is_empty() || !one.by_name.is_empty()) {
            let why = "steps with a closure, which gradient scalers do not support";
            return Err(program.refuse(module, call.span.start, why));
        }
        if statement.byte_range() != node.byte_range() {
            let why = "combines step() with other work in one statement";
            return Err(program.refuse(module, call.span.start, why));
        }
        let optimizer = object(text, node);
        found.push(Step { scope: (module, call.function), call: node, statement, optimizer });
    }
    match found.first() {
        Some(first) => {
            let scope = first.scope;
            if let Some(other) = found.iter().find(|one| one.scope != scope) {
                let why = "steps an optimizer in a different function than the first one";
                return Err(program.refuse(other.scope.0, other.call.start_byte(), why));
            }
            Ok(found)
        }
        None => Err(Refusal::not_understood("no optimizer step was found")),
    }
}

fn object(text: &ridgeline_python::semantics::module::Module, call: Node<'_>) -> String {
    super::syntax::object_of(text, call, "step").map(|one| written(text, one)).unwrap_or_default()
}

/// Unscales gradients before they are clipped. Rejects other reads of gradients.
fn unscale_for(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    backwards: &[Backward<'_>],
    step: &Step<'_>,
    name: &str,
) -> Result<(), Refusal> {
    let module = step.scope.0;
    let text = program.module(module);
    let from = backwards
        .iter()
        .filter(|one| one.scope == step.scope && one.call.start_byte() < step.call.start_byte())
        .map(|one| one.call.end_byte())
        .max()
        .unwrap_or(step.call.start_byte());
    let between = from..step.call.start_byte();
    let clips: Vec<_> = text
        .calls
        .iter()
        .filter(|call| call.function == step.scope.1 && between.contains(&call.span.start))
        .filter(|call| call.name().starts_with("clip_grad"))
        .collect();
    let reads = text.text(&between);
    if clips.is_empty() && reads.contains(".grad") {
        let why = "reads gradients between backward() and step(), where they would be scaled";
        return Err(program.refuse(module, step.call.start_byte(), why));
    }
    let Some(clip) = clips.first() else { return Ok(()) };
    let statement = text.node(&clip.span).and_then(statement_of);
    let same_block = statement.is_some_and(|one| {
        one.parent().map(|one| one.id()) == step.statement.parent().map(|one| one.id())
    });
    match statement.filter(|_| same_block) {
        Some(statement) => {
            let unscale = format!("{name}.unscale_({})", step.optimizer);
            edits.before(module, statement, &[unscale]);
            Ok(())
        }
        None => {
            let why = "clips gradients in a different block than the optimizer step";
            Err(program.refuse(module, clip.span.start, why))
        }
    }
}

/// Creates the scaler next to the optimizer, so that both have the same lifetime.
fn place_scaler<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    steps: &[Step<'a>],
) -> Result<Scaler, Refusal> {
    let last = steps.last().ok_or_else(|| Refusal::not_understood("no step was found"))?;
    for text in program.modules() {
        let existing = text.assignments.iter().find(|one| last_name(&one.target) == "scaler");
        if let Some(existing) = existing {
            let at = text.described(existing.at.start);
            let why = format!("{at} uses the name `scaler` for something else");
            return Err(Refusal::NotUnderstood(why));
        }
    }
    create_near(program, edits, last.scope, &last.optimizer, last.call.start_byte(), 0)
}

fn create_near<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    scope: Scope,
    optimizer: &str,
    until: usize,
    depth: u32,
) -> Result<Scaler, Refusal> {
    let (module, function) = scope;
    let text = program.module(module);
    let is_attribute = optimizer.starts_with("self.");
    let class = program.class_of(scope);
    let mut at = function;
    loop {
        let set = text.assignments.iter().rfind(|one| {
            one.target == optimizer
                && one.class.is_none()
                && match is_attribute {
                    true => program.class_of((module, one.function)) == class,
                    false => one.function == at,
                }
        });
        if let Some(set) = set {
            let creation = text.node(&set.value).and_then(statement_of);
            let Some(creation) = creation.filter(|creation| creation.is(Kind::ExpressionStatement))
            else {
                let why = "creates the optimizer inside a larger statement";
                return Err(program.refuse(module, set.at.start, why));
            };
            let there = (module, set.function);
            let device = devices::device_type(program, edits, there, creation.start_byte())?;
            let torch = imports::torch(edits, module, text);
            let name = if is_attribute { "self.scaler" } else { "scaler" };
            let line = format!("{name} = {torch}.amp.GradScaler({device})");
            let last = last_of_optimizers(program, there, creation);
            edits.after(module, last, &[line]);
            let is_global = set.function.is_none() && !is_attribute;
            return Ok(Scaler { name: name.to_owned(), is_global });
        }
        let Some(index) = at.filter(|_| !is_attribute) else { break };
        let one = &text.functions[index];
        let position = one.parameters.iter().position(|parameter| parameter.name == optimizer);
        if let Some(position) = position {
            return pass_along(program, edits, (module, index), position, depth);
        }
        at = one.outer;
    }
    let what = format!("steps `{optimizer}`, whose definition was not found");
    Err(program.refuse(module, until, &what))
}

/// Returns the last of consecutive optimizer creations. The scaler is created after it.
fn last_of_optimizers<'a>(program: &Program<'a>, (module, _): Scope, made: Node<'a>) -> Node<'a> {
    let text = program.module(module);
    let mut last = made;
    while let Some(next) = last.next_named_sibling() {
        let makes = super::syntax::calls_in(next)
            .into_iter()
            .any(|call| optimizers::makes_optimizer(program, module, &callee(text, call)));
        if !makes {
            break;
        }
        last = next;
    }
    last
}

/// Adds a scaler parameter to a function that takes the optimizer as a parameter, and the argument
/// at its call.
fn pass_along<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    (module, function): (usize, usize),
    position: usize,
    depth: u32,
) -> Result<Scaler, Refusal> {
    let text = program.module(module);
    let one = &text.functions[function];
    let at = one.span.start;
    if depth > 2 {
        return Err(program.refuse(
            module,
            at,
            "receives the optimizer through too many function \
            calls",
        ));
    }
    if one.class.is_some() || one.parameters.iter().any(|parameter| parameter.is_rest) {
        let why = "receives the optimizer in a way that a scaler cannot be passed along";
        return Err(program.refuse(module, at, why));
    }
    let sites: Vec<_> = calls_of(&program.tracer, module, &one.name)
        .into_iter()
        .filter(|site| !(site.place.module == module && one.span.contains(&site.place.span.start)))
        .collect();
    let [site] = &sites[..] else {
        let what = format!("is called in {} places", sites.len());
        return Err(program.refuse(module, at, &what));
    };
    let there = site.place.module;
    let caller = program.module(there);
    let call = caller.node(&site.place.span);
    let arguments = call.and_then(|call| program.arguments(there, call));
    let (Some(call), Some(arguments), None) = (call, arguments, site.handed) else {
        return Err(program.refuse(there, site.place.span.start, "is not a plain call"));
    };
    let name = &one.parameters[position].name;
    let given = arguments.named(name).or(arguments.positional.get(position).copied());
    let given = given.filter(|one| matches!(Kind::of(one), Kind::Identifier | Kind::Attribute));
    let (Some(given), true, false) = (given, arguments.splats.is_empty(), arguments.has_star)
    else {
        let why = "passes the optimizer in an unsupported form";
        return Err(program.refuse(there, call.start_byte(), why));
    };
    let scope = (there, caller.function_at(call.start_byte()));
    let until = call.start_byte();
    let outer = create_near(program, edits, scope, &written(caller, given), until, depth + 1)?;
    let has_default = one.parameters.iter().any(|parameter| parameter.default.is_some());
    let by_name = !arguments.by_name.is_empty() || has_default;
    let argument = if by_name { format!("scaler={}", outer.name) } else { outer.name };
    edits.add_arguments(program, there, call, &[&argument])?;
    let list = text.node(&one.span).and_then(|node| node.field(Field::Parameters));
    let list = list.ok_or_else(|| program.refuse(module, at, "has no parameters"))?;
    edits.add_to_list(module, list, &[if has_default { "scaler=None" } else { "scaler" }]);
    Ok(Scaler { name: "scaler".to_owned(), is_global: false })
}
