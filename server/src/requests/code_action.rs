//! `textDocument/codeAction`: the actions of the training loop's lenses, for editors without
//! lenses, and the user's consent, for editors without questions and commands (Kate 22.12).

use ridgeline_analysis::present::lenses::{LensOptions, lenses};
use serde_json::json;
use tower_lsp::ls_types::{
    CodeActionContext, CodeActionKind, CodeActionOrCommand, CodeActionTriggerKind, Command, Range,
};

use super::apply::{self, EditContext};
use super::{batch_size, quick_fix};
use crate::batch::BatchView;
use crate::lsp::ext::command;
use crate::view::View;

/// The data for edits of a document.
#[derive(Clone, Debug, Default)]
pub(super) struct Edited {
    /// The batch-size sweep.
    pub batch: Option<BatchView>,
    /// The document's program.
    pub edit_context: Option<EditContext>,
}

/// The actions for a range: the lens actions at the training loop; everywhere, the consent that a
/// run is waiting for; and edits of the batch size and of optimizations, if they change something.
///
/// If the editor requests actions automatically, only quick fixes of findings in the range are
/// offered, because a light bulb on every line would be noise. Requests for other kinds of actions
/// get none, so an on-save setting in the editor never grants consent.
pub(super) fn code_actions(
    view: &View,
    range: Range,
    context: &CodeActionContext,
    consent_is_wanted: bool,
    edited: &Edited,
) -> Option<Vec<CodeActionOrCommand>> {
    let kinds = context.only.as_ref().filter(|kinds| !kinds.is_empty());
    let wants = |ours: &[CodeActionKind]| {
        kinds.is_none_or(|kinds| kinds.iter().any(|kind| ours.contains(kind)))
    };
    let fixes = match wants(&[CodeActionKind::QUICKFIX]) {
        true => quick_fix::actions(view, edited.edit_context.as_ref(), range, &context.diagnostics),
        false => Vec::new(),
    };
    if context.trigger_kind == Some(CodeActionTriggerKind::AUTOMATIC) {
        return (!fixes.is_empty()).then_some(fixes);
    }
    let edits = || -> Vec<CodeActionOrCommand> {
        let batch = edited.batch.iter().flat_map(|batch| batch_size::actions(view, batch, range));
        let edit_context = edited.edit_context.iter();
        batch
            .chain(edit_context.flat_map(|edit_context| apply::actions(view, edit_context, range)))
            .collect()
    };
    if kinds.is_some() {
        // A request for all refactorings includes rewrites.
        let rewrites = match wants(&[CodeActionKind::REFACTOR, CodeActionKind::REFACTOR_REWRITE]) {
            true => Some(edits()),
            false => None,
        };
        let is_any = rewrites.is_some() || !fixes.is_empty();
        return is_any.then(|| fixes.into_iter().chain(rewrites.unwrap_or_default()).collect());
    }
    let mut found = Vec::new();
    if consent_is_wanted {
        found.push((command::TRUST, "Ridgeline: trust this workspace"));
    }
    let options = LensOptions {
        memory: false,
        scopes: false,
        headline: false,
        profile: true,
        panel: true,
        one_per_line: false,
        ..LensOptions::default()
    };
    for lens in lenses(view.costs(), &view.document.index, || view.training(), &options) {
        let line = lens.line.saturating_sub(1);
        if !(range.start.line..=range.end.line).contains(&line) {
            continue;
        }
        found.extend(match lens.command {
            Some(command::PROFILE) => Some((command::PROFILE, "Ridgeline: profile now")),
            Some(command::OPEN_PANEL) => Some((command::OPEN_PANEL, "Ridgeline: open panel")),
            _ => None,
        });
        let is_last = lens.command == Some(command::OPEN_PANEL);
        let on_gpu = view
            .costs()
            .is_some_and(|(profile, _)| profile.device.kind != "cpu" && profile.estimate.is_none());
        if is_last && !on_gpu {
            found.push((command::SELECT_TARGET_GPU, "Ridgeline: select target GPU…"));
        }
    }
    let argument = json!({"uri": view.document.uri});
    let commands = found.into_iter().map(|(name, title)| {
        let arguments = Some(vec![argument.clone()]);
        CodeActionOrCommand::Command(Command::new(title.to_owned(), name.to_owned(), arguments))
    });
    Some(fixes.into_iter().chain(commands).chain(edits()).collect())
}
