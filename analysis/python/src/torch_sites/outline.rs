//! What a file does when it is started: its functions, their calls, and its imports.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::libraries::{self, Library};
use super::roles::{KnownVariables, Role, last, makes_optimizer, read, steps, trains};
use crate::syntax::imports::{Import, imports};
use crate::syntax::index::SourceIndex;
use crate::syntax::statements::ScopeKind;

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) role: Option<Role>,
    /// The library whose training it starts.
    pub(super) library: Option<&'static Library>,
    /// The text in front of the name: `self.trainer` in `self.trainer.run()`. Empty if it is too
    /// long.
    pub(super) object: Option<String>,
    /// The last part of the callee.
    pub(super) name: String,
    /// Names that are passed as arguments, as in `spawn(main, …)`.
    pub(super) arguments: Vec<String>,
    pub(super) scope: usize,
    pub(super) line: u32,
    /// The line of the innermost loop around it in the same function.
    pub(super) in_loop: Option<u32>,
}

/// A function, a class, or the file itself.
#[derive(Clone, Debug)]
pub(super) struct NamedScope {
    pub(super) name: String,
    pub(super) kind: ScopeKind,
    pub(super) parent: Option<usize>,
}

/// What a file does when it is started, without its text.
#[derive(Clone, Debug, Default)]
pub struct ProgramOutline {
    pub(super) calls: Vec<Call>,
    /// The first is the file itself.
    pub(super) scopes: Vec<NamedScope>,
    imports: Vec<Import>,
    pub(super) imports_torch: bool,
    imports_test_framework: bool,
    pub(super) main_line: Option<u32>,
    defines_tests: bool,
    runs_at_top_level: bool,
    assigns_call_at_top_level: bool,
    pub(super) provider: bool,
}

/// The maximum number of arguments read per call, and of calls per file.
const MAX_ARGUMENTS: usize = 32;
const MAX_CALLS: usize = 100_000;
/// Calls at the top of a module that only set things up: settings, paths, types.
const SETUP_CALLS: [&str; 12] = [
    "sys.path",
    "os.environ",
    "warnings.",
    "logging.",
    "logger.",
    "random.",
    "np.random",
    "numpy.random",
    "torch.manual_seed",
    "torch.set_",
    "matplotlib.",
    "torch.backends",
];

impl ProgramOutline {
    pub fn of(index: &SourceIndex) -> ProgramOutline {
        let text = index.text();
        let named = index.scopes().iter().map(|scope| NamedScope {
            name: text.get(scope.name.clone()).unwrap_or_default().to_owned(),
            kind: scope.kind,
            parent: scope.parent.map(|parent| parent as usize),
        });
        let mut outline = ProgramOutline {
            scopes: named.collect(),
            imports: imports(index),
            provider: defines_provider(index),
            ..ProgramOutline::default()
        };
        outline.classify_imports();
        outline.gather(index);
        outline.defines_tests = outline.has_uncalled_test();
        outline
    }

    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// Whether its own imports show that it uses PyTorch.
    pub fn imports_torch(&self) -> bool {
        self.imports_torch
    }

    /// Whether it does something when it is started, rather than only define things.
    pub fn runs_something(&self) -> bool {
        (self.main_line.is_some() || self.runs_at_top_level) && !self.is_test()
    }

    /// Whether it runs something, or may: `history = train(model)` does, `logger = get_logger()` does not.
    pub fn may_run_something(&self) -> bool {
        (self.main_line.is_some() || self.runs_at_top_level || self.assigns_call_at_top_level)
            && !self.is_test()
    }

    /// Whether a function for a test runner is defined: `test_…` at the top level, which the file itself does not
    /// call. Scripts call theirs, such as `test_loop(model)`.
    fn has_uncalled_test(&self) -> bool {
        self.scopes.iter().any(|scope| {
            scope.kind == ScopeKind::Function
                && scope.parent == Some(0)
                && scope.name.starts_with("test_")
                && !self.calls.iter().any(|call| call.name == scope.name)
        })
    }

    fn classify_imports(&mut self) {
        for import in &self.imports {
            let package = import.module.split('.').next().unwrap_or_default();
            if import.level > 0 {
                continue;
            }
            self.imports_torch |= libraries::uses_torch(package);
            self.imports_test_framework |= matches!(package, "pytest" | "unittest")
                || import.module.starts_with("torch.testing");
        }
    }

