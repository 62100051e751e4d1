//! [`Edits`]: changes of texts in their existing code style.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeMap;
use std::ops::Range;

use tree_sitter::Node;

use super::layout::Layout;
use super::program::Program;
use super::{EditKind, FileEdits, Refusal, Rewrite};
use ridgeline_python::SourceIndex;
use ridgeline_python::semantics::arena::Arena;
use ridgeline_python::semantics::module::Module;

/// A set of related changes.
pub struct Edits<'a> {
    modules: &'a Arena<Module>,
    by_module: BTreeMap<usize, Vec<(Range<usize>, String)>>,
    notes: Vec<String>,
    /// Added imports: module and line.
    imports: Vec<(usize, String)>,
}

impl<'a> Edits<'a> {
    pub fn new(program: &Program<'a>) -> Edits<'a> {
        Edits {
            modules: program.modules(),
            by_module: BTreeMap::new(),
            notes: Vec::new(),
            imports: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_module.is_empty()
    }

    /// Records an import. Returns whether it has to be added, which is at the first request.
    pub fn needs_import(&mut self, module: usize, line: &str) -> bool {
        let import = (module, line.to_owned());
        let is_new = !self.imports.contains(&import);
        self.imports.push(import);
        is_new
    }

    /// Adds a note for the user.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn replace(&mut self, module: usize, range: Range<usize>, text: impl Into<String>) {
        let edit = (range, text.into());
        let edits = self.by_module.entry(module).or_default();
        if !edits.contains(&edit) {
            edits.push(edit);
        }
    }

    pub fn insert(&mut self, module: usize, at: usize, text: impl Into<String>) {
        self.by_module.entry(module).or_default().push((at..at, text.into()));
    }

    /// Inserts statements before a statement, each on its own line if that one has its own line.
    pub fn before(&mut self, module: usize, statement: Node<'_>, lines: &[String]) {
        let text = &self.modules[module];
        let layout = Layout::of(text);
        let start = statement.start_byte();
        match layout.indentation(start) {
            Some(indentation) => {
                let indentation = indentation.to_owned();
                let at = start - indentation.len();
                let new: Vec<String> = lines
                    .iter()
                    .map(|line| format!("{indentation}{line}{}", layout.line_end))
                    .collect();
                self.insert(module, at, new.concat());
            }
            None => self.insert(module, start, format!("{}; ", lines.join("; "))),
        }
    }

    /// Inserts statements after a statement, each on its own line if that one has its own line.
    pub fn after(&mut self, module: usize, statement: Node<'_>, lines: &[String]) {
        let text = &self.modules[module];
        let layout = Layout::of(text);
        let end = statement.end_byte();
        let own_line = layout.indentation(statement.start_byte()).filter(|_| layout.ends_line(end));
        match own_line {
            Some(indentation) => {
                let indentation = indentation.to_owned();
                let new: Vec<String> = lines
                    .iter()
                    .map(|line| format!("{}{indentation}{line}", layout.line_end))
                    .collect();
                self.insert(module, layout.line_end_at(end), new.concat());
            }
            None => self.insert(module, end, format!("; {}", lines.join("; "))),
        }
    }

    /// Wraps consecutive statements in a `with` block.
    ///
    /// # Errors
    /// Fails if they share a line with other statements.
    pub fn wrap(
        &mut self,
        program: &Program<'_>,
        module: usize,
        statements: Range<usize>,
        header: &str,
    ) -> Result<(), Refusal> {
        let text = &self.modules[module];
        let layout = Layout::of(text);
        let Some(indentation) =
            layout.indentation(statements.start).filter(|_| layout.ends_line(statements.end))
        else {
            let why = "has several statements on one line: put each on its own line";
            return Err(program.refuse(module, statements.start, why));
        };
        let are_in_one_file = text.part_at(statements.start) == text.part_at(statements.end);
        if !are_in_one_file {
            let why = "begins a block over two cells: put its statements in one cell";
            return Err(program.refuse(module, statements.start, why));
        }
        let first = statements.start - indentation.len();
        let opening = format!("{indentation}{header}{}", layout.line_end);
        self.insert(module, first, opening);
        let unit = layout.unit();
        let strings = multiline_strings(text, &statements);
        for line in text.line(first)..=text.line(statements.end.saturating_sub(1)) {
            let start = text.index.lines().start_of(line);
            let is_blank = text.index.lines().trimmed(text.index.text(), line).is_empty();
            // Do not indent the contents of a string.
            if !is_blank && !strings.iter().any(|string| string.contains(&start)) {
                self.insert(module, start, unit.clone());
            }
        }
        Ok(())
    }

    /// Appends arguments to a call.
    ///
    /// # Errors
    /// Fails if the call's arguments are not an argument list.
    pub fn add_arguments(
        &mut self,
        program: &Program<'_>,
        module: usize,
        call: Node<'_>,
        arguments: &[&str],
    ) -> Result<(), Refusal> {
        let list = call.field(Field::Arguments);
        let Some(list) = list.filter(|list| list.is(Kind::ArgumentList)) else {
            let why = "ends with an argument that no other argument can follow";
            return Err(program.refuse(module, call.start_byte(), why));
        };
        self.add_to_list(module, list, arguments);
        Ok(())
    }

    /// Appends elements to a bracketed list.
    pub fn add_to_list(&mut self, module: usize, list: Node<'_>, elements: &[&str]) {
        let text = &self.modules[module];
        let layout = Layout::of(text);
        let mut walk = list.walk();
        let children: Vec<Node<'_>> = list.children(&mut walk).take(4096).collect();
        let last = children.iter().rfind(|one| one.is_named() && !one.is(Kind::Comment));
        let Some(last) = last else {
            return self.insert(module, list.start_byte() + 1, elements.join(", "));
        };
        let together = elements.join(", ");
        let comma =
            children.iter().rfind(|one| one.kind() == "," && one.start_byte() >= last.end_byte());
        let end = comma.map_or(last.end_byte(), |comma| comma.end_byte());
        let closing = list.end_byte().saturating_sub(1);
        let on_own_line = layout.indentation(last.start_byte());
        let is_long = layout.width(last.start_byte()) + together.len() + 2 > layout.max_width();
        let named = children.iter().filter(|one| one.is_named()).count();
        let has_comment = children.iter().any(|one| one.is(Kind::Comment));
        if is_long && named > 1 && !has_comment && text.line(last.start_byte()) == text.line(end) {
            return self.one_per_line(module, list, &children, elements);
        }
        match on_own_line.filter(|_| text.line(closing) > text.line(end)) {
            Some(indentation) => {
                if comma.is_none() {
                    self.insert(module, last.end_byte(), ",");
                }
                let trailing = if comma.is_some() { "," } else { "" };
                let between = format!(",{}{indentation}", layout.line_end);
                let new = elements.join(&between);
                let new = format!("{}{indentation}{new}{trailing}", layout.line_end);
                self.insert(module, layout.line_end_at(end), new);
            }
            None if comma.is_some() => self.insert(module, end, format!(" {together},")),
            None => self.insert(module, end, format!(", {together}")),
        }
    }

    /// Puts each element of a list on its own line, and appends more elements.
    fn one_per_line(
        &mut self,
        module: usize,
        list: Node<'_>,
        children: &[Node<'_>],
        more: &[&str],
    ) {
        let text = &self.modules[module];
        let layout = Layout::of(text);
        let outer = layout.indentation_of_line(list.start_byte()).to_owned();
        let inner = format!("{outer}{}", layout.unit());
        let new_line = format!("{}{inner}", layout.line_end);
        let elements: Vec<&Node<'_>> = children.iter().filter(|one| one.is_named()).collect();
        let mut before = list.start_byte() + 1;
        for element in &elements {
            let gap = before..element.start_byte();
            let separator = if gap.start == list.start_byte() + 1 { "" } else { "," };
            self.replace(module, gap, format!("{separator}{new_line}"));
            before = element.end_byte();
        }
        let more: String = more.iter().map(|one| format!("{new_line}{one},")).collect();
        let end = list.end_byte().saturating_sub(1);
        self.replace(module, before..end, format!(",{more}{}{outer}", layout.line_end));
    }

    /// Completes the edit.
    ///
    /// # Errors
    /// Fails if two changes overlap, or if the result would not be valid Python.
    pub fn finish(self, kind: EditKind) -> Result<Rewrite, Refusal> {
        let mut files = Vec::new();
        for (module, mut edits) in self.by_module {
            let text = &self.modules[module];
            if text.index.tree().is_none_or(|tree| tree.root_node().has_error()) {
                let why = format!("{} has a syntax error or has not been read yet", text.path);
                return Err(Refusal::NotUnderstood(why));
            }
            // Insertions at the same offset stay in the order of the requests.
            edits.sort_by_key(|(range, _)| (range.start, range.end));
            let mut merged: Vec<(Range<usize>, String)> = Vec::new();
            for (range, new) in edits {
                match merged.last_mut() {
                    Some((before, text))
                        if before.start == range.start && before.end == range.start =>
                    {
                        *before = before.start..range.end;
                        text.push_str(&new);
                    }
                    Some((before, _)) if range.start < before.end => {
                        let why = format!("two edits of {} overlap", text.path);
                        return Err(Refusal::NotUnderstood(why));
                    }
                    _ => merged.push((range, new)),
                }
            }
            let whole = FileEdits { path: text.path.clone(), edits: merged };
            let after = SourceIndex::new(whole.applied(text.index.text()));
            if after.tree().is_none_or(|tree| tree.root_node().has_error()) {
                let why = format!("the edit of {} would not be valid Python", text.path);
                return Err(Refusal::NotUnderstood(why));
            }
            files.extend(by_file(text, whole.edits)?);
        }
        Ok(Rewrite { files, title: kind.title(), kind, notes: self.notes })
    }
}

/// Divides the edits of a module by its files.
///
/// # Errors
/// Fails if an edit is in two cells of a notebook.
fn by_file(module: &Module, edits: Vec<(Range<usize>, String)>) -> Result<Vec<FileEdits>, Refusal> {
    let mut files: Vec<FileEdits> = Vec::new();
    for (range, new) in edits {
        let part = module.part_at(range.start);
        // The line end after a cell is not in the cell.
        let part = part.filter(|part| range.end <= part.span.end + 1).ok_or_else(|| {
            let at = module.described(range.start);
            Refusal::NotUnderstood(format!("the edit at {at} would be in two cells"))
        })?;
        let start = part.span.start;
        let edit = (range.start - start..range.end.min(part.span.end) - start, new);
        match files.last_mut().filter(|file| file.path == part.path) {
            Some(file) => file.edits.push(edit),
            None => files.push(FileEdits { path: part.path.clone(), edits: vec![edit] }),
        }
    }
    Ok(files)
}

/// Returns the ranges of multi-line strings in a range. Lines that start in them are inside a
/// string.
fn multiline_strings(text: &Module, range: &Range<usize>) -> Vec<Range<usize>> {
    let Some(tree) = text.index.tree() else { return Vec::new() };
    let mut found = Vec::new();
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let is_string = node.is(Kind::String);
        if is_string && node.start_position().row < node.end_position().row {
            found.push(node.start_byte() + 1..node.end_byte());
        }
        let meets = node.start_byte() < range.end && range.start < node.end_byte();
        if !is_string && meets && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return found;
            }
        }
    }
}
