//! Finds training that a program reaches in other files of its project.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use super::outline::ProgramOutline;
use super::roles::Role;
use crate::syntax::imports::Import;
use crate::syntax::statements::ScopeKind;

/// The files of a project.
pub trait Project {
    /// Identifies a file.
    type File: Clone + Eq + Hash;
    /// Returns the outline of a file.
    fn outline(&self, file: &Self::File) -> Option<&ProgramOutline>;
    /// Resolves a module that `importer` imports, by the number of leading dots and the dotted
    /// name.
    fn module(&self, importer: &Self::File, level: u32, name: &str) -> Option<Self::File>;
}

/// Where a program trains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached<F> {
    /// The file of the training loop.
    pub file: F,
    /// The line of the loop, or of the call that trains.
    pub line: Option<u32>,
    /// Whether the program creates the optimizer or the data loader itself.
    pub sets_up: bool,
}

/// The maximum number of functions visited. No hand-written program has more.
const MAX_SCOPES: usize = 20_000;
/// The maximum number of re-exports followed: `from .engine import train` in an `__init__.py`.
const MAX_REEXPORTS: usize = 5;

/// Follows the calls of a program through the files of a project to code that trains. `function` is
/// where an entry point starts it; without it, the file runs from its top.
pub fn reach<P: Project>(
    project: &P,
    start: &P::File,
    function: Option<&str>,
) -> Option<Reached<P::File>> {
    project.outline(start)?;
    let mut search = Search {
        project,
        seen: HashSet::new(),
        queue: VecDeque::new(),
        followed: HashMap::new(),
        class_files: HashMap::new(),
    };
    match function {
        None => search.visit(start, 0),
        Some(name) => search.visit_defined(start, name, MAX_REEXPORTS),
    }
    let mut trains: Option<Reached<P::File>> = None;
    let mut has: HashSet<Role> = HashSet::new();
    let mut in_loop = false;
    let mut children: HashMap<P::File, HashMap<usize, Vec<usize>>> = HashMap::new();
    while let Some((file, scope)) = search.queue.pop_front() {
        let Some(outline) = project.outline(&file) else { continue };
        let below = children.entry(file.clone()).or_insert_with(|| outline.children());
        let next: Vec<usize> = outline.runs_with(scope, below).collect();
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
            for argument in &call.arguments {
                search.call(&file, outline, argument);
            }
        }
    }
    let sets_up = has.contains(&Role::MakesOptimizer) || has.contains(&Role::MakesLoader);
    // A backward pass without an optimizer step is a test of gradients.
    let steps = in_loop || has.contains(&Role::Step) || has.contains(&Role::Fit);
    trains.filter(|_| steps).map(|reached| Reached { sets_up, ..reached })
}

struct Search<'a, P: Project> {
    project: &'a P,
    seen: HashSet<(P::File, usize)>,
    queue: VecDeque<(P::File, usize)>,
    /// By file: the names whose calls have been followed. A library calls the same methods
    /// thousands of times.
    followed: HashMap<P::File, FollowedNames>,
    /// By file: the files whose classes it can name.
    class_files: HashMap<P::File, Rc<[P::File]>>,
}

/// The names of the calls in a file that have been followed.
#[derive(Default)]
struct FollowedNames {
    plain: HashSet<String>,
    methods: HashSet<String>,
}

