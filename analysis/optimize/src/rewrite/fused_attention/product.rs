//! Matrix multiplications: `a @ b`, `torch.matmul(a, b)`, `torch.bmm(a, b)`, `torch.einsum("…id,…jd->…ij", a, b)`.

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Module, last_name};
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::{callee, written};
use super::einsum::Equation;

/// A matrix multiplication of two tensors, in their last two dimensions.
pub(super) struct Product<'a> {
    pub left: Node<'a>,
    pub right: Node<'a>,
    /// Whether the rows of the left are multiplied by the rows of the right, not by its columns.
    pub is_by_rows: bool,
}

impl<'a> Product<'a> {
    /// Returns the product that an expression computes.
    pub(super) fn of(program: &Program<'a>, module: usize, node: Node<'a>) -> Option<Product<'a>> {
        let text = program.module(module);
        if node.is(Kind::BinaryOperator) {
            let is_matmul = node.field(Field::Operator)?.kind() == "@";
            let (left, right) = (node.field(Field::Left)?, node.field(Field::Right)?);
            return is_matmul.then_some(Product { left, right, is_by_rows: false });
        }
        let node = Some(node).filter(|node| node.is(Kind::Call))?;
        let name = callee(text, node);
        let list = named_children(node.field(Field::Arguments)?);
        let tensors: Vec<Node<'a>> = list
            .into_iter()
            .filter(|one| !matches!(Kind::of(one), Kind::String | Kind::Comment))
            .collect();
        let are_plain = tensors
            .iter()
            .all(|one| !matches!(Kind::of(one), Kind::KeywordArgument | Kind::ListSplat));
        match (last_name(&name), tensors.as_slice()) {
            _ if !are_plain => None,
            ("einsum", [left, right]) => {
                let equation = Equation::of(text, node)?;
                let is_by_rows = equation.multiplies_rows();
                let is_one = is_by_rows || equation.is_matrix_product();
                is_one.then_some(Product { left: *left, right: *right, is_by_rows })
            }
            ("matmul" | "bmm", [left, right]) => {
                let is_function = program.absolute(module, &name).starts_with("torch.");
                is_function.then_some(Product { left: *left, right: *right, is_by_rows: false })
            }
            ("matmul" | "bmm", [right]) => {
                let left = node.field(Field::Function)?.field(Field::Object)?;
                Some(Product { left, right: *right, is_by_rows: false })
            }
            _ => None,
        }
    }

    /// Returns the right factor with its rows as the fused operator takes them: `k` of
    /// `q @ k.transpose(-2, -1)`.
    pub(super) fn keys(&self, text: &Module) -> String {
        let right = self.right;
        let written_out = text.text(&right.byte_range());
        if self.is_by_rows {
            return written_out.to_owned();
        }
        if let Some(transposed) = transposed(text, right) {
            return text.text(&transposed.byte_range()).to_owned();
        }
        match Kind::of(&right) {
            Kind::Identifier | Kind::Attribute | Kind::Call | Kind::Subscript => {
                format!("{written_out}.transpose(-2, -1)")
            }
            _ => format!("({written_out}).transpose(-2, -1)"),
        }
    }
}

/// The tensor whose last two dimensions an expression exchanges.
fn transposed<'a>(text: &Module, node: Node<'a>) -> Option<Node<'a>> {
    if node.is(Kind::ParenthesizedExpression) {
        return transposed(text, node.named_child(0)?);
    }
    if node.is(Kind::Attribute) {
        let name = node.field(Field::Attribute)?;
        let is_transposed = matches!(text.text(&name.byte_range()), "mT" | "T");
        return node.field(Field::Object).filter(|_| is_transposed);
    }
    let function = Some(node).filter(|node| node.is(Kind::Call))?.field(Field::Function)?;
    let name = function.field(Field::Attribute)?;
    let arguments = written(text, node.field(Field::Arguments)?);
    // Only the exchange of the last two gives a product of queries and keys, so `(2, 3)` and
    // `(1, 2)` are the last two of their tensor.
    let is_exchange = match text.text(&name.byte_range()) {
        "transpose" | "swapaxes" | "swapdims" => matches!(
            arguments.as_str(),
            "(-2,-1)" | "(-1,-2)" | "(2,3)" | "(3,2)" | "(1,2)" | "(2,1)"
        ),
        "permute" => matches!(arguments.as_str(), "(0,1,3,2)" | "(0,2,1)"),
        _ => false,
    };
    function.field(Field::Object).filter(|_| is_exchange)
}
