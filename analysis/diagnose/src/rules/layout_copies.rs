//! `layout-copies`: redundant copies: `.contiguous()` of a transposed matrix that is only
//! multiplied (BLAS reads it either way), and `.clone()` of a tensor that is never modified.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::work_of_line;
use crate::rule::Rule;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{callee, object_of, statement_of, within, written};
use ridgeline_python::semantics::module::{Call, Module, last_name};

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.02;
/// Operators that copy.
const COPIES: [&str; 3] = ["clone", "copy_", "contiguous"];
/// Matrix multiplications, by the last part of their names.
const MATMULS: [&str; 4] = ["matmul", "bmm", "mm", "baddbmm"];
/// Ways to transpose the last two dimensions, as written.
const TRANSPOSED: [&str; 5] = [".transpose(-2,-1)", ".transpose(-1,-2)", ".mT", ".t()", ".T"];
/// The same for tensors of three dimensions.
const TRANSPOSED_3D: [&str; 3] = [".transpose(1,2)", ".transpose(2,1)", ".permute(0,2,1)"];

pub(super) struct LayoutCopies;

impl Rule for LayoutCopies {
    fn name(&self) -> &'static str {
        "layout-copies"
    }

    fn title(&self) -> &'static str {
        "Redundant layout copies"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let sites = evidence.program.calls().filter_map(|(module, call)| {
            let kind = redundant_copy(evidence.program, module, call)?;
            let text = evidence.program.module(module);
            Some((
                evidence.recorded_line(module, text.line(call.span.end.saturating_sub(1)))?,
                kind,
            ))
        });
        let found = sites.filter_map(|(line, kind)| {
            let copies = work_of_line(evidence, line).filter(|(key, _)| {
                let Some(operator) = evidence.operator(key) else { return false };
                let dimensions = operator.shape(0).map_or(0, <[u64]>::len);
                operator.base_name().is_some_and(|name| COPIES.contains(&name))
                    && (kind != RedundantCopy::Transposed3d || dimensions == 3)
            });
            let time_ns: f64 = copies.map(|(_, work)| work.time_ns()).sum();
            (evidence.share(time_ns) >= MIN_SHARE).then(|| finding(evidence, line, kind, time_ns))
        });
        found.collect()
    }
}

/// The redundant copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedundantCopy {
    /// A transposed matrix that is only multiplied.
    Transposed,
    /// The same, if the tensor has three dimensions.
    Transposed3d,
    /// A tensor that is never modified.
    Unchanged,
}

fn finding(
    evidence: &Evidence<'_>,
    line: crate::line_sums::Line,
    kind: RedundantCopy,
    time_ns: f64,
) -> Finding {
    let (message, why) = match kind {
        RedundantCopy::Transposed | RedundantCopy::Transposed3d => (
            "`.contiguous()` copies a transposed matrix that is only multiplied",
            "Matrix multiplications read transposed inputs at full speed. Without `.contiguous()` \
            the transpose is a view, and nothing is copied.",
        ),
        RedundantCopy::Unchanged => (
            "`.clone()` copies a tensor that is never modified",
            "A copy is only needed if one of the two tensors is modified in place. Neither is, so \
            the original can be used.",
        ),
    };
    Finding {
        rule: "layout-copies",
        at: evidence.place(line.0, line.1),
        message: message.to_owned(),
        why: why.to_owned(),
        cost: Some(Cost::time(time_ns)),
        ..Finding::default()
    }
}

fn redundant_copy(program: &Program<'_>, module: usize, call: &Call) -> Option<RedundantCopy> {
    let text = program.module(module);
    let name = call.name();
    if name != "contiguous" && name != "clone" {
        return None;
    }
    let node = program.node(module, call)?;
    let object = object_of(text, node, name)?;
    let is_plain = program.arguments(module, node)?.positional.is_empty()
        && program.arguments(module, node)?.by_name.is_empty();
    if !is_plain {
        return None;
    }
    if name == "contiguous" {
        let kinds = [
            (&TRANSPOSED[..], RedundantCopy::Transposed),
            (&TRANSPOSED_3D[..], RedundantCopy::Transposed3d),
        ];
        let matches_any = |ends: &[&str]| is_transposed(text, call, object, ends);
        let found = kinds.into_iter().find(|(ends, _)| matches_any(ends)).map(|(_, kind)| kind);
        return found.filter(|_| only_multiplied(text, call, node));
    }
    let function = text.functions.lookup(call.function?)?;
    let is_forward = function.name == "forward" && function.class.is_some();
    (is_forward && is_unchanged(text, call, node, object)).then_some(RedundantCopy::Unchanged)
}

