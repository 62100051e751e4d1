//! Finds where the text creates a loader's dataset, if a library's code produces its samples.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{callee, written};
use ridgeline_python::semantics::functions::callable;
use ridgeline_python::semantics::module::last_name;
use ridgeline_python::semantics::trace::Place;

/// The maximum number of names followed from one to the next.
const MAX_DEPTH: u32 = 8;
/// The datasets of torch that pass on samples of another dataset.
const WRAPPERS: [&str; 3] = ["Subset", "random_split", "ConcatDataset"];

/// Returns the call that creates the dataset of a loader. Returns `None` if the program or torch
/// defines the dataset, or if it cannot be followed.
pub(crate) fn library_dataset<'a>(
    program: &Program<'a>,
    module: usize,
    loader: Node<'a>,
) -> Option<Node<'a>> {
    let arguments = program.arguments(module, loader)?;
    let dataset = arguments.named("dataset").or(arguments.positional.first().copied())?;
    follow(program, module, dataset, MAX_DEPTH)
}

/// The value of a variable at this place: of its last assignment before it.
pub(crate) fn value_of<'a>(
    program: &Program<'a>,
    module: usize,
    variable: Node<'a>,
) -> Option<Node<'a>> {
    let text = program.module(module);
    let name = written(text, variable);
    let function = text.function_at(variable.start_byte());
    let mut before = text.assignments.iter().filter(|one| {
        let is_visible = one.function == function || one.function.is_none();
        one.target == name && is_visible && one.value.end <= variable.start_byte()
    });
    text.node(&before.next_back()?.value)
}

fn follow<'a>(
    program: &Program<'a>,
    module: usize,
    node: Node<'a>,
    depth: u32,
) -> Option<Node<'a>> {
    let depth = depth.checked_sub(1)?;
    let text = program.module(module);
    match Kind::of(&node) {
        Kind::Identifier => follow(program, module, value_of(program, module, node)?, depth),
        Kind::Subscript => follow(program, module, node.field(Field::Value)?, depth),
        Kind::Call => {
            let name = callee(text, node);
            let place = Place { module, span: node.byte_range() };
            if callable(&program.tracer, &place, &name).is_some() {
                return None;
            }
            let whole = program.absolute(module, &name);
            if whole.starts_with("torch.") {
                let first = program.arguments(module, node)?.positional.first().copied()?;
                let is_wrapper = WRAPPERS.contains(&last_name(&whole));
                return follow(program, module, first, depth).filter(|_| is_wrapper);
            }
            let root = name.split('.').next().unwrap_or_default();
            if text.names.iter().any(|(here, ..)| here == root) {
                return Some(node);
            }
            // `words.map(tokenize)`
            let function = node.field(Field::Function)?;
            follow(program, module, function.field(Field::Object)?, depth)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::with_program;
    use ridgeline_optimize::rewrite::loader::loaders;

    /// Checks the line on which a library creates the dataset of a program's loader.
    #[track_caller]
    fn check(body: &str, expected: Option<u32>) {
        let text = format!(
            "from torch.utils.data import DataLoader, Subset, TensorDataset, random_split\n\
             from torchvision import datasets\nfrom datasets import load_dataset\n\
             class Own:\n    pass\n{body}\nloader = DataLoader(data, batch_size=8)\n"
        );
        let found = with_program(&text, |program| {
            let loaders = loaders(program).expect("a loader");
            let dataset = library_dataset(program, 0, loaders[0].call);
            dataset.map(|dataset| program.module(0).line(dataset.start_byte()))
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn library_datasets_are_found() {
        check("data = datasets.ImageFolder('x', transform=None)", Some(6));
        check("whole = datasets.CIFAR10('x')\ndata = Subset(whole, range(9))", Some(6));
        check("whole = datasets.CIFAR10('x')\ndata, rest = random_split(whole, [9, 1])", Some(6));
        check("data = load_dataset('x')['train']", Some(6));
        check("data = load_dataset('x')\ndata = data.map(len)", Some(6));
    }

    #[test]
    fn own_and_torch_datasets_are_skipped() {
        check("data = Own()", None);
        check("data = TensorDataset(x, y)", None);
        check("data = Subset(Own(), range(9))", None);
        check("data = [1, 2]", None);
        check("data = list(range(9))", None);
        check("def f(data):\n    return DataLoader(data)", None);
    }
}
