//! Which expressions carry an autograd graph: values that a backward pass could go through, by the
//! text.
//!
//! An expression that is not known to carry one is assumed to carry none.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use ridgeline_optimize::rewrite::models::Models;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{callee, object_of, reads, written};
use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Assignment, Module, last_name};
use ridgeline_python::semantics::trace::Place;

/// The maximum number of names followed from one to the next.
const MAX_DEPTH: u32 = 8;

/// Methods and functions with a differentiable result, which carries the graph of their tensor.
const DIFFERENTIABLE: [&str; 38] = [
    "mean",
    "sum",
    "softmax",
    "log_softmax",
    "sigmoid",
    "tanh",
    "relu",
    "gelu",
    "exp",
    "log",
    "sqrt",
    "abs",
    "pow",
    "square",
    "norm",
    "clamp",
    "clone",
    "float",
    "double",
    "half",
    "view",
    "reshape",
    "flatten",
    "squeeze",
    "unsqueeze",
    "max",
    "min",
    "logsumexp",
    "to",
    "cpu",
    "cuda",
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "amax",
    "amin",
];

/// A backward pass in the text, and the variables that it starts from.
pub(crate) struct Root<'a> {
    /// The call of `backward`.
    pub call: Node<'a>,
    /// `loss` in `loss.backward()` and in `scaler.scale(loss).backward()`.
    pub names: BTreeSet<String>,
}

/// One function of a module, or its top-level code, with its backward passes.
pub(crate) struct AutogradFlow<'a, 'p> {
    program: &'p Program<'a>,
    models: &'p Models,
    module: usize,
    text: &'a Module,
    function: Option<usize>,
    pub roots: Vec<Root<'a>>,
}

impl<'a, 'p> AutogradFlow<'a, 'p> {
    /// Finds the backward passes of a function.
    pub(crate) fn new(
        program: &'p Program<'a>,
        models: &'p Models,
        module: usize,
        function: Option<usize>,
    ) -> AutogradFlow<'a, 'p> {
        let text = program.module(module);
        let calls = text.calls.iter();
        let own = calls.filter(|call| call.function == function && call.name() == "backward");
        let roots = own.filter_map(|call| root(program, module, program.node(module, call)?));
        let roots = roots.take(16).collect();
        AutogradFlow { program, models, module, text, function, roots }
    }

    /// Whether a backward pass is computed from a variable: for example, a loss that is accumulated
    /// and then backpropagated.
    pub(crate) fn is_used_by_backward(&self, name: &str) -> bool {
        let mut needed: BTreeSet<String> =
            self.roots.iter().flat_map(|root| root.names.iter().cloned()).collect();
        for _ in 0..MAX_DEPTH {
            let before = needed.len();
            for one in self.assignments() {
                let target = base_of(&one.target);
                if needed.contains(&one.target) || needed.contains(target) {
                    let value = self.text.node(&one.value);
                    needed.extend(value.map(|value| reads(self.text, value)).unwrap_or_default());
                }
            }
            if needed.len() == before {
                break;
            }
        }
        needed.contains(name) || needed.contains(base_of(name))
    }

    /// Whether a value carries a graph at its place in a loop.
    pub(crate) fn carries_graph(&self, value: Node<'a>, within: Node<'a>) -> bool {
        self.value(value, within, value.start_byte(), MAX_DEPTH)
    }