    fn gather(&mut self, index: &SourceIndex) {
        let text = index.text();
        let Some(tree) = index.tree() else { return };
        let mut known = KnownVariables::default();
        // The loops around the cursor: end offset, line, scope.
        let mut loops: Vec<(usize, u32, usize)> = Vec::new();
        let mut cursor = tree.walk();
        loop {
            let node = cursor.node();
            while loops.last().is_some_and(|(end, ..)| *end <= node.start_byte()) {
                loops.pop();
            }
            match Kind::of(&node) {
                Kind::ForStatement | Kind::WhileStatement => {
                    let scope = index.scope_at(node.start_byte());
                    let line = index.lines().line_of(node.start_byte());
                    loops.push((node.end_byte(), line, scope));
                    self.runs_at_top_level |= scope == 0;
                }
                Kind::IfStatement if is_main_guard(node, text) => {
                    self.main_line.get_or_insert(index.lines().line_of(node.start_byte()));
                }
                Kind::DecoratedDefinition => self.calls.extend(call_by_decorator(node, index)),
                Kind::ClassDefinition => self.calls.extend(call_by_base(node, index)),
                Kind::Assignment => {
                    known.assigned(node, text);
                    let value = node.field(Field::Right);
                    self.assigns_call_at_top_level |= value.is_some_and(|it| it.is(Kind::Call))
                        && index.scope_at(node.start_byte()) == 0;
                }
                // Checked here rather than at the call, because a node finds its parent from the
                // root: with 20,000 nested calls that takes a minute.
                Kind::ExpressionStatement => {
                    let is_top_level = index.scope_at(node.start_byte()) == 0;
                    self.runs_at_top_level |= is_top_level && calls_something(node, text);
                }
                Kind::Call if self.calls.len() < MAX_CALLS => {
                    let scope = index.scope_at(node.start_byte());
                    let in_loop = loops.iter().rev().find(|(.., of)| *of == scope);
                    let in_loop = in_loop.map(|(_, line, _)| *line);
                    let line = index.lines().line_of(node.start_byte());
                    let place = (scope, line, in_loop);
                    self.calls.extend(self.read_call(node, text, &known, place));
                }
                _ => {}
            }
            if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return self.drop_dead_calls();
                }
            }
        }
    }

    /// Drops calls without a role whose name this file neither defines nor imports: they lead
    /// nowhere, and the outlines of thousands of files stay in memory.
    fn drop_dead_calls(&mut self) {
        let local = self.imports.iter().flat_map(|import| &import.local_names);
        let imports_all = self.imports.iter().any(|import| import.local_names.is_empty());
        let names: HashSet<&str> =
            local.chain(self.scopes.iter().map(|scope| &scope.name)).map(String::as_str).collect();
        let mut seen = HashSet::new();
        self.calls.retain(|call| {
            let leads = call.role.is_some()
                || call.object.is_some()
                || imports_all
                || std::iter::once(&call.name)
                    .chain(&call.arguments)
                    .any(|name| names.contains(name.as_str()));
            // Of several equal calls, one is enough, with and without a loop around it.
            let key = (call.scope, call.name.clone(), call.object.clone(), call.in_loop);
            let is_new = call.role.is_some() || !call.arguments.is_empty() || seen.insert(key);
            leads && is_new
        });
        self.calls.shrink_to_fit();
    }

    pub(super) fn is_test(&self) -> bool {
        self.imports_test_framework || (self.defines_tests && self.main_line.is_none())
    }

    /// The scopes that run when the file is started.
    pub(super) fn reached(&self) -> HashSet<usize> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, scope) in self.scopes.iter().enumerate().skip(1) {
            by_name.entry(scope.name.as_str()).or_default().push(at);
        }
        let mut calls: HashMap<usize, Vec<&Call>> = HashMap::new();
        for call in &self.calls {
            calls.entry(call.scope).or_default().push(call);
        }
        let children = self.children();
        let mut reached = HashSet::from([0]);
        let mut queue = vec![0];
        let mut names_seen: HashSet<&str> = HashSet::new();
        while let Some(scope) = queue.pop() {
            let mut next: Vec<usize> = Vec::new();
            for call in calls.get(&scope).into_iter().flatten() {
                for name in std::iter::once(&call.name).chain(&call.arguments) {
                    if names_seen.insert(name) {
                        next.extend(by_name.get(name.as_str()).into_iter().flatten());
                    }
                }
            }
            next.extend(self.runs_with(scope, &children));
            queue.extend(next.into_iter().filter(|&scope| reached.insert(scope)));
        }
        reached
    }

    /// The direct children of each scope.
    pub(super) fn children(&self) -> HashMap<usize, Vec<usize>> {
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, scope) in self.scopes.iter().enumerate() {
            if let Some(parent) = scope.parent {
                children.entry(parent).or_default().push(at);
            }
        }
        children
    }

    /// The scopes that run when a scope runs, without a call by name.
    ///
    /// The body of a class runs. So does, usually, what a reached function defines: a closure for
    /// `step`, a nested `train_step`. Methods run when they are called, except the constructor of
    /// an instantiated class.
    pub(super) fn runs_with(
        &self,
        scope: usize,
        children: &HashMap<usize, Vec<usize>>,
    ) -> impl Iterator<Item = usize> {
        let kind = self.scopes.get(scope).map(|scope| scope.kind);
        let children_of_scope = children.get(&scope).cloned().unwrap_or_default();
        children_of_scope.into_iter().filter(move |&child| match kind {
            Some(ScopeKind::Function) => true,
            Some(ScopeKind::Class) => {
                self.scopes.get(child).is_some_and(|scope| scope.name == "__init__")
            }
            _ => false,
        })
    }

    /// The line of the loop that repeats a call: around it in its function, or around a call of
    /// that function, up to four functions up.
    pub(super) fn loop_around(&self, call: &Call, calls: &[&Call]) -> Option<u32> {
        let (mut in_loop, mut scope) = (call.in_loop, call.scope);
        for _ in 0..4 {
            if in_loop.is_some() || scope == 0 {
                return in_loop;
            }
            let name = &self.scopes.get(scope)?.name;
            let is_caller = |caller: &&&Call| {
                let is_argument = caller.arguments.iter().any(|argument| argument == name);
                (caller.name == *name || is_argument) && caller.scope != scope
            };
            let callers = || calls.iter().filter(is_caller);
            let caller = callers().find(|caller| caller.in_loop.is_some()).or(callers().next())?;
            (in_loop, scope) = (caller.in_loop, caller.scope);
        }
        in_loop
    }

    fn read_call(
        &self,
        node: Node<'_>,
        text: &str,
        known: &KnownVariables<'_>,
        (scope, line, in_loop): (usize, u32, Option<u32>),
    ) -> Option<Call> {
        let function = node.field(Field::Function)?;
        let (object, name) = match Kind::of(&function) {
            Kind::Attribute => {
                let name = read(function.field(Field::Attribute)?, text);
                // The object of a call chain may be long, such as `scaler.scale(loss)`; only its
                // end matters.
                (Some(read(function.field(Field::Object)?, text)), name)
            }
            Kind::Identifier => (None, read(function, text)),
            _ => return None,
        };
        let mut arguments = Vec::new();
        if let Some(list) = node.field(Field::Arguments) {
            let mut cursor = list.walk();
            for argument in list.named_children(&mut cursor).take(MAX_ARGUMENTS) {
                let value = match Kind::of(&argument) {
                    Kind::KeywordArgument => argument.field(Field::Value),
                    _ => Some(argument),
                };
                if let Some(value) = value.filter(|value| value.is(Kind::Identifier)) {
                    arguments.push(read(value, text).to_owned());
                }
            }
        }
        let is_optimizer = |name: &str| {
            known.optimizers.contains(name) || last(name).to_lowercase().contains("optim")
        };
        let whole = read(function, text);
        let library = libraries::training_library(name, |package| self.imports_package(package));
        let role = match (object, name) {
            (Some(_), "backward" | "manual_backward") => Some(Role::Backward),
            (Some(object), "step" | "step_and_update_lr") if steps(object, is_optimizer) => {
                Some(Role::Step)
            }
            (Some(object), "fit" | "fit_one_cycle" | "fine_tune" | "train")
                if known.is_trainer(object) =>
            {
                Some(Role::Fit)
            }
            (Some(object), _) if library.is_some() && trains(object, name, node, text) => {
                Some(Role::Fit)
            }
            (None, "LightningCLI" | "pipeline" | "unsloth_train") if library.is_some() => {
                Some(Role::Fit)
            }
            _ if makes_optimizer(whole) => Some(Role::MakesOptimizer),
            (_, "DataLoader") => Some(Role::MakesLoader),
            (_, "ArgumentParser") => Some(Role::ParsesArguments),
            _ if name.to_lowercase().contains("train")
                && arguments.iter().any(|argument| is_optimizer(argument)) =>
            {
                Some(Role::Delegates)
            }
            _ => None,
        };
        let library = library.filter(|_| role == Some(Role::Fit));
        let (object, name) = (object.map(str::to_owned), name.to_owned());
        Some(Call { role, library, object, name, arguments, scope, line, in_loop })
    }

    fn imports_package(&self, package: &str) -> bool {
        let is_it = |import: &Import| {
            import.level == 0
                && import
                    .module
                    .strip_prefix(package)
                    .is_some_and(|it| it.is_empty() || it.starts_with('.'))
        };
        self.imports.iter().any(is_it)
    }
}

