//! [`Tracer`]: follows an expression back to the numbers that it may come from.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use std::cell::{Cell, RefCell};

use tree_sitter::Node;

use super::arena::Arena;
use super::call_sites::CallSite;
use super::gather::named_children;
use super::module::{Module, Span};
use super::project::Modules;
use super::{Entry, Project, Refusal, arguments, dictionary, functions, literal};

/// The beginning of a doubt about a value that is changed in a branch whose condition is unknown.
/// The place where the value is written is still valid.
pub const CHANGED_IN_A_BRANCH: &str = "depending on a condition";

/// The maximum number of expressions visited by a tracer.
const MAX_STEPS: u32 = 3_000;
/// The maximum recursion depth. Each level takes a few hundred bytes of stack.
pub const MAX_DEPTH: usize = 60;

/// The wanted part of an expression's value: an attribute or key, an element, or the batch size of
/// a loader or batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Key(String),
    Element(usize),
    Batch,
}

/// An expression of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub module: usize,
    pub span: Span,
}

/// A number in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    pub file: String,
    pub span: Span,
    pub line: u32,
    pub value: u64,
    pub text: String,
    /// Why it may not be the batch size itself.
    pub refusal: Option<String>,
}

impl Number {
    /// The number at a byte range of a module.
    pub(super) fn new(module: &Module, span: Span, value: u64, text: String) -> Number {
        let (file, line) = module.place(span.start);
        let start = module.part_at(span.start).map_or(0, |part| part.span.start);
        let span = span.start - start..span.end.saturating_sub(start);
        Number { file, span, line, value, text, refusal: None }
    }
}

/// A constant that is not a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    Nothing,
    Truth(bool),
    Text(String),
}

/// The values that an expression may come from.
#[derive(Clone, Debug, Default)]
pub struct PossibleValues {
    pub numbers: Vec<Number>,
    pub constants: Vec<Constant>,
    pub doubts: Vec<Refusal>,
}

impl PossibleValues {
    pub fn doubt(refusal: Refusal) -> PossibleValues {
        PossibleValues { doubts: vec![refusal], ..PossibleValues::default() }
    }

    pub fn constant(constant: Constant) -> PossibleValues {
        PossibleValues { constants: vec![constant], ..PossibleValues::default() }
    }

    /// Whether there is neither a number nor a constant.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.constants.is_empty()
    }

    /// Adds alternatives.
    pub fn or(mut self, other: PossibleValues) -> PossibleValues {
        for number in other.numbers {
            if !self.numbers.contains(&number) {
                self.numbers.push(number);
            }
        }
        for constant in other.constants {
            if !self.constants.contains(&constant) {
                self.constants.push(constant);
            }
        }
        self.doubts.extend(other.doubts);
        self.doubts.truncate(16);
        self
    }
}

/// Follows values through a project.
pub struct Tracer<'a> {
    pub modules: &'a Arena<Module>,
    pub files: &'a Modules,
    pub project: &'a dyn Project,
    pub entry: &'a Entry,
    steps: Cell<u32>,
    pub depth: Cell<usize>,
    stack: RefCell<Vec<(Place, Vec<Step>)>>,
    /// The functions that are being analyzed, with the calls that lead to them.
    calls: RefCell<Vec<((usize, usize), CallSite)>>,
}