    /// The assignment in a loop that gives a name its value at this place. Returns `None` if the
    /// node is not a name.
    pub(crate) fn assignment_of(
        &self,
        value: Node<'a>,
        within: Node<'a>,
    ) -> Option<&'a Assignment> {
        let name = Some(value).filter(|value| value.is(Kind::Identifier))?;
        self.last(&written(self.text, name), within, value.start_byte())
    }

    /// Whether a backward pass starts from a variable.
    pub(crate) fn is_backward_root(&self, name: &str) -> bool {
        self.roots.iter().any(|root| root.names.contains(name))
    }

    fn assignments(&self) -> impl Iterator<Item = &'a Assignment> {
        let function = self.function;
        let all = self.text.assignments.iter();
        all.filter(move |one| one.function == function && one.class.is_none())
    }

    /// The last assignment of a name in a loop before an offset.
    fn last(&self, name: &str, within: Node<'a>, before: usize) -> Option<&'a Assignment> {
        let inside = within.byte_range();
        let own = self.assignments().filter(|one| {
            one.target == name && inside.contains(&one.at.start) && one.value.end <= before
        });
        own.last()
    }

    fn value(&self, node: Node<'a>, within: Node<'a>, at: usize, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let field = |name: Field| node.field(name);
        match Kind::of(&node) {
            Kind::Identifier => self.name(&written(self.text, node), within, at, depth),
            Kind::ParenthesizedExpression => named_children(node)
                .first()
                .is_some_and(|inner| self.value(*inner, within, at, depth)),
            Kind::UnaryOperator => {
                field(Field::Argument).is_some_and(|inner| self.value(inner, within, at, depth))
            }
            Kind::BinaryOperator => {
                let operator = field(Field::Operator).map(|one| one.kind());
                let is_differentiable =
                    matches!(operator, Some("+" | "-" | "*" | "/" | "@" | "**"));
                let sides = [field(Field::Left), field(Field::Right)];
                is_differentiable
                    && sides.into_iter().flatten().any(|side| self.value(side, within, at, depth))
            }
            Kind::Attribute => {
                let name = field(Field::Attribute).map(|name| written(self.text, name));
                let keeps =
                    matches!(name.as_deref(), Some("values" | "loss" | "logits" | "T" | "mT"));
                keeps && field(Field::Object).is_some_and(|one| self.value(one, within, at, depth))
            }
            Kind::Call => self.call(node, within, at, depth),
            _ => false,
        }
    }

    fn name(&self, name: &str, within: Node<'a>, at: usize, depth: u32) -> bool {
        let Some(last) = self.last(name, within, at) else { return false };
        let is_backpropagated = self.roots.iter().any(|root| {
            let root_assignment = self.last(name, within, root.call.start_byte());
            root.names.contains(name) && root_assignment.is_some_and(|one| one.at == last.at)
        });
        if is_backpropagated {
            return true;
        }
        let value = self.text.node(&last.value).filter(|_| last.element.is_none());
        value.is_some_and(|value| self.value(value, within, last.at.start, depth))
    }

    fn call(&self, call: Node<'a>, within: Node<'a>, at: usize, depth: u32) -> bool {
        let name = callee(self.text, call);
        if self.models.is_one(&name) {
            return true;
        }
        let last = last_name(&name);
        let object = object_of(self.text, call, last);
        if DIFFERENTIABLE.contains(&last)
            && object.is_some_and(|object| self.value(object, within, at, depth))
        {
            return true;
        }
        let Some(arguments) = self.program.arguments(self.module, call) else { return false };
        let given = || {
            let mut all =
                arguments.positional.iter().chain(arguments.by_name.iter().map(|(_, one)| one));
            all.any(|one| self.value(*one, within, at, depth))
        };
        let whole = self.program.absolute(self.module, &name);
        let is_function = whole.starts_with("torch.nn.functional.")
            || (whole.starts_with("torch.") && DIFFERENTIABLE.contains(&last));
        (is_function || self.is_criterion(&name)) && given()
    }

    /// Whether a variable holds a loss module of torch.
    fn is_criterion(&self, name: &str) -> bool {
        self.text.assignments.iter().any(|one| {
            let is_target = one.target == name;
            let value =
                self.text.node(&one.value).filter(|value| is_target && value.is(Kind::Call));
            value.is_some_and(|value| {
                let whole = self.program.absolute(self.module, &callee(self.text, value));
                whole.starts_with("torch.nn.") && whole.ends_with("Loss")
            })
        })
    }

    /// Whether a call runs a training step of the program that returns its loss unchanged.
    pub(crate) fn returns_its_loss(&self, call: Node<'a>) -> bool {
        let place = Place { module: self.module, span: call.byte_range() };
        let name = callee(self.text, call);
        let Some(Callable::Function(module, at)) = callable(&self.program.tracer, &place, &name)
        else {
            return false;
        };
        let text = self.program.module(module);
        let inner = AutogradFlow::new(self.program, self.models, module, Some(at));
        let returns =
            text.functions.lookup(at).map(|one| one.returns.as_slice()).unwrap_or_default();
        !returns.is_empty()
            && returns.iter().all(|value| {
                let Some(node) = text.node(value).filter(|node| node.is(Kind::Identifier)) else {
                    return false;
                };
                let name = written(text, node);
                inner.roots.iter().any(|root| {
                    let changed = inner
                        .assignments()
                        .any(|one| one.target == name && one.at.start > root.call.start_byte());
                    root.names.contains(&name) && !changed
                })
            })
    }
}

/// `metrics` for `metrics["loss"]`; `self.total` is unchanged.
pub(crate) fn base_of(target: &str) -> &str {
    target.split('[').next().unwrap_or(target)
}

/// Objects whose `backward` takes the loss as its argument.
const ENGINES: [&str; 4] = ["accelerator", "fabric", "engine", "model_engine"];

fn root<'a>(program: &Program<'a>, module: usize, call: Node<'a>) -> Option<Root<'a>> {
    let text = program.module(module);
    let object = object_of(text, call, "backward")?;
    let arguments = program.arguments(module, call)?;
    let owner = written(text, object);
    let is_engine = ENGINES.contains(&last_name(&owner));
    let is_torch = program.absolute(module, &owner).starts_with("torch.");
    let first = arguments.positional.first().copied();
    let loss = if is_engine || is_torch { first? } else { object };
    // `scaler.scale(loss)`
    let names = match Kind::of(&loss) {
        Kind::Call => {
            let given = program.arguments(module, loss)?.positional;
            let mut names: BTreeSet<String> =
                given.into_iter().flat_map(|one| reads(text, one)).collect();
            // `(a + b).mean().backward()`
            let inner = loss.field(Field::Function)?.field(Field::Object);
            names.extend(inner.map(|inner| reads(text, inner)).unwrap_or_default());
            names
        }
        _ => reads(text, loss),
    };
    Some(Root { call, names })
}
