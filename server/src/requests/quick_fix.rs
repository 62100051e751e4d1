//! Quick fixes of findings: the edit that fixes one, and the comment that silences it.

use std::collections::HashMap;

use ridgeline_analysis::diagnose::suppression;
use tower_lsp::ls_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, Diagnostic, DocumentChanges, NumberOrString,
    OneOf, OptionalVersionedTextDocumentIdentifier, Range, TextDocumentEdit, TextEdit, Uri,
    WorkspaceEdit,
};

use super::apply::{EditContext, RequestedEdit, named};
use super::batch_size::Edits;
use super::diagnostic::diagnostic;
use crate::findings::PlacedFinding;
use crate::lsp::position::to_range;
use crate::view::View;

/// The maximum number of findings at one place that get fixes.
const MAX_FINDINGS: usize = 8;

/// The quick fixes of the findings whose statements overlap a range. `given` are the editor's
/// diagnostics there.
pub(super) fn actions(
    view: &View,
    edit_context: Option<&EditContext>,
    range: Range,
    given: &[Diagnostic],
) -> Vec<CodeActionOrCommand> {
    let found = view.findings();
    let touches = |placed: &&PlacedFinding<'_>| {
        let (first, last) = placed.statement;
        range.start.line < last && first <= range.end.line.saturating_add(1)
    };
    let here: Vec<&PlacedFinding<'_>> = found.iter().filter(touches).take(MAX_FINDINGS).collect();
    if here.is_empty() {
        return Vec::new();
    }
    let mut actions = fixes(view, edit_context, &here, given);
    actions.extend(here.iter().filter_map(|placed| silencing(view, placed, given)));
    actions
}

/// The edits that fix findings, without those refused in the current text.
fn fixes(
    view: &View,
    edit_context: Option<&EditContext>,
    here: &[&PlacedFinding<'_>],
    given: &[Diagnostic],
) -> Vec<CodeActionOrCommand> {
    let Some(edit_context) = edit_context else { return Vec::new() };
    // A module does not know its entry point, but the findings from its source text do.
    let entry = here.iter().find_map(|placed| placed.set.entry.as_ref());
    let fixable = here.iter().filter(|placed| {
        let own = placed.set.entry.as_ref();
        edit_context.is_about(&placed.set.root) && (own.is_none() || own == entry)
    });
    let (placed, requested): (Vec<&PlacedFinding<'_>>, Vec<RequestedEdit>) = fixable
        .filter_map(|placed| {
            let at = &placed.finding.at;
            Some((*placed, (placed.finding.fix?, vec![(at.path.clone(), placed.line)])))
        })
        .unzip();
    if requested.is_empty() {
        return Vec::new();
    }
    let edits = Edits { encoding: view.encoding, versioned: view.client.versioned_edits };
    let Ok(prepared) = edit_context.fix_findings(&requested, entry, edits) else {
        return Vec::new();
    };
    let prepared = placed.into_iter().zip(prepared).filter_map(|(placed, prepared)| {
        let (edit, rewrite) = prepared.ok()?;
        Some(CodeActionOrCommand::CodeAction(CodeAction {
            title: named(rewrite.title),
            kind: Some(CodeActionKind::QUICKFIX),
            diagnostics: Some(vec![matching_diagnostic(view, placed, given)]),
            edit: Some(edit),
            is_preferred: Some(true),
            ..CodeAction::default()
        }))
    });
    prepared.collect()
}

/// The comment that silences a finding at its line.
fn silencing(
    view: &View,
    placed: &PlacedFinding<'_>,
    given: &[Diagnostic],
) -> Option<CodeActionOrCommand> {
    let index = &view.document.index;
    let rule = placed.finding.rule;
    let (first, last) = placed.statement;
    let lines = [placed.line, last, first];
    let (at, new) =
        lines.into_iter().find_map(|line| suppression::suppression_edit(index, rule, line))?;
    let range = to_range(index.text(), index.lines(), view.encoding, at..at);
    let text_edit = TextEdit::new(range, new);
    let uri: Uri = view.document.uri.parse().ok()?;
    let edit = match view.client.versioned_edits {
        true => WorkspaceEdit {
            document_changes: Some(DocumentChanges::Edits(vec![TextDocumentEdit {
                text_document: OptionalVersionedTextDocumentIdentifier {
                    uri,
                    version: Some(view.document.version),
                },
                edits: vec![OneOf::Left(text_edit)],
            }])),
            ..WorkspaceEdit::default()
        },
        false => WorkspaceEdit {
            changes: Some(HashMap::from([(uri, vec![text_edit])])),
            ..WorkspaceEdit::default()
        },
    };
    Some(CodeActionOrCommand::CodeAction(CodeAction {
        title: format!("Ridgeline: ignore `{rule}` here"),
        kind: Some(CodeActionKind::QUICKFIX),
        diagnostics: Some(vec![matching_diagnostic(view, placed, given)]),
        edit: Some(edit),
        ..CodeAction::default()
    }))
}

/// The diagnostic of a finding: the editor's own if it was sent along, because editors compare
/// them.
fn matching_diagnostic(
    view: &View,
    placed: &PlacedFinding<'_>,
    given: &[Diagnostic],
) -> Diagnostic {
    let own = diagnostic(placed, &view.document.index, view.encoding, Vec::new());
    let is_it = |one: &&Diagnostic| {
        let same_code = one.code == Some(NumberOrString::String(placed.finding.rule.to_owned()));
        same_code && one.source == own.source && one.range.start.line == own.range.start.line
    };
    given.iter().find(is_it).cloned().unwrap_or(own)
}
