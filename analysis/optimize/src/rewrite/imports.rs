//! The name of torch in a text, and imports that an edit needs.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::edits::Edits;
use super::layout::Layout;
use super::syntax::written;
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;

/// Returns the name of `torch` in a text. Adds an import if there is none.
pub(super) fn torch(edits: &mut Edits<'_>, module: usize, text: &Module) -> String {
    if let Some(name) = name_of(text, "torch") {
        return name;
    }
    add(edits, module, text, "import torch", "torch");
    "torch".to_owned()
}

/// Returns the name of `torch.nn.functional` in a text: `F`, `nn.functional`. Adds an import if
/// there is none of torch.
pub(super) fn functional(edits: &mut Edits<'_>, module: usize, text: &Module) -> String {
    if let Some(name) = alias_of(text, "torch.nn", "functional") {
        return name;
    }
    if let Some(name) = alias_of(text, "torch", "nn") {
        return format!("{name}.functional");
    }
    format!("{}.nn.functional", torch(edits, module, text))
}

/// Returns the name of `package.module` in a text, imported as `import package.module as name` or as
/// `from package import module`.
fn alias_of(text: &Module, package: &str, module: &str) -> Option<String> {
    let dotted = format!("{package}.{module}");
    text.names.iter().find_map(|(here, from, there)| {
        let is_import = there.is_empty() && *from == dotted && !here.contains('.');
        let is_from = from == package && there == module;
        (is_import || is_from).then(|| here.clone())
    })
}

/// Returns the name of `import package` in a text: `th` for `import torch as th`.
fn name_of(text: &Module, package: &str) -> Option<String> {
    let inner = format!("{package}.");
    text.names.iter().find_map(|(here, from, there)| {
        let is_it = there.is_empty() && from == package;
        // `import torch.nn` also binds `torch`.
        let binds = there.is_empty() && here == from && here.starts_with(&inner);
        is_it.then(|| here.clone()).or_else(|| binds.then(|| package.to_owned()))
    })
}

/// Modules of the standard library that training scripts import.
const STANDARD: [&str; 24] = [
    "argparse",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "functools",
    "glob",
    "itertools",
    "json",
    "logging",
    "math",
    "os",
    "pathlib",
    "pickle",
    "random",
    "re",
    "shutil",
    "sys",
    "time",
    "typing",
    "uuid",
    "warnings",
];

/// Returns the name of a module of the standard library in a text. Adds an import if there is none.
pub(super) fn standard(
    edits: &mut Edits<'_>,
    module: usize,
    text: &Module,
    package: &str,
) -> String {
    if let Some(name) = name_of(text, package) {
        return name;
    }
    let line = format!("import {package}");
    if !edits.needs_import(module, &line) {
        return package.to_owned();
    }
    let leading = leading_imports(text);
    let is_standard = |from: &str| STANDARD.contains(&from.split('.').next().unwrap_or(from));
    let plain = |node: &Node<'_>| node.is(Kind::ImportStatement);
    let before = leading
        .iter()
        .rfind(|(node, from)| is_standard(from) && plain(node) && from.as_str() < package);
    let after = leading.iter().find(|(_, from)| is_standard(from));
    if let Some((node, _)) = before {
        edits.after(module, *node, &[line]);
    } else if let Some((node, _)) = after {
        edits.before(module, *node, &[line]);
    } else if let Some((node, _)) = leading.iter().find(|(_, from)| from != "__future__") {
        edits.before(module, *node, &[line]);
        let layout = Layout::of(text);
        if let Some(indentation) = layout.indentation(node.start_byte()) {
            edits.insert(module, node.start_byte() - indentation.len(), layout.line_end);
        }
    } else {
        add(edits, module, text, &line, package);
    }
    package.to_owned()
}

/// Returns the name of an imported object in a text. Adds `from module import name` if it is not
/// imported. Returns `None` if the text uses the name for something else.
pub(super) fn imported(
    edits: &mut Edits<'_>,
    module: usize,
    text: &Module,
    from: &str,
    name: &str,
) -> Option<String> {
    let known = text.names.iter().find(|(_, package, there)| package == from && there == name);
    if let Some((here, ..)) = known {
        return Some(here.clone());
    }
    let is_taken = text.names.iter().any(|(here, ..)| here == name)
        || text.assignments.iter().any(|one| one.target == name)
        || text.functions.iter().any(|one| {
            (one.name == name && one.class.is_none())
                || one.parameters.iter().any(|parameter| parameter.name == name)
        });
    if is_taken {
        return None;
    }
    add(edits, module, text, &format!("from {from} import {name}"), from);
    Some(name.to_owned())
}

/// Adds an import among the imports of its package, sorted by module name.
fn add(edits: &mut Edits<'_>, module: usize, text: &Module, line: &str, dotted: &str) {
    if !edits.needs_import(module, line) {
        return;
    }
    let leading = leading_imports(text);
    let package = dotted.split('.').next().unwrap_or(dotted);
    let is_plain = line.starts_with("import ");
    let same: Vec<&(Node<'_>, String)> =
        leading.iter().filter(|(_, from)| from.split('.').next() == Some(package)).collect();
    // `import …` comes before `from … import …`, each sorted by module name.
    let goes_before = |node: &Node<'_>, from: &str| {
        let other_is_plain = node.is(Kind::ImportStatement);
        (other_is_plain && !is_plain) || (other_is_plain == is_plain && from <= dotted)
    };
    let lines = [line.to_owned()];
    if let Some((node, _)) = same.iter().rfind(|(node, from)| goes_before(node, from)) {
        edits.after(module, *node, &lines);
    } else if let Some((node, _)) = same.first() {
        edits.before(module, *node, &lines);
    } else if let Some((node, _)) = leading.last() {
        edits.after(module, *node, &lines);
    } else {
        let layout = Layout::of(text);
        let at = after_heading(text);
        let rest = text.index.text().get(at..).unwrap_or_default();
        let is_definition =
            ["def ", "class ", "@", "async "].iter().any(|one| rest.starts_with(one));
        let empty = layout.line_end.repeat(if is_definition { 3 } else { 2 });
        edits.insert(module, at, format!("{line}{empty}"));
    }
}

/// Returns the imports at the start of a text, up to its first block, with the imported modules.
pub(super) fn leading_imports(text: &Module) -> Vec<(Node<'_>, String)> {
    let Some(tree) = text.index.tree() else { return Vec::new() };
    let mut found = Vec::new();
    for node in named_children(tree.root_node()) {
        let from = match Kind::of(&node) {
            Kind::ImportStatement => node
                .field(Field::Name)
                .map(|name| written(text, name.field(Field::Name).unwrap_or(name))),
            Kind::ImportFromStatement => {
                node.field(Field::ModuleName).map(|name| written(text, name))
            }
            Kind::ExpressionStatement => None,
            Kind::FutureImportStatement => Some("__future__".to_owned()),
            _ => break,
        };
        found.extend(from.map(|from| (node, from)));
    }
    found
}

/// Returns the offset after the leading comments and the docstring.
pub(super) fn after_heading(text: &Module) -> usize {
    let Some(tree) = text.index.tree() else { return 0 };
    let mut walk = tree.root_node().walk();
    let mut at = 0;
    for node in tree.root_node().named_children(&mut walk).take(64) {
        let is_string = node.is(Kind::ExpressionStatement)
            && node.named_child(0).is_some_and(|one| one.is(Kind::String));
        if !(node.is(Kind::Comment) || is_string) {
            break;
        }
        at = text.index.lines().start_of(text.line(node.end_byte()).saturating_add(1));
    }
    at
}
