//! The process group: it starts before the first use of a GPU, and ends with the script.

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::imports;
use super::super::layout::Layout;
use super::super::program::Program;
use super::super::syntax::written;
use super::{check_own_line, is_launched};

/// Texts of statements that may use a GPU, or the parts of the process group.
const NEEDS_PROCESS_GROUP: [&str; 3] = [".cuda(", ".to(", "DataLoader("];

/// Starts the process group in the block of the script that runs first, and ends it there. The statements `after` need
/// it.
pub(super) fn add<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    after: &[(usize, Node<'a>)],
) -> Result<(), Refusal> {
    let text = program.module(0);
    let statements = main_block(text);
    let is_code = |one: &&Node<'_>| !is_definition(**one);
    let last_import = statements.iter().rposition(|one| is_import(*one)).map_or(0, |at| at + 1);
    let first = statements.iter().skip(last_import).find(is_code);
    let (Some(first), Some(last)) = (first, statements.last()) else {
        let what = "has no code that could be run in several processes";
        return Err(program.refuse(0, 0, what));
    };
    check_own_line(program, 0, *first)?;
    check_own_line(program, 0, *last)?;
    let is_early = |(module, node): &&(usize, Node<'_>)| {
        *module == 0
            && text.function_at(node.start_byte()).is_none()
            && node.start_byte() < first.start_byte()
    };
    if let Some((_, early)) = after.iter().find(is_early) {
        let what = "runs before the last import, where no process group can be started";
        return Err(program.refuse(0, early.start_byte(), what));
    }
    let torch = imports::torch(edits, 0, text);
    let launched = is_launched(edits, program, 0);
    let os = imports::standard(edits, 0, text, "os");
    let layout = Layout::of(text);
    let unit = layout.unit();
    let (rank, nccl, gloo) =
        (layout.quoted("LOCAL_RANK"), layout.quoted("nccl"), layout.quoted("gloo"));
    let start = [
        "# torchrun starts one process for each GPU, and sets RANK.".to_owned(),
        format!("if {launched}:"),
        format!("{unit}if {torch}.cuda.is_available():"),
        format!("{unit}{unit}{torch}.cuda.set_device(int({os}.environ[{rank}]))"),
        format!(
            "{unit}{torch}.distributed.init_process_group({nccl} if {torch}.cuda.is_available() else {gloo})"
        ),
    ];
    edits.before(0, *first, &start);
    let end =
        [format!("if {launched}:"), format!("{unit}{torch}.distributed.destroy_process_group()")];
    edits.after(0, *last, &end);
    Ok(())
}

/// Returns the statements of the block that runs the training: that of `if __name__ == "__main__"`, unless code before
/// it needs the process group.
fn main_block(text: &Module) -> Vec<Node<'_>> {
    let Some(tree) = text.index.tree() else { return Vec::new() };
    let all = named_children(tree.root_node());
    let is_main = |one: &Node<'_>| {
        let condition = one.field(Field::Condition).filter(|_| one.is(Kind::IfStatement));
        condition.is_some_and(|condition| written(text, condition).starts_with("__name__=="))
    };
    let Some(main) = all.iter().rfind(|one| is_main(one)) else { return all };
    let needs = |one: &Node<'_>| {
        let source = text.text(&one.byte_range());
        !is_definition(*one) && NEEDS_PROCESS_GROUP.iter().any(|known| source.contains(known))
    };
    let outside = all.iter().filter(|one| one.id() != main.id());
    match main.field(Field::Consequence).filter(|_| !outside.into_iter().any(needs)) {
        Some(block) => named_children(block),
        None => all,
    }
}

fn is_import(node: Node<'_>) -> bool {
    matches!(
        Kind::of(&node),
        Kind::ImportStatement | Kind::ImportFromStatement | Kind::FutureImportStatement
    )
}

/// Whether a statement runs no code of its own.
fn is_definition(node: Node<'_>) -> bool {
    let is_string = node.is(Kind::ExpressionStatement)
        && node.named_child(0).is_some_and(|one| one.is(Kind::String));
    let defines = matches!(
        Kind::of(&node),
        Kind::FunctionDefinition | Kind::ClassDefinition | Kind::DecoratedDefinition
    );
    is_string || defines || is_import(node)
}
