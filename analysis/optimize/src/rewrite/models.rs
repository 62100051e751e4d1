//! Finds the variables that hold models, and the calls of models.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use super::program::Program;
use super::syntax::{callee, calls_in, mentions, object_of, within, written};
use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::module::{Module, last_name};
use ridgeline_python::semantics::trace::Place;

/// Methods that are called on models but do not run them.
const METHODS: [&str; 5] = ["parameters", "named_parameters", "train", "eval", "children"];

/// Functions and classes that wrap a model.
const WRAPPERS: [&str; 5] =
    ["compile", "DataParallel", "DistributedDataParallel", "DDP", "FullyShardedDataParallel"];

/// The maximum depth of function calls followed from a call to a model.
const MAX_DEPTH: u32 = 4;

/// The variables of a program that hold models: `model`, `self.net`.
pub struct Models {
    names: BTreeSet<String>,
}

impl Models {
    pub fn of(program: &Program<'_>) -> Models {
        let mut names = BTreeSet::new();
        for (_, call) in program.calls() {
            let Some((object, method)) = call.callee.rsplit_once('.') else { continue };
            let is_trainer = object.to_lowercase().ends_with("trainer");
            let is_name = object.split('.').count() <= 3
                && object.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
            if METHODS.contains(&method) && is_name && object != "self" && !is_trainer {
                // `model.module.parameters()` for a wrapped model.
                names.insert(object.trim_end_matches(".module").to_owned());
            }
        }
        for (module, text) in program.modules().iter().enumerate() {
            for one in &text.assignments {
                let made = text.node(&one.value).and_then(|node| first_call(program, module, node));
                if made.is_some_and(|made| creates_module(program, module, &made)) {
                    names.insert(one.target.clone());
                }
            }
        }
        names.retain(|name| !is_criterion(name));
        let mut models = Models { names };
        // Propagate to parameters, attributes and wrappers.
        for _ in 0..MAX_DEPTH {
            let more = models.aliases(program);
            let before = models.names.len();
            models.names.extend(more.into_iter().filter(|name| !is_criterion(name)));
            if models.names.len() == before {
                break;
            }
        }
        models
    }

    /// Returns further names for models, from assignments and arguments.
    fn aliases(&self, program: &Program<'_>) -> Vec<String> {
        let mut found = Vec::new();
        for text in program.modules() {
            for one in text.assignments.iter().filter(|one| one.element.is_none()) {
                let value = text.node(&one.value);
                if value.is_some_and(|value| self.is_model_expression(text, value)) {
                    found.push(one.target.clone());
                }
            }
        }
        for (module, call) in program.calls() {
            let text = program.module(module);
            let source = text.text(&call.span);
            if !self.names.iter().any(|name| mentions(source, name)) {
                continue;
            }
            let Some(node) = program.node(module, call) else { continue };
            let Some(arguments) = program.arguments(module, node) else { continue };
            let place = Place { module, span: call.span.clone() };
            let Some((inner, at)) = function_called(program, &place, &call.callee) else {
                continue;
            };
            let function = &program.module(inner).functions[at];
            let skipped = usize::from(function.class.is_some());
            let by_place = function.parameters.iter().skip(skipped).zip(&arguments.positional);
            found.extend(
                by_place
                    .filter(|(_, value)| self.is_model_expression(text, **value))
                    .map(|(parameter, _)| parameter.name.clone()),
            );
            let by_name = arguments.by_name.iter();
            found.extend(
                by_name
                    .filter(|(_, value)| self.is_model_expression(text, *value))
                    .map(|(name, _)| name.clone()),
            );
        }
        found
    }

    /// Whether an expression is a model: a variable, `model.to(device)`, `DDP(model)`.
    fn is_model_expression(&self, text: &Module, value: Node<'_>) -> bool {
        let mut value = value;
        for _ in 0..8 {
            if !value.is(Kind::Call) {
                return self.names.contains(&written(text, value));
            }
            let self_returning = ["to", "cuda", "cpu", "train", "eval", "requires_grad_"];
            let object = self_returning.iter().find_map(|method| object_of(text, value, method));
            let wraps = WRAPPERS.contains(&last_name(&callee(text, value)));
            let first = value.field(Field::Arguments).and_then(|list| list.named_child(0));
            match object.or(first.filter(|_| wraps)) {
                Some(inner) => value = inner,
                None => return false,
            }
        }
        false
    }

