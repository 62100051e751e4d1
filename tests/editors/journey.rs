//! A user's first minutes with Ridgeline, the same in every terminal editor.

use crate::editors::editor::{Editor, in_terminal};
use crate::editors::panel::Panel;
use crate::editors::sandbox::Sandbox;
use crate::editors::terminal::{Screen, Terminal};

const PROJECT: &str = "tests/editors/projects/digits";

/// Opens the project, allows the run, reads the costs, edits, breaks and fixes the program, stops a
/// run, and jumps from the panel to the editor.
pub(super) fn travel(editor: &dyn Editor) {
    in_terminal(editor, PROJECT, |terminal, sandbox| {
        let journey = Journey { editor, terminal, sandbox };
        let first = journey.first_run();
        journey.hover();
        journey.edit();
        journey.estimate();
        journey.failing_run();
        journey.stopped_run(&first);
        journey.panel();
    });
}

struct Journey<'a> {
    editor: &'a dyn Editor,
    terminal: &'a Terminal<'a>,
    sandbox: &'a Sandbox,
}

const STEP: &str = "optimizer.step()";
const BACKWARD: &str = "loss.backward()";
const LOSS: &str = "loss = criterion(model(images), labels)";

impl Journey<'_> {
    /// Returns the screen with the measurements.
    fn first_run(&self) -> Screen {
        let (editor, terminal) = (self.editor, self.terminal);
        terminal.wait_for(STEP);
        editor.begin(terminal);
        if editor.shows_lenses() {
            terminal.wait_for("open panel");
        }
        // Emacs does not save an unmodified buffer.
        editor.insert_below(terminal, 1, "# A first run.");
        editor.save(terminal);
        let question = editor.wait_for_question(terminal);
        terminal.keep("1-consent", &question);
        assert!(
            !editor.is_running(&question),
            "nothing runs before it was allowed:\n{}",
            question.text()
        );
        editor.allow(terminal);
        // With warm caches, the run may end before its progress is drawn.
        let is_measured = |screen: &Screen| {
            let has_costs =
                screen.line(STEP).is_some_and(|line| line.contains(" ms") || line.contains(" µs"));
            has_costs && screen.shows("samples/s") && !editor.is_running(screen)
        };
        let running =
            terminal.wait_until("a run", |screen| editor.is_running(screen) || is_measured(screen));
        terminal.keep("2-running", &running);
        let mut measured = terminal.wait_until("the costliest line's cost", is_measured);
        if editor.refreshes_hints() {
            measured = terminal.wait_until("hints", |screen| misplaced_cost(screen).is_none());
        }
        terminal.keep("3-measured", &measured);
        measured
    }

    fn hover(&self) {
        let (editor, terminal) = (self.editor, self.terminal);
        editor.go_to(terminal, terminal.screen().number_of(STEP));
        editor.hover(terminal);
        let hover = terminal.wait_for("Operators");
        terminal.keep("4-hover", &hover);
        assert!(hover.shows("of the iteration"), "{}", hover.text());
        for markup in ["**", "```", "<br", "&nbsp;"] {
            assert!(!hover.shows(markup), "{markup} is shown as it is:\n{}", hover.text());
        }
        editor.close_hover(terminal);
        terminal.wait_until("the hover's end", |screen| !screen.shows("Operators"));
    }

    /// Hints move with their statements, and a changed statement's cost becomes stale.
    fn edit(&self) {
        let (editor, terminal) = (self.editor, self.terminal);
        let loss = terminal.screen().number_of("loss = criterion");
        editor.insert_below(terminal, loss, "scale = 1.0");
        editor.insert_below(terminal, loss + 1, "loss = loss * scale");
        terminal.wait_for("loss = loss * scale");
        editor.ask_again(terminal);
        let moved = terminal.wait_until("hints that have moved", |screen| {
            let new = screen.line("loss = loss * scale");
            new.is_some_and(|line| !has_cost(&line)) && misplaced_cost(screen).is_none()
        });
        terminal.keep("5-moved", &moved);
        editor.delete(terminal, loss + 2);
        editor.delete(terminal, loss + 1);
    }

    /// Unsaved text is estimated, and undoing the edit shows the measurement again.
    fn estimate(&self) {
        let (editor, terminal) = (self.editor, self.terminal);
        if !editor.shows_lenses() {
            return;
        }
        let lens = |screen: &Screen| screen.line(" samples/s");
        let measured = terminal.wait_until("the measured throughput", |screen| {
            lens(screen).is_some_and(|line| !line.contains('~'))
        });
        let hidden = measured.number_of("hidden = torch.relu(");
        let wider = "hidden = hidden @ torch.rand(1024, 1024)";
        editor.insert_below(terminal, hidden, wider);
        let estimated = terminal.wait_until("an estimate and its change", |screen| {
            let change =
                lens(screen).is_some_and(|line| line.contains('~') && line.contains(", −"));
            change && screen.line(wider).is_some_and(|line| line.contains('~'))
        });
        terminal.keep("5-estimated", &estimated);
        editor.delete(terminal, hidden + 1);
        let back = terminal.wait_until("what was measured", |screen| {
            rate(screen) == rate(&measured) && lens(screen).is_some_and(|line| !line.contains('~'))
        });
        terminal.keep("5-undone", &back);
    }

    fn failing_run(&self) {
        let (editor, terminal) = (self.editor, self.terminal);
        let loss = terminal.screen().number_of("loss = criterion");
        editor.insert_below(terminal, loss, "raise ValueError(\"no such digit\")");
        editor.save(terminal);
        // The statement itself is also on the screen; the error has a colon. A status line may cut it.
        terminal.wait_for("ValueError: ");
        editor.go_to(terminal, loss + 1);
        editor.show_failure(terminal);
        let failed = terminal.wait_until("the failure at its line", |screen| {
            // Every editor has its own sign to the left of the line number.
            let line = screen.line("raise ValueError(").unwrap_or_default();
            let is_marked = line.starts_with(|first: char| first != ' ' && !first.is_ascii_digit());
            is_marked && !has_cost(&line) && screen.shows("ValueError: no such digit")
        });
        terminal.keep("6-failed", &failed);
        editor.close_failure(terminal);
        editor.delete(terminal, loss + 1);
    }

    fn stopped_run(&self, first: &Screen) {
        let (editor, terminal) = (self.editor, self.terminal);
        let loss = terminal.screen().number_of("loss = criterion");
        editor.insert_below(terminal, loss, "__import__(\"time\").sleep(600)");
        editor.save(terminal);
        let running = terminal.wait_until("progress", |screen| editor.is_running(screen));
        terminal.keep("7-slow", &running);
        editor.command(terminal, "stop");
        let stopped = terminal.wait_until("the run's end", |screen| !editor.is_running(screen));
        editor.delete(terminal, loss + 1);
        editor.save(terminal);
        // With warm caches, the run may end before its progress is drawn.
        // About one run in a thousand has exactly the previous throughput. Its lines then differ.
        let again = terminal.wait_until("another measurement", |screen| {
            let has_rate = rate(screen).is_some_and(|now| Some(now) != rate(&stopped));
            let costs = |screen| Some([cost(screen, BACKWARD)?, cost(screen, LOSS)?]);
            let has_costs = costs(screen).zip(costs(first)).is_some_and(|(now, then)| now != then);
            // The next run clears a failure.
            let is_over = !editor.is_running(screen) && !screen.shows("ValueError");
            (has_rate || has_costs) && is_over
        });
        terminal.keep("8-again", &again);
    }

    /// A click in the panel opens the line in the editor.
    fn panel(&self) {
        let (editor, terminal) = (self.editor, self.terminal);
        editor.go_to(terminal, 1);
        editor.command(terminal, "openPanel");
        let address = if editor.shows_documents() {
            terminal.wait_until("the panel", |_| !self.sandbox.opened_addresses().is_empty());
            self.sandbox.opened_addresses().remove(0)
        } else {
            let is_told = |screen: &Screen| address_in(screen).is_some();
            let screen = terminal.wait_until("the panel's address", is_told);
            terminal.keep("9-address", &screen);
            address_in(&screen).expect("it was there")
        };
        let line = terminal.screen().number_of(STEP);
        let answer = Panel::at(&address).jump("train.py", line);
        if editor.shows_documents() {
            assert_eq!(answer["done"], true, "{answer}");
            let there = terminal.wait_for(&editor.at(line));
            terminal.keep("9-jumped", &there);
        } else {
            assert_eq!(answer["done"], false, "{answer}");
            terminal.wait_for(&format!("train.py:{line}"));
        }
    }
}

