//! What only the first process does: printing and saving.

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Call, last_name};
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::imports;
use super::super::layout::Layout;
use super::super::models::Models;
use super::super::program::Program;
use super::super::syntax::{callee, calls_in, everything, statement_of};
use super::wrapped::WrappedModel;

/// Calls that save a file.
const SAVES: [&str; 5] = ["torch.save", "numpy.save", "numpy.savez", "save_image", "savefig"];

/// Prints and saves in the first process only.
pub(super) fn add<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    model: &WrappedModel<'a>,
) -> Result<(), Refusal> {
    check_loads(program, model)?;
    let models = Models::of(program);
    let mut statements: Vec<(usize, Node<'a>)> = Vec::new();
    for (module, call) in program.calls() {
        let is_print = call.callee == "print";
        let is_save = saves(program, module, call);
        if !(is_print || is_save) {
            continue;
        }
        let node = program.node(module, call);
        let statement = node.and_then(statement_of).filter(|one| one.byte_range() == call.span);
        // The first process alone must not call the model, whose buffers are synchronized.
        let runs_model = node.is_some_and(|node| calls_model(program, &models, module, node));
        let layout = Layout::of(program.module(module));
        let has_own_line = |one: &Node<'_>| {
            layout.indentation(one.start_byte()).is_some() && layout.ends_line(one.end_byte())
        };
        match statement.filter(has_own_line).filter(|_| !runs_model) {
            Some(statement) => statements.push((module, statement)),
            None if is_save => {
                let what = "saves a file in every process: make it a statement of its own";
                return Err(program.refuse(module, call.span.start, what));
            }
            None => edits.note("every process prints some of the lines"),
        }
    }
    if program.calls().any(|(_, call)| matches!(call.name(), "tqdm" | "trange")) {
        edits.note("every process shows its own progress bar");
    }
    if !statements.is_empty() {
        edits.note("the first process prints values of its own samples");
    }
    for run in runs(statements) {
        restrict(program, edits, &run)?;
    }
    Ok(())
}

fn saves(program: &Program<'_>, module: usize, call: &Call) -> bool {
    let qualified = program.called(module, call);
    SAVES.iter().any(|known| qualified == *known || last_name(&qualified) == *known)
}

/// Whether an argument of a call calls the model.
fn calls_model(program: &Program<'_>, models: &Models, module: usize, call: Node<'_>) -> bool {
    let inner = calls_in(call).into_iter().filter(|inner| inner.id() != call.id());
    inner.into_iter().any(|inner| {
        let is_state = last_name(&callee(program.module(module), inner)) == "state_dict";
        !is_state && models.are_used_by(program, module, inner)
    })
}

/// Rejects a file that is read after training: the first process may still be writing it.
fn check_loads(program: &Program<'_>, model: &WrappedModel<'_>) -> Result<(), Refusal> {
    let is_saved =
        program.calls().any(|(module, call)| program.called(module, call) == "torch.save");
    let mut loads = program.calls().filter(|(module, call)| {
        (*module, call.function) == model.scope
            && call.span.start > model.statement.end_byte()
            && program.called(*module, call) == "torch.load"
    });
    match loads.next().filter(|_| is_saved) {
        Some((module, call)) => {
            let what = "loads a file that another process may still be writing: edit it by hand";
            Err(program.refuse(module, call.span.start, what))
        }
        None => Ok(()),
    }
}

/// Returns the statements in runs of consecutive ones.
fn runs(mut statements: Vec<(usize, Node<'_>)>) -> Vec<(usize, Vec<Node<'_>>)> {
    statements.sort_by_key(|(module, one)| (*module, one.start_byte()));
    let mut runs: Vec<(usize, Vec<Node<'_>>)> = Vec::new();
    for (module, one) in statements {
        let continues = runs.last().is_some_and(|(known, run)| {
            let next = run.last().and_then(|last| last.next_named_sibling());
            *known == module && next.is_some_and(|next| next.id() == one.id())
        });
        match runs.last_mut().filter(|_| continues) {
            Some((_, run)) => run.push(one),
            None => runs.push((module, vec![one])),
        }
    }
    runs
}

/// Puts statements under the condition that this is the first process.
fn restrict<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    (module, run): &(usize, Vec<Node<'a>>),
) -> Result<(), Refusal> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
    let text = program.module(*module);
    let os = imports::standard(edits, *module, text, "os");
    let layout = Layout::of(text);
    let is_first = format!(
        "{os}.environ.get({}, {}) == {}",
        layout.quoted("RANK"),
        layout.quoted("0"),
        layout.quoted("0")
    );
    if let Some(condition) = only_condition(*first, run.len()) {
        let (opening, closing) = if binds_weakly(condition) { ("(", ")") } else { ("", "") };
        if !opening.is_empty() {
            edits.insert(*module, condition.start_byte(), opening);
        }
        edits.insert(*module, condition.end_byte(), format!("{closing} and {is_first}"));
        return Ok(());
    }
    let range = first.start_byte()..last.end_byte();
    edits.wrap(program, *module, range, &format!("if {is_first}:"))
}

/// Returns the condition of the `if` whose block consists of a number of statements from this one on.
fn only_condition(first: Node<'_>, count: usize) -> Option<Node<'_>> {
    let block = first.parent()?;
    let branch = block.parent().filter(|one| one.is(Kind::IfStatement))?;
    let is_only = named_children(block).len() == count
        && branch.field(Field::Alternative).is_none()
        && branch.field(Field::Consequence).is_some_and(|one| one.id() == block.id());
    let condition = branch.field(Field::Condition).filter(|_| is_only)?;
    let is_one_line = condition.start_position().row == condition.end_position().row;
    (is_one_line && !is_main_guard(condition)).then_some(condition)
}

/// Whether a condition is that of the script's main block, which keeps its form.
fn is_main_guard(condition: Node<'_>) -> bool {
    everything(condition).iter().any(|one| one.is(Kind::String))
        && condition.is(Kind::ComparisonOperator)
}

fn binds_weakly(condition: Node<'_>) -> bool {
    let is_or = condition.is(Kind::BooleanOperator)
        && condition.field(Field::Operator).is_some_and(|operator| operator.kind() == "or");
    is_or
        || matches!(
            Kind::of(&condition),
            Kind::ConditionalExpression | Kind::Lambda | Kind::NamedExpression
        )
}
