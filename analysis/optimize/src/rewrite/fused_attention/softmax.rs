//! A softmax over the last dimension: `F.softmax(x, dim=-1)`, `x.softmax(-1)`, or an `nn.Softmax`.

use ridgeline_python::semantics::module::Call;
use tree_sitter::Node;

use super::super::fixes::layers::layer;
use super::super::program::Program;
use super::super::syntax::{object_of, written};

/// A softmax over the last dimension.
pub struct Softmax<'a> {
    /// Its input.
    pub scores: Node<'a>,
    /// Whether the input has exactly three dimensions.
    pub has_three_dimensions: bool,
}

impl<'a> Softmax<'a> {
    /// Returns the softmax that a call computes.
    pub fn of(program: &Program<'a>, module: usize, call: &Call) -> Option<Softmax<'a>> {
        let text = program.module(module);
        let node = program.node(module, call)?;
        let arguments = program.arguments(module, node)?;
        let first = || arguments.positional.first().copied().or(arguments.named("input"));
        let is_function = matches!(
            program.called(module, call).as_str(),
            "torch.softmax" | "torch.nn.functional.softmax"
        );
        let (scores, dimension) = if is_function {
            (first()?, arguments.named("dim").or(arguments.positional.get(1).copied())?)
        } else if let Some(dimension) = layer_dimension(program, module, &call.callee) {
            (first()?, dimension)
        } else {
            let object = object_of(text, node, "softmax")?;
            if written(text, object).starts_with("self.") {
                return None;
            }
            (object, arguments.named("dim").or(arguments.positional.first().copied())?)
        };
        match text.text(&dimension.byte_range()).trim() {
            "-1" | "3" => Some(Softmax { scores, has_three_dimensions: false }),
            "2" => Some(Softmax { scores, has_three_dimensions: true }),
            _ => None,
        }
    }
}

/// The dimension of the `nn.Softmax` that an attribute holds, if it never holds anything else.
fn layer_dimension<'a>(program: &Program<'a>, module: usize, callee: &str) -> Option<Node<'a>> {
    let text = program.module(module);
    let own = text.assignments.iter().filter(|one| one.target == callee);
    let dimensions = own.map(|one| {
        let value = text.node(&one.value)?;
        let is_softmax = layer(program, module, value)? == "Softmax";
        let arguments = program.arguments(module, value).filter(|_| is_softmax)?;
        arguments.named("dim").or(arguments.positional.first().copied())
    });
    let dimensions: Vec<Node<'a>> = dimensions.collect::<Option<_>>()?;
    let (first, rest) = dimensions.split_first().filter(|_| callee.starts_with("self."))?;
    let same = |one: &Node<'a>| written(text, *one) == written(text, *first);
    rest.iter().all(same).then_some(*first)
}
