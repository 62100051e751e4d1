//! The files that a script imports.

use std::collections::HashMap;
use std::sync::Arc;

use super::Entry;
use super::arena::Arena;
use super::module::Module;
use super::parts::Part;

/// The files of a project.
pub trait Project: Sync {
    /// Returns the text of a file, by its path relative to the project's root with `/` as
    /// separator. Returns `None` if it does not exist or may not be read.
    fn text(&self, path: &str) -> Option<Arc<str>>;
}

impl Project for std::collections::HashMap<String, Arc<str>> {
    fn text(&self, path: &str) -> Option<Arc<str>> {
        self.get(path).cloned()
    }
}

/// The maximum number of files followed. A batch size is rarely more than two imports away.
const MAX_FILES: usize = 96;
/// The maximum total size of the files, in bytes.
const MAX_BYTES: usize = 8 << 20;

/// The modules that the entry of a project imports, the entry first.
#[derive(Debug, Default)]
pub struct Modules {
    pub all: Arena<Module>,
    by_path: HashMap<String, usize>,
    /// Folders in which absolute imports are searched.
    folders: Vec<String>,
}

impl Modules {
    /// Reads the entry and its imports, breadth first.
    pub fn read(project: &dyn Project, entry: &Entry) -> Modules {
        let mut folders = vec![folder_of(&entry.path)];
        for folder in ["", "src"] {
            if !folders.iter().any(|known| known == folder) {
                folders.push(folder.to_owned());
            }
        }
        let mut modules = Modules { folders, ..Modules::default() };
        let mut bytes = 0;
        modules.load(project, &entry.path, &mut bytes);
        let mut at = 0;
        while at < modules.all.len() && modules.all.len() < MAX_FILES {
            let module = &modules.all[at];
            let mut paths = Vec::new();
            for import in &module.imports {
                let dots = ".".repeat(import.level as usize);
                paths.extend(modules.candidates(&module.path, &format!("{dots}{}", import.module)));
                for name in &import.names {
                    let separator = if import.module.is_empty() { "" } else { "." };
                    let dotted = format!("{dots}{}{separator}{name}", import.module);
                    paths.extend(modules.candidates(&module.path, &dotted));
                }
            }
            for path in paths {
                modules.load(project, &path, &mut bytes);
            }
            at += 1;
        }
        modules
    }

    fn load(&mut self, project: &dyn Project, path: &str, bytes: &mut usize) {
        if self.by_path.contains_key(path) || self.all.len() >= MAX_FILES {
            return;
        }
        let Some(module) = Module::read(project, path) else { return };
        *bytes = bytes.saturating_add(module.index.text().len());
        if *bytes > MAX_BYTES {
            return;
        }
        self.by_path.insert(path.to_owned(), self.all.len());
        self.all.push(module);
    }

    /// Whether even the entry is missing.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The module that `dotted` means in the file at `path`, if it belongs to the project.
    pub fn imported(&self, path: &str, dotted: &str) -> Option<usize> {
        self.candidates(path, dotted).iter().find_map(|path| self.by_path.get(path).copied())
    }

    /// The files that a dotted module may be in.
    fn candidates(&self, path: &str, dotted: &str) -> Vec<String> {
        let level = dotted.chars().take_while(|c| *c == '.').count();
        let inside = dotted[level..].replace('.', "/");
        if inside.contains(['\\', ':']) {
            return Vec::new();
        }
        let folders: Vec<String> = match level {
            0 => self.folders.clone(),
            _ => {
                let mut folder = folder_of(path);
                for _ in 1..level.min(32) {
                    folder = folder_of(&folder);
                }
                vec![folder]
            }
        };
        let join = |folder: &str, rest: &str| match (folder, rest) {
            ("", rest) => rest.to_owned(),
            (folder, "") => folder.to_owned(),
            (folder, rest) => format!("{folder}/{rest}"),
        };
        let bases = folders.iter().map(|folder| join(folder, &inside));
        let both = bases.flat_map(|base| {
            let package = join(&base, "__init__.py");
            let module = (!base.is_empty()).then(|| format!("{base}.py"));
            module.into_iter().chain([package])
        });
        both.collect()
    }
}

/// The module that a file belongs to, and the file in it.
pub fn file<'m>(modules: &'m Arena<Module>, path: &str) -> Option<(usize, &'m Part)> {
    let all = modules.iter().enumerate();
    all.flat_map(|(at, module)| module.parts.iter().map(move |part| (at, part)))
        .find(|(_, part)| part.path == path)
}

/// `a/b` for `a/b/c.py`; empty for a file in the root.
pub(crate) fn folder_of(path: &str) -> String {
    path.rsplit_once('/').map(|(folder, _)| folder.to_owned()).unwrap_or_default()
}