impl<'a> Tracer<'a> {
    pub fn new(files: &'a Modules, project: &'a dyn Project, entry: &'a Entry) -> Tracer<'a> {
        Tracer {
            modules: &files.all,
            files,
            project,
            entry,
            steps: Cell::new(0),
            depth: Cell::new(0),
            stack: RefCell::default(),
            calls: RefCell::default(),
        }
    }

    /// From here on, the parameters of a function are the arguments of this call.
    pub fn enter(&self, function: (usize, usize), site: CallSite) {
        self.calls.borrow_mut().push((function, site));
    }

    /// Ends what [`Tracer::enter`] started.
    pub fn leave(&self) {
        self.calls.borrow_mut().pop();
    }

    /// The call through which a function is being analyzed.
    pub fn site_of(&self, function: (usize, usize)) -> Option<CallSite> {
        let calls = self.calls.borrow();
        calls.iter().rfind(|(one, _)| *one == function).map(|(_, site)| site.clone())
    }

    /// A refusal about a place.
    pub fn refusal(&self, place: &Place, message: impl Into<String>) -> Refusal {
        let module = &self.modules[place.module];
        let at = module.place(place.span.start);
        Refusal { message: format!("{}:{} {}", at.0, at.1, message.into()), at: Some(at) }
    }

    pub fn doubt(&self, place: &Place, message: impl Into<String>) -> PossibleValues {
        PossibleValues::doubt(self.refusal(place, message))
    }

    /// Traces an expression, or the part of its value at `path`.
    pub fn trace(&self, place: &Place, path: &[Step]) -> PossibleValues {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        let depth = self.stack.borrow().len();
        let key = (place.clone(), path.to_vec());
        if self.stack.borrow().contains(&key) {
            return PossibleValues::default();
        }
        if steps > MAX_STEPS || depth > MAX_DEPTH || path.len() > 16 {
            return self.doubt(place, "is too complex to follow");
        }
        self.stack.borrow_mut().push(key);
        let found = match self.modules[place.module].node(&place.span) {
            Some(node) => self.expression(place, node, path),
            None => PossibleValues::default(),
        };
        self.stack.borrow_mut().pop();
        found
    }

    /// Like [`Tracer::trace`], for another node of the same module.
    pub fn part(&self, place: &Place, node: Node<'_>, path: &[Step]) -> PossibleValues {
        self.trace(&Place { module: place.module, span: node.byte_range() }, path)
    }

    /// Like [`Tracer::part`], with one more step at the start of the path.
    pub fn member(
        &self,
        place: &Place,
        node: Node<'_>,
        step: Step,
        path: &[Step],
    ) -> PossibleValues {
        let longer: Vec<Step> = std::iter::once(step).chain(path.iter().cloned()).collect();
        self.part(place, node, &longer)
    }

    fn expression(&self, place: &Place, node: Node<'_>, path: &[Step]) -> PossibleValues {
        let module = &self.modules[place.module];
        let field = |name: Field| node.field(name);
        match node.kind() {
            "parenthesized_expression" | "await" | "expression_statement" => named_children(node)
                .first()
                .map_or(PossibleValues::default(), |inner| self.part(place, *inner, path)),
            "named_expression" | "keyword_argument" => field(Field::Value)
                .map_or(PossibleValues::default(), |value| self.part(place, value, path)),
            "integer" if path.is_empty() => self.number(place, node, node),
            "none" => PossibleValues::constant(Constant::Nothing),
            "true" => PossibleValues::constant(Constant::Truth(true)),
            "false" => PossibleValues::constant(Constant::Truth(false)),
            "string" if path.is_empty() => match literal::string(module, node) {
                Some(text) => PossibleValues::constant(Constant::Text(text)),
                None => PossibleValues::default(),
            },
            "identifier" => self.name(place, module.text(&place.span), path),
            "attribute" => self.attribute(place, node, path),
            "subscript" => self.subscript(place, node, path),
            "call" => functions::call(self, place, node, path),
            "conditional_expression" => {
                let parts = named_children(node);
                let [yes, condition, no] = parts[..] else { return PossibleValues::default() };
                match self.truth(place, condition) {
                    Some(true) => self.part(place, yes, path),
                    Some(false) => self.part(place, no, path),
                    None => self.part(place, yes, path).or(self.part(place, no, path)),
                }
            }
            "boolean_operator" => {
                let (Some(left), Some(right)) = (field(Field::Left), field(Field::Right)) else {
                    return PossibleValues::default();
                };
                let is_or = field(Field::Operator).is_some_and(|operator| operator.kind() == "or");
                let first = self.part(place, left, path);
                let is_nothing = first.numbers.is_empty()
                    || first.numbers.iter().all(|number| number.value == 0);
                match (is_or, is_nothing) {
                    // `args.batch_size or 32`
                    (true, false) if first.constants.is_empty() => first,
                    _ => self.part(place, right, path),
                }
            }
            "binary_operator" if path.is_empty() => self.arithmetic(place, node),
            "dictionary" => dictionary::in_dictionary(self, place, node, path),
            // `{phase: DataLoader(data[phase], batch_size=4) for phase in phases}`
            "dictionary_comprehension" | "list_comprehension" | "generator_expression" => {
                let body = field(Field::Body);
                let value = body.map(|body| body.field(Field::Value).unwrap_or(body));
                let rest = match path {
                    [Step::Key(_) | Step::Element(_), rest @ ..] => rest,
                    path => path,
                };
                value.map_or(PossibleValues::default(), |value| self.part(place, value, rest))
            }
            "tuple" | "list" | "expression_list" => match path {
                [Step::Element(at), rest @ ..] => match named_children(node).get(*at) {
                    Some(element) => self.part(place, *element, rest),
                    None => PossibleValues::default(),
                },
                // Several loaders: the first with a known batch size.
                [Step::Batch, ..] => {
                    let found = named_children(node)
                        .into_iter()
                        .map(|child| self.part(place, child, path))
                        .find(|found| !found.numbers.is_empty());
                    found.unwrap_or_default()
                }
                _ => PossibleValues::default(),
            },
            "ERROR" => PossibleValues::default(),
            _ => self.doubt(place, "computes the batch size in a way that could not be followed"),
        }
    }

    /// The number at a node; `shown` is the node to quote.
    pub fn number(&self, place: &Place, node: Node<'_>, shown: Node<'_>) -> PossibleValues {
        let module = &self.modules[place.module];
        let Some(value) = literal::folded(module, node) else { return PossibleValues::default() };
        let span = node.byte_range();
        let number = Number::new(module, span, value, with_name(module, shown));
        PossibleValues { numbers: vec![number], ..PossibleValues::default() }
    }

    fn attribute(&self, place: &Place, node: Node<'_>, path: &[Step]) -> PossibleValues {
        let module = &self.modules[place.module];
        let (Some(object), Some(name)) = (node.field(Field::Object), node.field(Field::Attribute))
        else {
            return PossibleValues::default();
        };
        let name = module.text(&name.byte_range()).to_owned();
        // `FLAGS = flags.FLAGS` of absl.
        if let Some(found) = arguments::well_known(self, &name, path) {
            return found;
        }
        // `import a.b`, then `a.b.BATCH`.
        let written: String =
            module.text(&object.byte_range()).chars().filter(|c| !c.is_whitespace()).collect();
        if let Some(target) = self.imported_module(place.module, &written) {
            return self.global(target, &name, path);
        }
        self.member(place, object, Step::Key(name), path)
    }

    fn subscript(&self, place: &Place, node: Node<'_>, path: &[Step]) -> PossibleValues {
        let module = &self.modules[place.module];
        let (Some(value), Some(key)) = (node.field(Field::Value), node.field(Field::Subscript))
        else {
            return PossibleValues::default();
        };
        let step = match Kind::of(&key) {
            Kind::Integer => literal::whole(module.text(&key.byte_range()))
                .and_then(|at| usize::try_from(at).ok())
                .map(Step::Element),
            _ => {
                let found = self.part(place, key, &[]);
                found.constants.into_iter().find_map(|constant| match constant {
                    Constant::Text(text) => Some(Step::Key(text)),
                    _ => None,
                })
            }
        };
        match step {
            Some(step) => self.member(place, value, step, path),
            None => self.part(place, value, path),
        }
    }

    fn arithmetic(&self, place: &Place, node: Node<'_>) -> PossibleValues {
        let module = &self.modules[place.module];
        if literal::folded(module, node).is_some() {
            return self.number(place, node, node);
        }
        let (Some(left), Some(right)) = (node.field(Field::Left), node.field(Field::Right)) else {
            return PossibleValues::default();
        };
        let operator = node.field(Field::Operator).map_or("", |operator| operator.kind());
        let named_batch = |node: Node<'_>| {
            let text = module.text(&node.byte_range()).to_lowercase();
            text.contains("batch") || text.contains("bs")
        };
        let is_right = named_batch(right) && !named_batch(left);
        let (of, by) = if is_right { (right, left) } else { (left, right) };
        let mut found = self.part(place, of, &[]);
        let by_number = literal::folded(module, by).is_some();
        let scales = matches!(operator, "*" | "//" | "/");
        if !(scales && by_number) {
            let text = one_line(module.text(&place.span));
            let refusal = self.refusal(place, format!("computes the batch size: `{text}`"));
            for number in &mut found.numbers {
                number.refusal.get_or_insert(refusal.message.clone());
            }
            if found.numbers.is_empty() {
                return PossibleValues::doubt(refusal);
            }
        }
        found
    }
}

/// Shortens code to one line.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    if line.chars().count() <= 60 {
        return line;
    }
    let short: String = line.chars().take(57).collect();
    format!("{short}…")
}

/// A number with its name: `batch_size=32`, `BATCH_SIZE = 32`, `"batch_size": 32`.
fn with_name(module: &Module, node: Node<'_>) -> String {
    let mut shown = node;
    while let Some(parent) = shown.parent() {
        let names = matches!(
            Kind::of(&parent),
            Kind::KeywordArgument
                | Kind::DefaultParameter
                | Kind::TypedDefaultParameter
                | Kind::Assignment
                | Kind::Pair
        );
        if names || parent.is(Kind::Call) {
            shown = parent;
            break;
        }
        if parent.kind().ends_with("statement") || parent.is(Kind::Block) {
            break;
        }
        shown = parent;
    }
    one_line(module.text(&shown.byte_range()))
}
