//! Ridgeline next to a type checker and a linter in the same buffer, as most users run it.

use crate::editors::editor::in_terminal;
use crate::editors::fixes::{FAULT, FIX, FOUND, FixesFindings, PROJECT, STEP};
use crate::editors::journey::{has_cost, rate};
use crate::editors::terminal::{Screen, Terminal};

/// A line that ruff reports, and what it says.
const UNUSED: (&str, &str) = ("import os", "imported but unused");
/// A line that basedpyright reports, and what it says.
const UNRESOLVED: (&str, &str) = ("import torch", "could not be resolved");

/// Edits and saves a program, and finds everything of Ridgeline at its place. Then applies a fix from
/// a list with the actions of other servers.
pub(super) fn share_buffer(editor: &dyn FixesFindings) {
    in_terminal(editor, PROJECT, |terminal, _| session(editor, terminal));
}

fn session(editor: &dyn FixesFindings, terminal: &Terminal) {
    terminal.wait_for(STEP);
    editor.begin(terminal);
    let opened = terminal.wait_until("the diagnostics of two servers", |screen| {
        says(screen, FAULT, FOUND) && says(screen, UNRESOLVED.0, UNRESOLVED.1)
    });
    terminal.keep("20-opened", &opened);

    editor.insert_below(terminal, 1, UNUSED.0);
    let edited = terminal.wait_until("the diagnostics of three servers", all_report);
    terminal.keep("21-edited", &edited);

    editor.save(terminal);
    editor.wait_for_question(terminal);
    editor.allow(terminal);
    let measured = terminal.wait_until("the costs", |screen| {
        let is_over = rate(screen).is_some() && !editor.is_running(screen);
        is_over && all_report(screen) && costs_are_in_place(screen)
    });
    terminal.keep("22-measured", &measured);
    assert!(measured.shows("open panel"), "no lenses:\n{}", measured.text());

    editor.go_to(terminal, measured.number_of(STEP));
    editor.hover(terminal);
    let hover = terminal.wait_for("Operators");
    terminal.keep("23-hover", &hover);
    editor.close_hover(terminal);
    terminal.wait_until("the hover's end", |screen| !screen.shows("Operators"));

    editor.go_to(terminal, measured.number_of(FAULT));
    editor.quick_fix_among(terminal, FIX, "Ruff: ");
    let fixed = terminal.wait_until("the edit", |screen| {
        !screen.shows(FAULT) && !screen.shows(FOUND) && says(screen, UNUSED.0, UNUSED.1)
    });
    editor.save(terminal);
    let again = terminal.wait_until("a run without it", |screen| {
        let is_new = rate(screen).is_some_and(|now| Some(now) != rate(&fixed));
        is_new && !editor.is_running(screen) && costs_are_in_place(screen)
    });
    terminal.keep("24-again", &again);
    assert!(!again.shows(FOUND), "{}", again.text());
}

fn all_report(screen: &Screen) -> bool {
    let reports = [(FAULT, FOUND), UNUSED, UNRESOLVED];
    reports.iter().all(|(line, message)| says(screen, line, message))
}

fn says(screen: &Screen, line: &str, message: &str) -> bool {
    screen.line(line).is_some_and(|line| line.contains(message))
}

/// Whether an expensive statement has a hint, and one that costs nothing has none.
fn costs_are_in_place(screen: &Screen) -> bool {
    let has = |text: &str| screen.line(text).is_some_and(|line| has_cost(&line));
    has(STEP) && has("loss.backward()") && !has(UNUSED.0) && !has("torch.manual_seed")
}
