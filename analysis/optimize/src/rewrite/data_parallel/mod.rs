//! Training on several GPUs with one process each: `torchrun` and `DistributedDataParallel` (Li et al., VLDB 2020).
//!
//! `torchrun` sets `RANK` in each process. Without it, the edited script trains as before. A process that takes another
//! path than the others would make them wait forever, so code that might is refused.

mod checks;
mod first_process;
mod loops;
mod process_group;
mod sampler;
mod wrapped;

use ridgeline_python::semantics::module::last_name;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::compile::{ModelCall, model_calls, model_origins};
use super::edits::Edits;
use super::forward::{Backward, backwards};
use super::imports;
use super::layout::Layout;
use super::models::Models;
use super::no_sync;
use super::origins::Origin;
use super::program::{Program, Scope};
use super::syntax::{callee, everything, written};
use loops::Loops;
use sampler::Sharded;
use wrapped::WrappedModel;

/// Adds the processes, the wrapper of the model, and the sampler of the loader.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    checks::check(program)?;
    let backward = only_backward(program)?;
    let model = model(program, &backward)?;
    let sharded = Sharded::find(program)?;
    let loops = Loops::around(program, &backward, &sharded)?;
    wrapped::check_uses(program, edits, &model)?;
    let after = [(model.scope.0, model.statement), (sharded.module(), sharded.statement)];
    process_group::add(program, edits, &after)?;
    wrap(program, edits, &model)?;
    sampler::add(program, edits, &sharded, &loops)?;
    synchronize_once(program, edits, &backward)?;
    let script = &program.module(0).path;
    edits.note(format!(
        "start it with `torchrun --standalone --nproc-per-node N {script}`, where N is the number of GPUs; without \
        torchrun it trains as before"
    ));
    edits.note(
        "the batch size is that of one process: N processes train on N times as many samples per step, with the same \
        learning rate",
    );
    if program.modules().iter().any(|text| text.index.text().contains("BatchNorm")) {
        edits.note("batch norm uses the statistics of each process's own batch");
    }
    first_process::add(program, edits, &model)
}

/// Whether the process was started by torchrun.
fn is_launched(edits: &mut Edits<'_>, program: &Program<'_>, module: usize) -> String {
    let text = program.module(module);
    let os = imports::standard(edits, module, text, "os");
    format!("{} in {os}.environ", Layout::of(text).quoted("RANK"))
}

/// Returns the only backward pass.
fn only_backward<'a>(program: &Program<'a>) -> Result<Backward<'a>, Refusal> {
    let mut all = backwards(program)?;
    match all.pop().filter(|_| all.is_empty()) {
        Some(backward) => Ok(backward),
        None => Err(Refusal::not_understood("the program calls backward() in several places")),
    }
}

/// Finds the model and the statement after which it is complete.
fn model<'a>(program: &Program<'a>, backward: &Backward<'a>) -> Result<WrappedModel<'a>, Refusal> {
    let models = Models::of(program);
    let calls = model_calls(program)?;
    let [call] = &calls[..] else {
        let why =
            "the training step calls models in several places, which this edit does not support";
        return Err(Refusal::not_understood(why));
    };
    let (module, at) = (call.scope.0, call.call.start_byte());
    if !models.is_one(&callee(program.module(module), call.call)) {
        let what = "calls a method of the model, and DistributedDataParallel only synchronizes gradients of `forward`";
        return Err(program.refuse(module, at, what));
    }
    if call.scope == backward.scope && loops::is_in_inner_loop(call.call, backward.call) {
        let what = "calls the model several times for one backward pass";
        return Err(program.refuse(module, at, what));
    }
    let origins = model_origins(program)?;
    let [Origin::Assigned { module, statement, variable, .. }] = &origins[..] else {
        let why = "the program trains several models, or one that is not in a variable";
        return Err(Refusal::not_understood(why));
    };
    let scope: Scope = (*module, program.module(*module).function_at(statement.start_byte()));
    let statement = complete(program, *module, *statement, variable);
    Ok(WrappedModel { scope, variable: variable.clone(), statement })
}

