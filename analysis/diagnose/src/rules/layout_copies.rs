//! `layout-copies`: copies that nothing needs: `.contiguous()` of a transposed matrix that is only
//! multiplied (BLAS reads it either way), and `.clone()` of what nobody changes.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use crate::tally::of_line;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{callee, object_of, statement_of, within, written};
use ridgeline_python::semantics::module::{Call, Module, last_name};

/// A smaller share of the iteration is not worth a look.
const LEAST: f64 = 0.02;
/// Operators that copy.
const COPIES: [&str; 3] = ["clone", "copy_", "contiguous"];
/// Products, by the last part of their names.
const PRODUCTS: [&str; 4] = ["matmul", "bmm", "mm", "baddbmm"];
/// How the last two dimensions are exchanged, as it is written.
const TRANSPOSED: [&str; 5] = [".transpose(-2,-1)", ".transpose(-1,-2)", ".mT", ".t()", ".T"];
/// The same where there are three.
const OF_THREE: [&str; 3] = [".transpose(1,2)", ".transpose(2,1)", ".permute(0,2,1)"];

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
            let kind = needless(evidence.program, module, call)?;
            let text = evidence.program.module(module);
            Some((evidence.ran(module, text.line(call.span.end.saturating_sub(1)))?, kind))
        });
        let found = sites.filter_map(|(line, kind)| {
            let copies = of_line(evidence, line).filter(|(key, _)| {
                let Some(operator) = evidence.operator(key) else { return false };
                let dimensions = operator.shape(0).map_or(0, <[u64]>::len);
                operator.base_name().is_some_and(|name| COPIES.contains(&name))
                    && (kind != Copy::TransposedOfThree || dimensions == 3)
            });
            let time_ns: f64 = copies.map(|(_, work)| work.time_ns()).sum();
            (evidence.share(time_ns) >= LEAST).then(|| finding(evidence, line, kind, time_ns))
        });
        found.collect()
    }
}

/// What is copied for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// A transposed matrix that is only multiplied.
    Transposed,
    /// The same, where the tensor has three dimensions.
    TransposedOfThree,
    /// A tensor that nobody changes.
    Unchanged,
}