/// A function that a library calls because of its decorator: `@hydra.main(…)`, `@app.command()`.
/// The file calls it by another name, or not at all.
fn call_by_decorator(node: Node<'_>, index: &SourceIndex) -> Option<Call> {
    let text = index.text();
    // A scope's byte range includes its decorators.
    let own = index.scopes().get(index.scope_at(node.start_byte()))?;
    let definition = node.field(Field::Definition)?;
    let name = read(definition.field(Field::Name)?, text);
    let mut cursor = node.walk();
    let starts = node.children(&mut cursor).filter(|child| child.is(Kind::Decorator)).any(|it| {
        let decorator = text.get(it.byte_range()).unwrap_or_default();
        let called = decorator.trim_start_matches('@').split('(').next().unwrap_or_default();
        // `@app.cell` is a cell of a marimo notebook.
        matches!(last(called.trim()), "main" | "command" | "cell")
    });
    let line = index.lines().line_of(node.start_byte());
    (starts && own.parent == Some(0)).then(|| implied_call(name, 0, line))
}

/// The call of `run` that a process or a thread makes when it is started.
fn call_by_base(node: Node<'_>, index: &SourceIndex) -> Option<Call> {
    let text = index.text();
    let bases = node.field(Field::Superclasses)?;
    let mut cursor = bases.walk();
    let starts = bases
        .named_children(&mut cursor)
        .any(|base| matches!(last(read(base, text)), "Process" | "Thread"));
    let body = node.field(Field::Body)?;
    let line = index.lines().line_of(node.start_byte());
    starts.then(|| implied_call("run", index.scope_at(body.start_byte()), line))
}

