//! [`Program`]: the source texts of a program, and the parts of their code that run.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::Refusal;
use ridgeline_python::semantics::arena::Arena;
use ridgeline_python::semantics::call_sites::Arguments;
use ridgeline_python::semantics::module::{Call, Module, last_name};
use ridgeline_python::semantics::project::Modules;
use ridgeline_python::semantics::trace::{Place, Tracer};
use ridgeline_python::semantics::{Entry, Project};

/// A function of a module, or the module's top level.
pub type Scope = (usize, Option<usize>);

/// The source texts of a program and the code reached from its entry.
pub struct Program<'a> {
    pub tracer: Tracer<'a>,
    reached: HashSet<Scope>,
}

impl<'a> Program<'a> {
    pub fn new(files: &'a Modules, project: &'a dyn Project, entry: &'a Entry) -> Program<'a> {
        let tracer = Tracer::new(files, project, entry);
        let reached = reached(&tracer);
        Program { tracer, reached }
    }

    /// Returns the source texts, entry first.
    pub fn modules(&self) -> &'a Arena<Module> {
        self.tracer.modules
    }

    pub fn module(&self, at: usize) -> &'a Module {
        &self.tracer.modules[at]
    }

    /// Whether this code runs, judged by names.
    pub fn is_reached(&self, scope: Scope) -> bool {
        self.reached.contains(&scope)
    }

    /// Returns the calls in code that runs, with their modules.
    pub fn calls(&self) -> impl Iterator<Item = (usize, &'a Call)> {
        let modules = self.modules().iter().enumerate();
        let all = modules.flat_map(|(at, text)| text.calls.iter().map(move |call| (at, call)));
        all.filter(|(at, call)| self.is_reached((*at, call.function)))
    }

    /// Returns the fully qualified name of a callee: `torch.optim.Adam` for `optim.Adam` after
    /// `from torch import optim`. Names that are not imported stay as written.
    pub fn absolute(&self, module: usize, callee: &str) -> String {
        let text = self.module(module);
        let (first, rest) = callee.split_once('.').unwrap_or((callee, ""));
        let named = text.names.iter().rev().find(|(here, ..)| here == first);
        let Some((_, from, there)) = named else { return callee.to_owned() };
        let mut qualified = from.clone();
        for part in [there.as_str(), rest] {
            if !part.is_empty() {
                if !qualified.ends_with('.') {
                    qualified.push('.');
                }
                qualified.push_str(part);
            }
        }
        qualified
    }

    /// Returns the fully qualified name of a call's callee.
    pub fn called(&self, module: usize, call: &Call) -> String {
        self.absolute(module, &call.callee)
    }

    pub fn node(&self, module: usize, call: &Call) -> Option<Node<'a>> {
        self.module(module).node(&call.span).filter(|node| node.is(Kind::Call))
    }

    pub fn arguments(&self, module: usize, call: Node<'_>) -> Option<Arguments<'a>> {
        Arguments::of(&self.tracer, &Place { module, span: call.byte_range() })
    }

    /// Formats a source position: `train.py:12`.
    pub fn at(&self, module: usize, offset: usize) -> String {
        self.module(module).described(offset)
    }

    /// Creates a refusal at a source position: `train.py:12 is …`.
    pub fn refuse(&self, module: usize, offset: usize, what: &str) -> Refusal {
        Refusal::NotUnderstood(format!("{} {what}", self.at(module, offset)))
    }

    /// Returns the class of the method that a function is or is defined in.
    pub fn class_of(&self, (module, function): Scope) -> Option<usize> {
        let functions = &self.module(module).functions;
        let mut function = function;
        while let Some(at) = function {
            let one = functions.lookup(at)?;
            if one.class.is_some() {
                return one.class;
            }
            function = one.outer;
        }
        None
    }

    /// Whether a variable is visible in a scope: `device`, `self.device`. It may be assigned, a
    /// parameter, or imported.
    pub fn is_visible(&self, (module, function): Scope, name: &str) -> bool {
        let text = self.module(module);
        let root = name.split(['.', '[']).next().unwrap_or(name);
        let mut at = function;
        while let Some(index) = at {
            let Some(one) = text.functions.lookup(index) else { return false };
            let own = |wanted: &str| {
                text.assignments
                    .iter()
                    .any(|found| found.function == Some(index) && found.target == wanted)
            };
            if one.parameters.iter().any(|parameter| parameter.name == root) {
                return root != "self" || self.sets_attribute((module, function), name);
            }
            if own(root) {
                return true;
            }
            at = one.outer;
        }
        let global = text
            .assignments
            .iter()
            .any(|found| found.function.is_none() && found.class.is_none() && found.target == root);
        global || text.names.iter().any(|(here, ..)| here == root)
    }

    /// Whether the class of a method assigns `self.x`.
    fn sets_attribute(&self, scope: Scope, name: &str) -> bool {
        let text = self.module(scope.0);
        let Some(class) = self.class_of(scope) else { return false };
        let first = name.split('.').take(2).collect::<Vec<_>>().join(".");
        text.assignments.iter().any(|found| {
            found.target == first && self.class_of((scope.0, found.function)) == Some(class)
        })
    }
}