    /// Whether a variable holds a model.
    pub fn is_one(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether an expression or statement calls a model or passes one as an argument, directly or
    /// in functions of the program that it calls.
    pub fn are_used_by(&self, program: &Program<'_>, module: usize, node: Node<'_>) -> bool {
        self.used(program, module, node, 0)
    }

    fn used(&self, program: &Program<'_>, module: usize, node: Node<'_>, depth: u32) -> bool {
        let text = program.module(module);
        calls_in(node).into_iter().any(|call| {
            let name = callee(text, call);
            if METHODS.contains(&last_name(&name)) {
                return false;
            }
            if self.names.contains(&name)
                || name.rsplit_once('.').is_some_and(|(object, _)| self.names.contains(object))
            {
                return true;
            }
            // `diffusion.losses(model, x)`
            let arguments = call.field(Field::Arguments);
            let passes_model = arguments.is_some_and(|list| {
                within(list).into_iter().any(|one| {
                    matches!(Kind::of(&one), Kind::Identifier | Kind::Attribute)
                        && self.names.contains(&written(text, one))
                        && one.parent().is_none_or(|parent| {
                            parent.is(Kind::ArgumentList) || parent.is(Kind::KeywordArgument)
                        })
                })
            });
            if passes_model && !is_bookkeeping(&name) {
                return true;
            }
            depth < MAX_DEPTH
                && body_of(program, module, call)
                    .is_some_and(|(inner, body)| self.used(program, inner, body, depth + 1))
        })
    }

    /// Returns the calls of models in a node and in functions of the program that it calls: module
    /// and call.
    pub fn calls<'a>(
        &self,
        program: &Program<'a>,
        module: usize,
        node: Node<'a>,
    ) -> Vec<(usize, Node<'a>)> {
        let mut found = Vec::new();
        self.collect(program, module, node, 0, &mut found);
        found
    }

    fn collect<'a>(
        &self,
        program: &Program<'a>,
        module: usize,
        node: Node<'a>,
        depth: u32,
        found: &mut Vec<(usize, Node<'a>)>,
    ) {
        for call in calls_in(node) {
            let name = callee(program.module(module), call);
            let owner = name.rsplit_once('.').map(|(object, _)| object);
            if METHODS.contains(&last_name(&name)) || found.len() > 64 {
                continue;
            }
            if self.names.contains(&name) || owner.is_some_and(|owner| self.names.contains(owner)) {
                if !found.contains(&(module, call)) {
                    found.push((module, call));
                }
            } else if let Some((inner, body)) =
                body_of(program, module, call).filter(|_| depth < MAX_DEPTH)
            {
                self.collect(program, inner, body, depth + 1, found);
            }
        }
    }
}

/// Returns the body of the program's function that a call calls, except a model's `forward`.
pub fn body_of<'a>(
    program: &Program<'a>,
    module: usize,
    call: Node<'a>,
) -> Option<(usize, Node<'a>)> {
    let name = callee(program.module(module), call);
    let place = Place { module, span: call.byte_range() };
    match callable(&program.tracer, &place, &name)? {
        Callable::Function(inner, at) => {
            let text = program.module(inner);
            Some((inner, text.node(&text.functions[at].body)?))
        }
        Callable::Class(..) => None,
    }
}

/// Returns the program's function that a call runs. For a class it is the constructor.
fn function_called(program: &Program<'_>, place: &Place, callee: &str) -> Option<(usize, usize)> {
    match callable(&program.tracer, place, callee)? {
        Callable::Function(module, at) => Some((module, at)),
        Callable::Class(module, class) => {
            Some((module, program.module(module).function("__init__", Some(class))?))
        }
    }
}