/// A call that is not in the text.
fn implied_call(name: &str, scope: usize, line: u32) -> Call {
    Call {
        role: None,
        library: None,
        object: None,
        name: name.to_owned(),
        arguments: Vec::new(),
        scope,
        line,
        in_loop: None,
    }
}

/// Whether an expression statement is a call that does more than set up.
fn calls_something(statement: Node<'_>, text: &str) -> bool {
    let mut cursor = statement.walk();
    statement.children(&mut cursor).filter(|child| child.is(Kind::Call)).any(|call| {
        let called = call.field(Field::Function).map(|it| read(it, text));
        !called.is_some_and(|called| SETUP_CALLS.iter().any(|it| called.starts_with(it)))
    })
}

fn is_main_guard(node: Node<'_>, text: &str) -> bool {
    let condition = node.field(Field::Condition).map(|condition| read(condition, text));
    condition.is_some_and(|text| text.contains("__name__") && text.contains("__main__"))
}

/// Skyline names the three functions `skyline_…`, DeepView `deepview_…`.
fn defines_provider(index: &SourceIndex) -> bool {
    let defined: HashSet<&str> = index
        .scopes()
        .iter()
        .filter(|scope| scope.kind == ScopeKind::Function && scope.parent == Some(0))
        .filter_map(|scope| index.text().get(scope.name.clone()))
        .collect();
    ["skyline", "deepview"].iter().any(|prefix| {
        ["model_provider", "input_provider", "iteration_provider"]
            .iter()
            .all(|name| defined.contains(format!("{prefix}_{name}").as_str()))
    })
}