/// Whether only the last two dimensions of a tensor are transposed and it was contiguous before:
/// otherwise a matrix multiplication has to copy it anyway.
fn is_transposed(text: &Module, call: &Call, object: Node<'_>, ends: &[&str]) -> bool {
    let whole = written(text, object);
    let Some(base) = ends.iter().find_map(|end| whole.strip_suffix(end)) else {
        return false;
    };
    let is_permuted = |value: &str| {
        [
            "transpose",
            "permute",
            ".T",
            ".mT",
            ".t()",
            "[",
            "expand",
            "movedim",
            "swapaxes",
            "rearrange",
        ]
        .iter()
        .any(|mark| value.contains(mark))
    };
    let assignments = text.assignments.iter().filter(|one| {
        one.function == call.function && one.target == base && one.value.end <= call.span.start
    });
    let is_name = base.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let values: Vec<&str> = assignments.map(|one| text.text(&one.value)).collect();
    // A parameter of the function may have any layout; an attribute is a weight.
    let is_known = base.starts_with("self.") || !values.is_empty();
    is_name && is_known && !values.iter().any(|value| is_permuted(value))
}

/// Whether an expression, or the name that it is assigned to, is only used as a factor of matrix
/// multiplications.
fn only_multiplied(text: &Module, call: &Call, node: Node<'_>) -> bool {
    if is_factor(text, node) {
        return true;
    }
    let Some((name, statement)) = assigned(text, node) else { return false };
    let uses = uses(text, call, &name, statement);
    !uses.is_empty() && uses.into_iter().all(|one| is_factor(text, one))
}

fn is_factor(text: &Module, node: Node<'_>) -> bool {
    let Some(parent) = node.parent() else { return false };
    if parent.is(Kind::BinaryOperator) {
        return parent.field(Field::Operator).is_some_and(|it| it.kind() == "@");
    }
    let call = parent.parent().filter(|it| parent.is(Kind::ArgumentList) && it.is(Kind::Call));
    call.is_some_and(|call| MATMULS.contains(&last_name(&callee(text, call))))
}

/// The name that a whole expression is assigned to, and the statement.
fn assigned<'a>(text: &Module, node: Node<'a>) -> Option<(String, Node<'a>)> {
    let assignment = node.parent().filter(|it| it.is(Kind::Assignment))?;
    let left = assignment.field(Field::Left).filter(|it| it.is(Kind::Identifier))?;
    Some((written(text, left), statement_of(node)?))
}

/// The uses of a name after a statement, in the function of a call.
fn uses<'a>(text: &'a Module, call: &Call, name: &str, after: Node<'_>) -> Vec<Node<'a>> {
    let function = call.function.and_then(|at| text.functions.lookup(at));
    let Some(body) = function.and_then(|it| text.node(&it.body)) else { return Vec::new() };
    within(body)
        .into_iter()
        .filter(|it| it.is(Kind::Identifier) && it.start_byte() >= after.end_byte())
        .filter(|it| written(text, *it) == name)
        .collect()
}