/// Returns what is wrong with the hints on the screen: only expensive statements have one.
fn misplaced_cost(screen: &Screen) -> Option<String> {
    let costly = [STEP, BACKWARD, "loss = criterion(", "hidden = torch.relu("];
    if let Some(without) = costly.iter().find(|statement| !has_hint(screen, statement)) {
        return Some(format!("{without} has no cost"));
    }
    let free = ["import torch", "super().__init__()", "if __name__"];
    let has_some = |free: &&&str| screen.line(free).is_none_or(|line| has_cost(&line));
    if let Some(with) = free.iter().find(has_some) {
        return Some(format!("{with} costs nothing"));
    }
    // Characters of several UTF-16 units must not shift the hint at the end of the line.
    let line = screen.line(BACKWARD)?;
    let (_, behind) = line.split_once("🚀")?;
    // An estimate of the current text may have arrived meanwhile.
    let cost = behind.trim_start().trim_start_matches('~');
    let is_cost = cost.starts_with(|letter: char| letter.is_ascii_digit());
    (!is_cost).then(|| format!("the comment is not whole: {line}"))
}

fn has_hint(screen: &Screen, statement: &str) -> bool {
    screen.line(statement).is_some_and(|line| has_cost(&line))
}

/// Whether a hint stands on a drawn line: `4.2 ms · 8%`, or `fwd 1.2 · bwd 3.0 ms`.
pub(super) fn has_cost(line: &str) -> bool {
    (line.contains("s · ") && line.contains('%')) || line.contains(" · bwd ")
}

/// What stands behind a statement as measured: no estimate, and nothing of before.
fn cost(screen: &Screen, statement: &str) -> Option<String> {
    let line = screen.line(statement)?;
    let (_, hint) = line.split_once(statement)?;
    let is_measured = has_cost(hint) && !hint.contains('~') && !hint.contains("was ");
    is_measured.then(|| hint.to_owned())
}

/// The throughput that is shown: `8133` of `8133 samples/s`.
pub(super) fn rate(screen: &Screen) -> Option<String> {
    let text = screen.text();
    let (before, _) = text.split_once(" samples/s")?;
    Some(before.rsplit(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?.to_owned())
}

/// The panel's address, once it is there to its end. It may be broken over the lines of a narrow message.
fn address_in(screen: &Screen) -> Option<String> {
    let joined: String =
        screen.lines().iter().map(|line| line.trim().trim_matches(['│', ' '])).collect();
    let from = joined.find("http://127.0.0.1:")?;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || ":/.?=&".contains(letter);
    let address: String = joined[from..].chars().take_while(|letter| is_part(*letter)).collect();
    let (_, workspace) = address.split_once("workspace=")?;
    workspace.starts_with(|digit: char| digit.is_ascii_digit()).then_some(address)
}
