//! Finds where a model is created, by following its call in the training step back through
//! parameters and attributes.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::program::{Program, Scope};
use super::syntax::{statement_of, written};
use ridgeline_python::semantics::call_sites::calls_of;
use ridgeline_python::semantics::module::Assignment;

/// The maximum depth of function calls followed back to the creation of a model.
const MAX_DEPTH: u32 = 4;

/// The origin of a model.
#[derive(Clone, Debug)]
pub(super) enum Origin<'a> {
    /// The last assignment of the variable in its scope, with the variable and the value.
    Assigned { module: usize, statement: Node<'a>, variable: String, value: Node<'a> },
    /// An expression that is passed on without a name.
    Expression { module: usize, value: Node<'a> },
}

/// Finds where the model in a variable is created: its last assignment, in this function or in its
/// callers.
///
/// # Errors
/// Fails if the origin cannot be found or is not visible.
pub(super) fn origins<'a>(
    program: &Program<'a>,
    scope: Scope,
    variable: &str,
    until: usize,
) -> Result<Vec<Origin<'a>>, Refusal> {
    let mut found = Vec::new();
    collect_origins(program, scope, variable, until, 0, &mut found)?;
    if found.is_empty() {
        let (module, _) = scope;
        let what = format!("uses `{variable}`, whose definition was not found");
        return Err(program.refuse(module, until, &what));
    }
    Ok(found)
}

fn collect_origins<'a>(
    program: &Program<'a>,
    scope: Scope,
    variable: &str,
    until: usize,
    depth: u32,
    found: &mut Vec<Origin<'a>>,
) -> Result<(), Refusal> {
    let (module, function) = scope;
    let text = program.module(module);
    if depth > MAX_DEPTH {
        return Err(program.refuse(
            module,
            until,
            "receives the model through too many function \
            calls",
        ));
    }
    if variable.starts_with("self.") {
        let class = program.class_of(scope);
        let set = text.assignments.iter().filter(|one| {
            one.target == variable && program.class_of((module, one.function)) == class
        });
        return push_last(program, module, variable, set.collect(), found);
    }
    let mut at = function;
    loop {
        let own = text.assignments.iter().filter(|one| {
            one.target == variable
                && one.function == at
                && one.class.is_none()
                && (at != function || one.value.end <= until)
        });
        let own: Vec<_> = own.collect();
        if !own.is_empty() {
            return push_last(program, module, variable, own, found);
        }
        let Some(index) = at else { break };
        let one = &text.functions[index];
        let parameter = one.parameters.iter().position(|parameter| parameter.name == variable);
        if let Some(position) = parameter {
            return argument_origins(program, module, index, position, depth, found);
        }
        at = one.outer;
    }
    let what = format!("uses `{variable}`, whose definition was not found");
    Err(program.refuse(module, until, &what))
}

/// Adds the last assignment of a variable.
fn push_last<'a>(
    program: &Program<'a>,
    module: usize,
    variable: &str,
    set: Vec<&'a Assignment>,
    found: &mut Vec<Origin<'a>>,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let Some(first) = set.first() else {
        let what = format!("uses `{variable}`, whose origin is not visible");
        return Err(Refusal::NotUnderstood(format!("{} {what}", text.path)));
    };
    if set.iter().any(|one| one.element.is_some()) {
        let what = format!("assigns `{variable}` together with other variables");
        return Err(program.refuse(module, first.at.start, &what));
    }
    // Several models, one per branch: each is edited where it is created.
    let is_base = |branches: &[_]| set.iter().all(|one| one.branches.starts_with(branches));
    let last = set.iter().rfind(|one| is_base(&one.branches));
    let chosen: Vec<_> = match last {
        Some(last) => vec![*last],
        None => set,
    };
    for one in chosen {
        let value = text.node(&one.value);
        let statement = value.and_then(statement_of);
        let (Some(value), Some(statement)) = (value, statement) else { continue };
        if !statement.is(Kind::ExpressionStatement) {
            let what = format!("assigns `{variable}` inside a larger statement");
            return Err(program.refuse(module, one.at.start, &what));
        }
        let variable = variable.to_owned();
        found.push(Origin::Assigned { module, statement, variable, value });
    }
    Ok(())
}

/// Finds the origins of a function's argument at its calls.
fn argument_origins<'a>(
    program: &Program<'a>,
    module: usize,
    function: usize,
    position: usize,
    depth: u32,
    found: &mut Vec<Origin<'a>>,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let one = &text.functions[function];
    let parameter = &one.parameters[position];
    if let Some(origin) = provider_model(program, one.name.as_str()) {
        found.extend(origin);
        return Ok(());
    }
    let is_constructor = one.name == "__init__";
    let name = match one.class.filter(|_| is_constructor) {
        Some(class) => text.classes[class].name.as_str(),
        None => one.name.as_str(),
    };
    let skipped = usize::from(one.class.is_some());
    for site in calls_of(&program.tracer, module, name).into_iter().take(16) {
        let there = site.place.module;
        let caller = program.module(there);
        let at = site.place.span.start;
        if there == module && one.span.contains(&at) {
            continue;
        }
        if site.handed.is_some() {
            return Err(program.refuse(there, at, "starts it in other processes"));
        }
        let Some(call) = caller.node(&site.place.span) else { continue };
        let Some(arguments) = program.arguments(there, call) else { continue };
        let given = arguments
            .named(&parameter.name)
            .or_else(|| arguments.positional.get(position.checked_sub(skipped)?).copied());
        let Some(given) = given else {
            let what = format!("does not show the argument for `{}`", parameter.name);
            return Err(program.refuse(there, at, &what));
        };
        let scope = (there, caller.function_at(at));
        match Kind::of(&given) {
            Kind::Identifier | Kind::Attribute => {
                let variable = written(caller, given);
                collect_origins(program, scope, &variable, at, depth + 1, found)?;
            }
            Kind::Call => found.push(Origin::Expression { module: there, value: given }),
            _ => return Err(program.refuse(there, at, "passes the model in another form")),
        }
    }
    Ok(())
}

/// Returns the model of a Skyline or DeepView provider: the result of its model provider.
fn provider_model<'a>(program: &Program<'a>, function: &str) -> Option<Vec<Origin<'a>>> {
    if !matches!(function, "skyline_iteration_provider" | "deepview_iteration_provider") {
        return None;
    }
    let text = program.module(0);
    let maker = text.functions.iter().find(|one| {
        matches!(one.name.as_str(), "skyline_model_provider" | "deepview_model_provider")
    })?;
    let returned = maker.returns.iter().filter_map(|value| text.node(value));
    let origin = |value: Node<'a>| match Kind::of(&value) {
        Kind::Identifier => {
            let variable = written(text, value);
            let at = text.function_at(value.start_byte());
            let mut found = Vec::new();
            let scope = (0, at);
            collect_origins(program, scope, &variable, value.start_byte(), 1, &mut found).ok()?;
            found.into_iter().next()
        }
        _ => Some(Origin::Expression { module: 0, value }),
    };
    Some(returned.filter_map(origin).collect())
}