/// Returns the code that runs when the entry is started, by following names from calls to
/// functions. The result may be too large if two functions share a name.
fn reached(tracer: &Tracer<'_>) -> HashSet<Scope> {
    let mut by_name: HashMap<&str, Vec<Scope>> = HashMap::new();
    let mut calls: HashMap<Scope, Vec<&Call>> = HashMap::new();
    let mut inner: HashMap<Scope, Vec<Scope>> = HashMap::new();
    for (module, text) in tracer.modules.iter().enumerate() {
        for (at, function) in text.functions.iter().enumerate() {
            by_name.entry(&function.name).or_default().push((module, Some(at)));
            if function.outer.is_some() {
                inner.entry((module, function.outer)).or_default().push((module, Some(at)));
            }
            // Methods that run implicitly.
            let implicit = ["__init__", "__call__", "__iter__", "__next__", "__getitem__"];
            let implicit = implicit.contains(&function.name.as_str());
            if let (true, Some(class)) = (implicit || function.name == "forward", function.class) {
                let name = text.classes[class].name.as_str();
                by_name.entry(name).or_default().push((module, Some(at)));
            }
        }
        for call in &text.calls {
            calls.entry((module, call.function)).or_default().push(call);
        }
    }
    let mut waiting: Vec<Scope> = (0..tracer.modules.len()).map(|module| (module, None)).collect();
    if tracer.entry.provider {
        let functions = tracer.modules[0].functions.iter().enumerate();
        let is_provider =
            |name: &str| name.starts_with("skyline_") || name.starts_with("deepview_");
        waiting.extend(
            functions.filter(|(_, one)| is_provider(&one.name)).map(|(at, _)| (0, Some(at))),
        );
    }
    let mut found: HashSet<Scope> = waiting.iter().copied().collect();
    let mut seen: HashSet<String> = HashSet::new();
    while let Some(scope) = waiting.pop() {
        let mut next: Vec<Scope> = inner.get(&scope).cloned().unwrap_or_default();
        for call in calls.get(&scope).into_iter().flatten() {
            let passed = passed_functions(&tracer.modules[scope.0], call);
            for name in std::iter::once(call.name().to_owned()).chain(passed) {
                if seen.insert(name.clone()) {
                    next.extend(by_name.get(name.as_str()).into_iter().flatten());
                }
            }
        }
        waiting.extend(next.into_iter().filter(|scope| found.insert(*scope)));
    }
    found
}

/// Returns functions passed as arguments of a call: `spawn(main, …)`, `Thread(target=self.run)`.
fn passed_functions(text: &Module, call: &Call) -> Vec<String> {
    let Some(list) = text.node(&call.span).and_then(|node| node.field(Field::Arguments)) else {
        return Vec::new();
    };
    let mut walk = list.walk();
    let arguments: Vec<Node<'_>> = list.named_children(&mut walk).take(32).collect();
    let values = arguments.into_iter().filter_map(|argument| match Kind::of(&argument) {
        Kind::KeywordArgument => argument.field(Field::Value),
        _ => Some(argument),
    });
    let names =
        values.filter(|value| matches!(Kind::of(value), Kind::Identifier | Kind::Attribute));
    names.map(|name| last_name(text.text(&name.byte_range())).to_owned()).collect()
}
