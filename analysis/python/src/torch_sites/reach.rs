//! Training that a program reaches in other files of its project.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

use super::outline::{ProgramOutline, Role};
use crate::syntax::imports::Import;
use crate::syntax::statements::ScopeKind;

/// The files of a project, by what the caller calls them.
pub trait Project {
    /// What names a file.
    type File: Clone + Eq + Hash;
    /// What a file does.
    fn outline(&self, file: &Self::File) -> Option<&ProgramOutline>;
    /// The file of a module, as `importer` imports it: `level` dots, and a dotted name.
    fn module(&self, importer: &Self::File, level: u32, name: &str) -> Option<Self::File>;
}

/// Where a program trains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached<F> {
    /// The file of the training loop.
    pub file: F,
    /// The line of its loop, or of the call that trains.
    pub line: Option<u32>,
    /// Whether the program makes the optimizer or the data loader itself.
    pub sets_up: bool,
}

/// At most so many functions are looked at: a program of a person has fewer.
const MOST_SCOPES: usize = 20_000;
/// Packages that hand on what others define: `from .engine import train` in an `__init__.py`.
const MOST_HANDED_ON: usize = 5;

/// Follows a program's calls through the project's files to code that trains. `function` is where an entry
/// point starts it; without one the text runs from its top.
pub fn reach<P: Project>(
    project: &P,
    start: &P::File,
    function: Option<&str>,
) -> Option<Reached<P::File>> {
    project.outline(start)?;
    let mut search = Search { project, seen: HashSet::new(), waiting: VecDeque::new() };
    match function {
        None => search.visit(start, 0),
        Some(name) => search.visit_defined(start, name, MOST_HANDED_ON),
    }
    let mut trains: Option<Reached<P::File>> = None;
    let mut has: HashSet<Role> = HashSet::new();
    let mut in_loop = false;
    let mut children: HashMap<P::File, HashMap<usize, Vec<usize>>> = HashMap::new();
    while let Some((file, scope)) = search.waiting.pop_front() {
        let Some(outline) = project.outline(&file) else { continue };
        let below = children.entry(file.clone()).or_insert_with(|| outline.children());
        let next: Vec<usize> = outline.run_with(scope, below).collect();
        next.into_iter().for_each(|scope| search.visit(&file, scope));
        for call in outline.calls.iter().filter(|call| call.scope == scope) {
            if let Some(role) = call.role {
                has.insert(role);
                in_loop |= role == Role::Backward && call.in_loop.is_some();
                if matches!(role, Role::Backward | Role::Fit) && trains.is_none() {
                    let line = call.in_loop.unwrap_or(call.line);
                    trains = Some(Reached { file: file.clone(), line: Some(line), sets_up: false });
                }
            }
            match &call.object {
                None => search.call(&file, outline, &call.name),
                Some(object) => search.method(&file, outline, object, &call.name),
            }
            for handed in &call.arguments {
                search.call(&file, outline, handed);
            }
        }
    }
    let sets_up = has.contains(&Role::MakesOptimizer) || has.contains(&Role::MakesLoader);
    // One backward pass without a step is a test of gradients.
    let steps = in_loop || has.contains(&Role::Step) || has.contains(&Role::Fit);
    trains.filter(|_| steps).map(|reached| Reached { sets_up, ..reached })
}

struct Search<'a, P: Project> {
    project: &'a P,
    seen: HashSet<(P::File, usize)>,
    waiting: VecDeque<(P::File, usize)>,
}

impl<P: Project> Search<'_, P> {
    fn visit(&mut self, file: &P::File, scope: usize) {
        if self.seen.len() < MOST_SCOPES && self.seen.insert((file.clone(), scope)) {
            self.waiting.push_back((file.clone(), scope));
        }
    }

    /// A call by a plain name: a function or class of this file, or one that it imports.
    fn call(&mut self, file: &P::File, outline: &ProgramOutline, name: &str) {
        self.visit_named(file, outline, name, |_| true);
        self.visit_imported(file, outline, name, MOST_HANDED_ON);
    }

    /// A call of something's attribute: a module's function, or a method of a class of this file or of one
    /// that it imports.
    fn method(&mut self, file: &P::File, outline: &ProgramOutline, object: &str, name: &str) {
        for import in outline.imports() {
            let is_object = |local: &String| local == object;
            if let Some(at) = import.local_names.iter().position(is_object) {
                let module = match import.names.get(at) {
                    None => import.module.clone(),
                    Some(name) => joined(&import.module, name),
                };
                if let Some(module) = self.project.module(file, import.level, &module) {
                    self.visit_defined(&module, name, MOST_HANDED_ON);
                    return;
                }
            }
        }
        self.visit_named(file, outline, name, |_| true);
        let imported: Vec<P::File> =
            outline.imports().iter().filter_map(|import| self.file_of(file, import)).collect();
        for module in imported {
            let Some(outline) = self.project.outline(&module) else { continue };
            self.visit_methods(&module, outline, name);
            // A package hands on the classes of its modules.
            let handed_on: Vec<P::File> = outline
                .imports()
                .iter()
                .filter_map(|import| self.file_of(&module, import))
                .collect();
            for module in handed_on {
                if let Some(outline) = self.project.outline(&module) {
                    self.visit_methods(&module, outline, name);
                }
            }
        }
    }

    fn visit_methods(&mut self, file: &P::File, outline: &ProgramOutline, name: &str) {
        self.visit_named(file, outline, name, |parent| {
            outline.scopes.get(parent).is_some_and(|scope| scope.kind == ScopeKind::Class)
        });
    }

    fn visit_named(
        &mut self,
        file: &P::File,
        outline: &ProgramOutline,
        name: &str,
        is_within: impl Fn(usize) -> bool,
    ) {
        for (at, scope) in outline.scopes.iter().enumerate().skip(1) {
            if scope.name == name && scope.parent.is_some_and(&is_within) {
                self.visit(file, at);
            }
        }
    }

    /// What a module's name stands for at its top level.
    fn visit_defined(&mut self, file: &P::File, name: &str, handed_on: usize) {
        let Some(outline) = self.project.outline(file) else { return };
        self.visit_named(file, outline, name, |parent| parent == 0);
        self.visit_imported(file, outline, name, handed_on);
    }

    fn visit_imported(
        &mut self,
        file: &P::File,
        outline: &ProgramOutline,
        name: &str,
        handed_on: usize,
    ) {
        let Some(handed_on) = handed_on.checked_sub(1) else { return };
        for import in outline.imports() {
            let own = match import.local_names.iter().position(|local| local == name) {
                Some(at) => import.names.get(at).map(String::as_str),
                // `from engine import *`
                None => import.local_names.is_empty().then_some(name),
            };
            if let Some(own) = own
                && let Some(module) = self.project.module(file, import.level, &import.module)
            {
                self.visit_defined(&module, own, handed_on);
            }
        }
    }

    fn file_of(&self, importer: &P::File, import: &Import) -> Option<P::File> {
        self.project.module(importer, import.level, &import.module)
    }
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}.{name}") }
}