impl<P: Project> Search<'_, P> {
    fn visit(&mut self, file: &P::File, scope: usize) {
        if self.seen.len() < MAX_SCOPES && self.seen.insert((file.clone(), scope)) {
            self.queue.push_back((file.clone(), scope));
        }
    }

    /// Follows a call by a plain name: a function or class of this file, or an imported one.
    fn call(&mut self, file: &P::File, outline: &ProgramOutline, name: &str) {
        let followed = self.followed.entry(file.clone()).or_default();
        if !followed.plain.insert(name.to_owned()) {
            return;
        }
        self.visit_named(file, outline, name, |_| true);
        self.visit_imported(file, outline, name, MAX_REEXPORTS);
    }

    /// Follows a call of an attribute: a function of a module, or a method of a class that is
    /// defined in this file or imported.
    fn method(&mut self, file: &P::File, outline: &ProgramOutline, object: &str, name: &str) {
        for import in outline.imports() {
            let is_object = |local: &String| local == object;
            if let Some(at) = import.local_names.iter().position(is_object) {
                let module = match import.names.get(at) {
                    None => import.module.clone(),
                    Some(name) => joined(&import.module, name),
                };
                if let Some(module) = self.project.module(file, import.level, &module) {
                    self.visit_defined(&module, name, MAX_REEXPORTS);
                    return;
                }
            }
        }
        let followed = self.followed.entry(file.clone()).or_default();
        if !followed.methods.insert(name.to_owned()) {
            return;
        }
        self.visit_named(file, outline, name, |_| true);
        for module in self.class_files(file, outline).iter() {
            if let Some(outline) = self.project.outline(module) {
                self.visit_methods(module, outline, name);
            }
        }
    }

    /// The files that a file imports, each followed by the files that it imports in turn: a package
    /// re-exports the classes of its modules.
    fn class_files(&mut self, file: &P::File, outline: &ProgramOutline) -> Rc<[P::File]> {
        if let Some(known) = self.class_files.get(file) {
            return Rc::clone(known);
        }
        let mut files = Vec::new();
        let mut listed = HashSet::new();
        let mut list = |file: P::File| {
            if listed.insert(file.clone()) {
                files.push(file);
            }
        };
        for module in outline.imports().iter().flat_map(|import| self.files_of(file, import)) {
            list(module.clone());
            let imports = self.project.outline(&module).map(ProgramOutline::imports);
            imports
                .into_iter()
                .flatten()
                .filter_map(|import| self.file_of(&module, import))
                .for_each(&mut list);
        }
        let files: Rc<[P::File]> = files.into();
        self.class_files.insert(file.clone(), Rc::clone(&files));
        files
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

    /// Visits what a name means at the top level of a module.
    fn visit_defined(&mut self, file: &P::File, name: &str, max_reexports: usize) {
        let Some(outline) = self.project.outline(file) else { return };
        self.visit_named(file, outline, name, |parent| parent == 0);
        self.visit_imported(file, outline, name, max_reexports);
    }

    fn visit_imported(
        &mut self,
        file: &P::File,
        outline: &ProgramOutline,
        name: &str,
        max_reexports: usize,
    ) {
        let Some(max_reexports) = max_reexports.checked_sub(1) else { return };
        for import in outline.imports() {
            let own = match import.local_names.iter().position(|local| local == name) {
                Some(at) => import.names.get(at).map(String::as_str),
                // `from engine import *`
                None => import.local_names.is_empty().then_some(name),
            };
            if let Some(own) = own
                && let Some(module) = self.project.module(file, import.level, &import.module)
            {
                self.visit_defined(&module, own, max_reexports);
            }
        }
    }

    /// The files of an import: of its module, and of the modules among its names.
    fn files_of(&self, importer: &P::File, import: &Import) -> Vec<P::File> {
        let submodule = |name: &String| {
            self.project.module(importer, import.level, &joined(&import.module, name))
        };
        let submodules = import.names.iter().filter_map(submodule);
        self.file_of(importer, import).into_iter().chain(submodules).collect()
    }

    fn file_of(&self, importer: &P::File, import: &Import) -> Option<P::File> {
        self.project.module(importer, import.level, &import.module)
    }
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}.{name}") }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;
    use crate::SourceIndex;

    /// Files by module name, and how many modules were resolved.
    struct Modules {
        outlines: BTreeMap<String, ProgramOutline>,
        resolved: Cell<usize>,
    }

    impl Project for Modules {
        type File = String;

        fn outline(&self, file: &String) -> Option<&ProgramOutline> {
            self.outlines.get(file)
        }

        fn module(&self, _: &String, _: u32, name: &str) -> Option<String> {
            self.resolved.set(self.resolved.get() + 1);
            self.outlines.contains_key(name).then(|| name.to_owned())
        }
    }

    /// Follows `main`, and returns where it trains and how many modules were resolved.
    fn follow(files: &[(&str, &str)]) -> (Option<Reached<String>>, usize) {
        let outline = |text: &str| ProgramOutline::of(&SourceIndex::new(text));
        let outlines =
            files.iter().map(|(name, text)| ((*name).to_owned(), outline(text))).collect();
        let modules = Modules { outlines, resolved: Cell::new(0) };
        let reached = reach(&modules, &"main".to_owned(), None);
        (reached, modules.resolved.get())
    }

    #[test]
    fn a_repeated_method_call_is_followed_once() {
        let package = "from engine import Engine\n";
        let engine = "
import torch
class Engine:
    def run(self):
        for x in self.data:
            self.model(x).backward()
            self.optimizer.step()
";
        let resolved_with = |calls: usize| {
            let main =
                format!("from package import Engine\ne = Engine()\n{}", "e.run()\n".repeat(calls));
            let (reached, resolved) =
                follow(&[("main", &main), ("package", package), ("engine", engine)]);
            let reached = reached.expect("the loop");
            assert_eq!((reached.file.as_str(), reached.line), ("engine", Some(5)));
            resolved
        };
        assert_eq!(resolved_with(100), resolved_with(1));
    }
}
