//! A finding, first from the text only, then measured, and its quick fix: the same in every terminal
//! editor.

use crate::editors::editor::{Editor, in_terminal};
use crate::editors::journey::rate;
use crate::editors::terminal::{Screen, Terminal};

/// An editor that shows findings at the end of their lines and applies edits.
pub(super) trait FixesFindings: Editor {
    /// Applies the code action with this title at the cursor's line.
    fn quick_fix(&self, terminal: &Terminal, title: &str) {
        self.quick_fix_among(terminal, title, title);
    }
    /// The same, once the list shows another action, too.
    fn quick_fix_among(&self, terminal: &Terminal, title: &str, other: &str);
}

pub(super) const PROJECT: &str = "demo-projects/planted/anomaly-detection/faulty";
pub(super) const FAULT: &str = "set_detect_anomaly(True)";
pub(super) const FOUND: &str = "Anomaly detection is enabled";
pub(super) const FIX: &str = "Ridgeline: disable anomaly detection";
pub(super) const STEP: &str = "optimizer.step()";

/// Opens a program with a problem, sees the finding without a run, allows a run and sees the cost,
/// applies the fix, and sees that the finding is gone after the next run.
pub(super) fn fix_finding(editor: &dyn FixesFindings) {
    in_terminal(editor, PROJECT, |terminal, _| session(editor, terminal));
}

fn session(editor: &dyn FixesFindings, terminal: &Terminal) {
    terminal.wait_for(STEP);
    editor.begin(terminal);
    let is_told = |screen: &Screen| screen.line(FAULT).is_some_and(|line| line.contains(FOUND));
    let read = terminal.wait_until("what the text shows", is_told);
    terminal.keep("10-found", &read);
    assert!(!editor.is_running(&read), "nothing runs for it:\n{}", read.text());
    editor.save(terminal);
    editor.wait_for_question(terminal);
    editor.allow(terminal);
    let measured = terminal.wait_until("what it costs", |screen| {
        let line = screen.line(FAULT).unwrap_or_default();
        let cost = line.split_once(FOUND).map_or("", |(_, cost)| cost);
        // On a busy machine the difference may be within the noise.
        let is_measured = cost.contains(" ms") || cost.contains("cost unknown");
        is_measured && rate(screen).is_some() && !editor.is_running(screen)
    });
    terminal.keep("11-measured", &measured);
    editor.go_to(terminal, measured.number_of(FAULT));
    editor.quick_fix(terminal, FIX);
    let fixed =
        terminal.wait_until("the edit", |screen| !screen.shows(FAULT) && !screen.shows(FOUND));
    terminal.keep("12-mended", &fixed);
    editor.save(terminal);
    // With warm caches, the run may end before its progress is drawn.
    let again = terminal.wait_until("a run without it", |screen| {
        let is_new = rate(screen).is_some_and(|now| Some(now) != rate(&fixed));
        is_new && !editor.is_running(screen)
    });
    terminal.keep("13-again", &again);
    assert!(!again.shows(FOUND), "{}", again.text());
}