/// Whether neither a copy nor its original is modified, passed on or stored in a function.
fn is_unchanged(text: &Module, call: &Call, node: Node<'_>, object: Node<'_>) -> bool {
    let Some((name, statement)) = assigned(text, node) else { return false };
    if !object.is(Kind::Identifier) {
        return false;
    }
    let uses_of = |name: &str| uses(text, call, name, statement);
    let (copies, originals) = (uses_of(&name), uses_of(&written(text, object)));
    let is_read = |it: Node<'_>| {
        // Operands of arithmetic and of matrix multiplications are only read.
        let parent = it.parent();
        parent.is_some_and(|parent| {
            parent.is(Kind::BinaryOperator)
                || (parent.is(Kind::ParenthesizedExpression)
                    && parent.parent().is_some_and(|it| it.is(Kind::BinaryOperator)))
        })
    };
    !copies.is_empty() && copies.into_iter().chain(originals).all(is_read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_profile::Phase;

    /// Whether the copy in the body of a method, on line 5, is reported.
    fn is_reported(body: &str) -> bool {
        is_reported_for(body, &[4096, 4096])
    }

    /// Like `is_reported`, for a copy of a tensor with this shape.
    fn is_reported_for(body: &str, shape: &[u64]) -> bool {
        let body = body.replace('\n', "\n        ");
        let text = format!(
            "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x, y):\n        {body}\n\nNet()(1, 2)\n"
        );
        let copy = operator("clone", &[shape, shape]);
        let example =
            (5..9).fold(Case::new(&text), |it, line| it.call(line, Phase::Forward, &copy, 500.0));
        !example.measured(&LayoutCopies).is_empty()
    }

    #[test]
    fn transposed_matrix_that_is_only_multiplied() {
        assert!(is_reported("return x @ self.weight.t().contiguous()"));
        assert!(is_reported("k = self.key(x)\nk = k.transpose(-2, -1).contiguous()\nreturn x @ k"));
        assert!(is_reported(
            "w = self.weight.T.contiguous()\na = torch.mm(x, w)\nreturn torch.mm(y, w) + a"
        ));
    }

    #[test]
    fn numbered_dimensions_need_three_dimensions() {
        for end in [".transpose(1, 2)", ".transpose(2, 1)", ".permute(0, 2, 1)"] {
            let body =
                format!("k = x * self.scale\nk = k{end}.contiguous()\nreturn torch.bmm(y, k)");
            assert!(is_reported_for(&body, &[8, 512, 512]), "{end}");
            // With four dimensions these are not the last two.
            assert!(!is_reported_for(&body, &[8, 4, 512, 512]), "{end}");
        }
        let heads = "k = x * self.scale\nk = k.permute(0, 2, 1, 3).contiguous()\nreturn y @ k";
        assert!(!is_reported_for(heads, &[8, 4, 512, 512]));
    }

    #[test]
    fn needed_copies_are_not_reported() {
        assert!(!is_reported(
            "k = self.key(x).transpose(1, 2)\nk = k.transpose(-2, -1).contiguous()\nreturn x @ k"
        ));
        assert!(!is_reported("return x.transpose(1, 2).contiguous().view(3, 4)"));
        assert!(!is_reported("w = self.weight.t().contiguous()\nreturn x @ w + w.view(-1)"));
        assert!(!is_reported("return x @ y.t().contiguous()"));
        assert!(!is_reported("w = self.weight.t().contiguous()\nreturn w"));
        assert!(!is_reported("return x @ self.weight.contiguous()"));
    }

    #[test]
    fn clone_that_is_never_modified() {
        assert!(is_reported("z = x.clone()\nreturn z * 2 + y"));
        assert!(!is_reported("z = x.clone()\nz[0] = 1\nreturn z * 2"));
        assert!(!is_reported("z = x.clone()\nz += 1\nreturn z * 2"));
        assert!(!is_reported("z = x.clone()\nz.mul_(2)\nreturn z * 2"));
        assert!(!is_reported("z = x.clone()\nx[0] = 1\nreturn z * 2"));
        assert!(!is_reported("z = x.clone()\nreturn z"));
        assert!(!is_reported("z = x.clone()\nself.seen = z\nreturn z * 2"));
        assert!(!is_reported("z = x.clone()\nreturn self.layer(z)"));
    }

    #[test]
    fn small_costs_are_not_reported() {
        let text = "import torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x @ self.weight.t().contiguous()\n\nNet()(1)\n";
        let example = |copy_us: f64| {
            Case::new(text)
                .call(5, Phase::Forward, &operator("clone", &[&[64, 64], &[64, 64]]), copy_us)
                .call(5, Phase::Forward, &operator("mm", &[&[64, 64], &[64, 64], &[64, 64]]), 900.0)
        };
        let found = example(100.0).measured(&LayoutCopies);
        assert_eq!((found[0].at.line, found[0].cost), (5, Some(Cost::time(100e3))));
        assert!(example(5.0).measured(&LayoutCopies).is_empty());
    }
}