/// Returns the innermost call of a chain: `Net()` for `Net().to(device).train()` and for
/// `torch.compile(Net())`.
fn first_call<'a>(program: &Program<'a>, module: usize, node: Node<'a>) -> Option<Node<'a>> {
    let mut call = Some(node).filter(|node| node.is(Kind::Call))?;
    for _ in 0..16 {
        let function = call.field(Field::Function)?;
        let inner = function.field(Field::Object).filter(|one| one.is(Kind::Call));
        let wrapped = || {
            let name = program.absolute(module, &callee(program.module(module), call));
            let first = call.field(Field::Arguments)?.named_child(0)?;
            WRAPPERS.contains(&last_name(&name)).then_some(first).filter(|one| one.is(Kind::Call))
        };
        match inner.or_else(wrapped) {
            Some(inner) => call = inner,
            None => return Some(call),
        }
    }
    None
}

/// Whether a call creates a module: of PyTorch, of a model library, or of a class of the program.
fn creates_module(program: &Program<'_>, module: usize, call: &Node<'_>) -> bool {
    let name = callee(program.module(module), *call);
    let qualified = program.absolute(module, &name);
    let last = last_name(&qualified);
    let is_upper = last.starts_with(|c: char| c.is_ascii_uppercase());
    let is_torch_module = qualified.starts_with("torch.nn.")
        && is_upper
        && !["functional", "utils", "init", "Parameter", "ParameterList", "Buffer"]
            .iter()
            .any(|part| qualified.contains(part))
        && !is_criterion(last);
    if is_torch_module
        || qualified.starts_with("torchvision.models.")
        || qualified == "timm.create_model"
        || (qualified.starts_with("transformers.")
            && qualified.ends_with("from_pretrained")
            && qualified.contains("Model"))
    {
        return true;
    }
    let place = Place { module, span: call.byte_range() };
    match callable(&program.tracer, &place, &name) {
        Some(Callable::Class(inner, class)) => is_module_class(program, inner, class, 0),
        Some(Callable::Function(inner, at)) => {
            let text = program.module(inner);
            text.functions[at].returns.iter().any(|value| {
                let made = text.node(value).and_then(|node| first_call(program, inner, node));
                made.is_some_and(|made| {
                    let name = callee(text, made);
                    let place = Place { module: inner, span: made.byte_range() };
                    matches!(
                        callable(&program.tracer, &place, &name),
                        Some(Callable::Class(inner, class))
                            if is_module_class(program, inner, class, 0)
                    )
                })
            })
        }
        None => false,
    }
}

/// Whether a class is a PyTorch module, by its bases.
pub fn is_module_class(program: &Program<'_>, module: usize, class: usize, depth: u32) -> bool {
    let text = program.module(module);
    text.classes[class].bases.iter().any(|base| {
        let written: String = text.text(base).chars().filter(|c| !c.is_whitespace()).collect();
        let qualified = program.absolute(module, &written);
        if qualified.starts_with("torch.nn.") {
            return !is_criterion(last_name(&qualified));
        }
        if matches!(
            last_name(&qualified),
            "LightningModule" | "PreTrainedModel" | "PyTorchModelHubMixin"
        ) {
            return true;
        }
        let place = Place { module, span: base.clone() };
        match callable(&program.tracer, &place, &written) {
            Some(Callable::Class(inner, class)) if depth < 8 => {
                is_module_class(program, inner, class, depth + 1)
            }
            _ => false,
        }
    })
}

/// Whether a name is that of a loss, which is a module but not a model.
fn is_criterion(name: &str) -> bool {
    let name = last_name(name).to_lowercase();
    name.ends_with("loss") || name.starts_with("criterion") || name.starts_with("loss_f")
}

/// Whether a call takes a model but does not run it.
fn is_bookkeeping(name: &str) -> bool {
    let name = last_name(name);
    let known = ["save", "print", "clip_grad_norm_", "clip_grad_value_", "watch", "len", "append"];
    known.contains(&name) || name.starts_with("save_") || name.starts_with("update_")
}

/// Whether the program saves or loads model state, so that parameter names matter.
pub fn keeps_states(program: &Program<'_>) -> bool {
    program.modules().iter().any(|text| {
        ["state_dict", "load_state_dict", "save_pretrained"]
            .iter()
            .any(|name| mentions(text.index.text(), name))
    })
}
