//! Which mode models are put into: `model.eval()`, `model.train(False)`.

use tree_sitter::Node;

use super::super::super::batch_site::module::Call;
use super::super::models::{Models, is_module_class};
use super::super::program::Program;
use super::super::syntax::{targets, written};

/// The object that a call puts into evaluation mode.
pub(super) fn evaluated<'c>(
    program: &Program<'_>,
    module: usize,
    call: &'c Call,
) -> Option<&'c str> {
    let text = program.module(module);
    let by_train = call.callee.strip_suffix(".train");
    let by_train = by_train.filter(|_| text.text(&call.span).contains("False"));
    call.callee.strip_suffix(".eval").or(by_train)
}

/// Where a part of a model is put into evaluation mode while the rest may train: text and offset.
pub(super) fn part_in_evaluation(program: &Program<'_>, models: &Models) -> Option<(usize, usize)> {
    let is_part = |(module, call): &(usize, &Call)| {
        let Some(owner) = evaluated(program, *module, call) else { return false };
        let text = program.module(*module);
        // `model.backbone.eval()`, `self.backbone.eval()` in a model.
        let of_a_model = owner.rsplit_once('.').is_some_and(|(whole, part)| {
            let class = program.class_of((*module, call.function));
            let in_a_model = || class.is_some_and(|at| is_module_class(program, *module, at, 0));
            part != "module" && (models.is_one(whole) || (whole == "self" && in_a_model()))
        });
        of_a_model
            || text.node(&call.span).is_some_and(|node| is_picked(program, *module, node, owner))
    };
    program.calls().find(is_part).map(|(module, call)| (module, call.span.start))
}

/// `for m in model.modules(): m.eval()`, and `if isinstance(m, nn.BatchNorm2d): m.eval()`.
fn is_picked(program: &Program<'_>, module: usize, call: Node<'_>, owner: &str) -> bool {
    let text = program.module(module);
    let around = std::iter::successors(call.parent(), |one| one.parent()).take(64);
    let mut around = around.take_while(|one| one.kind() != "function_definition");
    around.any(|one| match one.kind() {
        "for_statement" | "for_in_clause" | "list_comprehension" => {
            let clause = match one.child_by_field_name("left") {
                Some(_) => Some(one),
                None => one.named_child(1),
            };
            let field = |name: &str| clause.and_then(|clause| clause.child_by_field_name(name));
            let parts = ["modules()", "children()", "layers"];
            let over = field("right").map(|over| written(text, over)).unwrap_or_default();
            field("left").is_some_and(|left| targets(text, left).contains(owner))
                && parts.iter().any(|part| over.contains(part))
        }
        "if_statement" | "elif_clause" => {
            let asked = one.child_by_field_name("condition").map(|one| written(text, one));
            asked.is_some_and(|asked| asked.contains("isinstance(") || asked.contains("Norm"))
        }
        _ => false,
    })
}