fn finding(evidence: &Evidence<'_>, line: crate::tally::Line, kind: Copy, time_ns: f64) -> Finding {
    let (message, why) = match kind {
        Copy::Transposed | Copy::TransposedOfThree => (
            "`.contiguous()` copies a transposed matrix that is only multiplied",
            "Matrix multiplications read transposed inputs at full speed. Without `.contiguous()` \
            the transpose is a view, and nothing is copied.",
        ),
        Copy::Unchanged => (
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

fn needless(program: &Program<'_>, module: usize, call: &Call) -> Option<Copy> {
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
        let kinds = [(&TRANSPOSED[..], Copy::Transposed), (&OF_THREE[..], Copy::TransposedOfThree)];
        let is_it = |ends: &[&str]| is_transposed(text, call, object, ends);
        let found = kinds.into_iter().find(|(ends, _)| is_it(ends)).map(|(_, kind)| kind);
        return found.filter(|_| only_multiplied(text, call, node));
    }
    let function = text.functions.lookup(call.function?)?;
    let is_forward = function.name == "forward" && function.class.is_some();
    (is_forward && is_unchanged(text, call, node, object)).then_some(Copy::Unchanged)
}

/// Whether the last two dimensions of a tensor are exchanged, of which nothing was exchanged before: else
/// a product has to copy it anyway.
fn is_transposed(text: &Module, call: &Call, object: Node<'_>, ends: &[&str]) -> bool {
    let whole = written(text, object);
    let Some(base) = ends.iter().find_map(|end| whole.strip_suffix(end)) else {
        return false;
    };
    let is_moved = |value: &str| {
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
    let made = text.assignments.iter().filter(|one| {
        one.function == call.function && one.target == base && one.value.end <= call.span.start
    });
    let is_name = base.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let values: Vec<&str> = made.map(|one| text.text(&one.value)).collect();
    // A parameter of the function may be anything; an attribute is a weight.
    let is_known = base.starts_with("self.") || !values.is_empty();
    is_name && is_known && !values.iter().any(|value| is_moved(value))
}

/// Whether an expression, or the name that it is given, is nothing but a factor of products.
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
    call.is_some_and(|call| PRODUCTS.contains(&last_name(&callee(text, call))))
}

/// The name that a whole expression is given, and the statement.
fn assigned<'a>(text: &Module, node: Node<'a>) -> Option<(String, Node<'a>)> {
    let assignment = node.parent().filter(|it| it.is(Kind::Assignment))?;
    let left = assignment.field(Field::Left).filter(|it| it.is(Kind::Identifier))?;
    Some((written(text, left), statement_of(node)?))
}

/// Where a name stands behind a statement of the function of a call.
fn uses<'a>(text: &'a Module, call: &Call, name: &str, after: Node<'_>) -> Vec<Node<'a>> {
    let function = call.function.and_then(|at| text.functions.lookup(at));
    let Some(body) = function.and_then(|it| text.node(&it.body)) else { return Vec::new() };
    within(body)
        .into_iter()
        .filter(|it| it.is(Kind::Identifier) && it.start_byte() >= after.end_byte())
        .filter(|it| written(text, *it) == name)
        .collect()
}

/// Whether neither a copy nor what was copied is changed, given away or kept in a function.
fn is_unchanged(text: &Module, call: &Call, node: Node<'_>, object: Node<'_>) -> bool {
    let Some((name, statement)) = assigned(text, node) else { return false };
    if !object.is(Kind::Identifier) {
        return false;
    }
    let uses_of = |name: &str| uses(text, call, name, statement);
    let (copies, originals) = (uses_of(&name), uses_of(&written(text, object)));
    let is_read = |it: Node<'_>| {
        // Operands of arithmetic and of products are read and no more.
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

    /// Whether the copy in a method's body, on line 5, is told.
    fn is_told(body: &str) -> bool {
        is_told_of(body, &[4096, 4096])
    }

    /// The same for a copy of a shape.
    fn is_told_of(body: &str, shape: &[u64]) -> bool {
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
    fn a_transposed_matrix_that_is_only_multiplied() {
        assert!(is_told("return x @ self.weight.t().contiguous()"));
        assert!(is_told("k = self.key(x)\nk = k.transpose(-2, -1).contiguous()\nreturn x @ k"));
        assert!(is_told(
            "w = self.weight.T.contiguous()\na = torch.mm(x, w)\nreturn torch.mm(y, w) + a"
        ));
    }

    #[test]
    fn of_three_dimensions_the_last_two_have_numbers() {
        for end in [".transpose(1, 2)", ".transpose(2, 1)", ".permute(0, 2, 1)"] {
            let body =
                format!("k = x * self.scale\nk = k{end}.contiguous()\nreturn torch.bmm(y, k)");
            assert!(is_told_of(&body, &[8, 512, 512]), "{end}");
            // Of four dimensions these are others.
            assert!(!is_told_of(&body, &[8, 4, 512, 512]), "{end}");
        }
        let heads = "k = x * self.scale\nk = k.permute(0, 2, 1, 3).contiguous()\nreturn y @ k";
        assert!(!is_told_of(heads, &[8, 4, 512, 512]));
    }

    #[test]
    fn what_a_product_would_copy_itself_or_somebody_else_reads_is_left_alone() {
        assert!(!is_told(
            "k = self.key(x).transpose(1, 2)\nk = k.transpose(-2, -1).contiguous()\nreturn x @ k"
        ));
        assert!(!is_told("return x.transpose(1, 2).contiguous().view(3, 4)"));
        assert!(!is_told("w = self.weight.t().contiguous()\nreturn x @ w + w.view(-1)"));
        assert!(!is_told("return x @ y.t().contiguous()"));
        assert!(!is_told("w = self.weight.t().contiguous()\nreturn w"));
        assert!(!is_told("return x @ self.weight.contiguous()"));
    }

    #[test]
    fn a_clone_that_nobody_changes() {
        assert!(is_told("z = x.clone()\nreturn z * 2 + y"));
        assert!(!is_told("z = x.clone()\nz[0] = 1\nreturn z * 2"));
        assert!(!is_told("z = x.clone()\nz += 1\nreturn z * 2"));
        assert!(!is_told("z = x.clone()\nz.mul_(2)\nreturn z * 2"));
        assert!(!is_told("z = x.clone()\nx[0] = 1\nreturn z * 2"));
        assert!(!is_told("z = x.clone()\nreturn z"));
        assert!(!is_told("z = x.clone()\nself.seen = z\nreturn z * 2"));
        assert!(!is_told("z = x.clone()\nreturn self.layer(z)"));
    }

    #[test]
    fn little_time_is_no_fault() {
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