/// Returns the last statement of the block that changes the model before it is used.
fn complete<'a>(program: &Program<'a>, module: usize, made: Node<'a>, variable: &str) -> Node<'a> {
    let text = program.module(module);
    let mut last = made;
    let mut at = made.next_named_sibling();
    while let Some(statement) = at {
        at = statement.next_named_sibling();
        let mut changes = false;
        let mut uses = false;
        for node in everything(statement) {
            if !matches!(Kind::of(&node), Kind::Identifier | Kind::Attribute)
                || written(text, node) != variable
            {
                continue;
            }
            let parent = node.parent().filter(|parent| parent.is(Kind::Attribute));
            match parent.and_then(|parent| parent.field(Field::Attribute)) {
                Some(name) => changes |= !wrapped::is_shared(text.text(&name.byte_range())),
                None => uses |= !is_part_of_name(node),
            }
        }
        if uses {
            break;
        }
        if changes {
            last = statement;
        }
    }
    last
}

/// Whether a node is the name of an attribute, a keyword, or a parameter.
fn is_part_of_name(node: Node<'_>) -> bool {
    let Some(parent) = node.parent() else { return false };
    let is = |field: Field| parent.field(field).is_some_and(|one| one.id() == node.id());
    match Kind::of(&parent) {
        Kind::Attribute => is(Field::Attribute),
        Kind::KeywordArgument | Kind::DefaultParameter | Kind::TypedDefaultParameter => {
            is(Field::Name)
        }
        Kind::Parameters | Kind::TypedParameter | Kind::LambdaParameters => true,
        _ => false,
    }
}

/// Wraps the model after it is complete.
fn wrap<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    model: &WrappedModel<'a>,
) -> Result<(), Refusal> {
    let module = model.scope.0;
    let text = program.module(module);
    let class = "DistributedDataParallel";
    let Some(wrapper) = imports::imported(edits, module, text, "torch.nn.parallel", class) else {
        return Err(name_is_taken(program, module, class));
    };
    let launched = is_launched(edits, program, module);
    let unit = Layout::of(text).unit();
    let variable = &model.variable;
    let lines = [format!("if {launched}:"), format!("{unit}{variable} = {wrapper}({variable})")];
    check_own_line(program, module, model.statement)?;
    edits.after(module, model.statement, &lines);
    Ok(())
}

/// Fails if a statement shares its line with others, where no block can follow.
fn check_own_line(
    program: &Program<'_>,
    module: usize,
    statement: Node<'_>,
) -> Result<(), Refusal> {
    let layout = Layout::of(program.module(module));
    let begins = layout.indentation(statement.start_byte()).is_some();
    if begins && layout.ends_line(statement.end_byte()) {
        return Ok(());
    }
    let what = "has several statements on one line: put each on its own line";
    Err(program.refuse(module, statement.start_byte(), what))
}

/// Synchronizes gradients once per step if the program accumulates them over several batches.
fn synchronize_once<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    backward: &Backward<'a>,
) -> Result<(), Refusal> {
    let Ok(condition) = no_sync::condition(program, backward) else { return Ok(()) };
    let calls = model_calls(program)?;
    let (module, _) = backward.scope;
    let is_visible = |call: &&ModelCall<'_>| {
        let is_own = call.variable.starts_with("self.") && call.scope.0 == module;
        call.scope == backward.scope
            || (is_own && program.class_of(call.scope) == program.class_of(backward.scope))
    };
    let Some(call) = calls.first().filter(is_visible) else {
        let what = "accumulates gradients of a model that is not visible there";
        return Err(program.refuse(module, backward.call.start_byte(), what));
    };
    let unless = is_launched(edits, program, module).replacen(" in ", " not in ", 1);
    no_sync::wrap_step(program, edits, backward, condition, &call.variable, Some(&unless))
}

fn name_is_taken(program: &Program<'_>, module: usize, name: &str) -> Refusal {
    let path = &program.module(module).path;
    Refusal::NotUnderstood(format!("{path} uses the name `{}` for something else", last_name(name)))
}
