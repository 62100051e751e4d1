//! What-ifs for people: a table for the terminal, and the best few for a hover.

use unicode_width::UnicodeWidthStr;

use super::page::{Page, clean, shorten, strong, text};
use super::terminal::Style;
use crate::predict::Range;
use crate::profile::FileId;
use crate::units;
use crate::whatif::accuracy::{Accuracy, Pair};
use crate::whatif::optimization::Prediction;
use crate::whatif::study::Study;

/// So many a hover tells.
const IN_HOVER: usize = 3;
/// So many lines of a file are named.
const LINES: usize = 4;
/// Characters of a title in a table.
const TITLE: usize = 44;
/// Narrower terminals are written for as if they had this many columns.
const MIN_WIDTH: usize = 60;

/// `1.4×`, and with two digits where it is close to 1: `1.04×`.
pub fn speedup(value: f64) -> String {
    format!("{value:.*}×", places(value))
}

/// `1.4× (1.2 to 1.6)`.
fn speedup_range(range: Range) -> String {
    let places = places(range.value);
    format!("{} ({:.places$} to {:.places$})", speedup(range.value), range.low, range.high)
}

fn places(value: f64) -> usize {
    if (0.85..1.15).contains(&value) { 2 } else { 1 }
}

/// The page of a terminal: the table, what goes well together, notes, and what does not apply.
pub fn page(study: &Study, style: Style) -> String {
    let mut page = String::new();
    let mut line = |text: &str| {
        page += text.trim_end();
        page.push('\n');
    };
    line(&now(study));
    line("");
    if study.what_ifs.predictions.is_empty() {
        line("None of the optimizations applies.");
    }
    for row in table(study, style) {
        line(&row);
    }
    if !study.what_ifs.combinations.is_empty() {
        line("");
        line(&style.faint("together"));
        for prediction in &study.what_ifs.combinations {
            line(&combination(prediction));
        }
    }
    let notes: Vec<String> = study.what_ifs.predictions.iter().filter_map(notes).collect();
    if !notes.is_empty() {
        line("");
        notes.iter().for_each(|note| line(note));
    }
    if !study.what_ifs.refusals.is_empty() {
        line("");
        line(&style.faint("does not apply"));
        refusals(study).iter().for_each(|refusal| line(refusal));
    }
    line("");
    for about in about(study) {
        line(&style.faint(&about));
    }
    page
}

/// `An iteration takes 102 ms now, with a peak of 3.1 GB, on NVIDIA H200 (batch of 32)`.
fn now(study: &Study) -> String {
    let peak = study
        .peak_bytes
        .map(|peak| format!(", with a peak of {}", units::bytes(peak)))
        .unwrap_or_default();
    let device = match study.device.as_str() {
        "" | "unknown" => String::new(),
        name => format!(" on {}", clean(&shorten(name, 72))),
    };
    let batch = study.batch_size.map(|batch| format!(" (batch of {batch})")).unwrap_or_default();
    format!("An iteration takes {} now{device}{batch}{peak}", units::duration(study.iteration_ns))
}

struct Column {
    heading: &'static str,
    cells: Vec<String>,
    /// Columns that go first where the terminal is narrow have more.
    weight: u32,
    /// Texts begin on the left, numbers end on the right.
    is_text: bool,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.width()).max().unwrap_or_default();
        cells.max(self.heading.width())
    }
}

fn table(study: &Study, style: Style) -> Vec<String> {
    let rows = &study.what_ifs.predictions;
    let column = |heading, weight, is_text, cell: &dyn Fn(&Prediction) -> String| Column {
        heading,
        cells: rows.iter().map(cell).collect(),
        weight,
        is_text,
    };
    let mut columns = vec![
        column("what if", 0, true, &|row| shorten(&row.title, TITLE)),
        column("name", 3, true, &|row| row.names.join("+")),
        column("speedup", 0, false, &|row| format!("~{}", speedup(row.speedup().value))),
        column("range", 2, false, &|row| range(row.speedup())),
        column("iteration", 0, false, &|row| format!("~{}", units::duration(row.time_ns.value))),
        column("peak memory", 1, false, &|row| peak(row)),
        column("lines", 4, true, &|row| lines(study, row)),
    ];
    if rows.is_empty() {
        return Vec::new();
    }
    let width = |columns: &[Column]| columns.iter().map(|one| one.width() + 2).sum::<usize>();
    while width(&columns) > style.width.max(MIN_WIDTH) + 2 {
        let heaviest = columns.iter().enumerate().max_by_key(|(_, column)| column.weight);
        match heaviest {
            Some((at, column)) if column.weight > 0 => columns.remove(at),
            _ => break,
        };
    }
    let written = |cell: &dyn Fn(&Column) -> String| {
        let cells = columns.iter().map(|column| {
            let cell = cell(column);
            let gap = " ".repeat(column.width().saturating_sub(cell.width()));
            if column.is_text { format!("{cell}{gap}") } else { format!("{gap}{cell}") }
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    let mut table = vec![style.faint(written(&|column| column.heading.to_owned()).trim_end())];
    for at in 0..rows.len() {
        table.push(written(&|column| column.cells.get(at).cloned().unwrap_or_default()));
    }
    table
}

fn range(range: Range) -> String {
    let places = places(range.value);
    format!("{:.places$} to {:.places$}", range.low, range.high)
}

fn peak(row: &Prediction) -> String {
    row.peak_bytes
        .map_or_else(|| "unknown".to_owned(), |peak| format!("~{}", units::bytes(peak.value)))
}

/// `train.py:12, 14, model.py:3`.
fn lines(study: &Study, row: &Prediction) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut last: Option<FileId> = None;
    for (file, line) in row.lines.iter().take(LINES) {
        let path = study.files.get(file.0 as usize).map(|path| clean(&shorten(path, 40)));
        let Some(path) = path else { continue };
        told.push(if last == Some(*file) { line.to_string() } else { format!("{path}:{line}") });
        last = Some(*file);
    }
    if row.lines.len() > LINES {
        told.push(format!("and {} more", row.lines.len() - LINES));
    }
    told.join(", ")
}

fn combination(row: &Prediction) -> String {
    let peak = row
        .peak_bytes
        .map(|peak| format!(", peak ~{}", units::bytes(peak.value)))
        .unwrap_or_default();
    let time = units::duration(row.time_ns.value);
    format!("{}: ~{}, ~{time}{peak}", row.names.join(" + "), speedup_range(row.speedup()))
}

/// Names with why they do not apply; those with the same reason together.
fn refusals(study: &Study) -> Vec<String> {
    let mut told: Vec<(String, &str)> = Vec::new();
    for refused in &study.what_ifs.refusals {
        match told.iter_mut().find(|(_, why)| *why == refused.why) {
            Some((names, _)) => *names += &format!(", {}", refused.name),
            None => told.push((refused.name.to_owned(), &refused.why)),
        }
    }
    told.iter().map(|(names, why)| format!("{names}: {}", clean(&shorten(why, 400)))).collect()
}

/// `amp-bf16: …; …`; nothing where there is nothing to say.
fn notes(row: &Prediction) -> Option<String> {
    if row.notes.is_empty() {
        return None;
    }
    let notes: Vec<String> = row.notes.iter().map(|note| clean(&shorten(note, 400))).collect();
    Some(format!("{}: {}", row.names.join("+"), notes.join("; ")))
}

/// What the numbers rest on, in sentences.
fn about(study: &Study) -> Vec<String> {
    let off = units::percent(study.replay_error.abs());
    let mut lines = vec![format!(
        "~ is predicted: the recorded iteration, changed and run again ({} tasks; unchanged it comes \
         out {off} off). The range is from the worst to the best that is expected.",
        study.tasks
    )];
    lines.extend(study.notes.iter().map(|note| clean(&shorten(note, 400))));
    lines
}

/// Predictions that were measured: one line each, and how good they were.
pub fn measured(pairs: &[Pair], accuracy: Option<Accuracy>) -> String {
    let mut page = String::new();
    for pair in pairs {
        let (Some(predicted), Some(measured)) = (pair.predicted.speedup(), pair.measured.speedup())
        else {
            continue;
        };
        let (before, after) = (pair.measured.before_ns, pair.measured.after_ns);
        page += &format!(
            "{}: {} measured ({} to {}), ~{} predicted\n",
            clean(&pair.name),
            speedup(measured),
            units::duration(before),
            units::duration(after),
            speedup(predicted),
        );
    }
    if let Some(accuracy) = accuracy {
        page += &format!("{}\n", accuracy_in_words(accuracy));
    }
    page
}

/// `In this project 7 predictions were measured: their times were off by 6% on average, 14% at most`.
fn accuracy_in_words(accuracy: Accuracy) -> String {
    let (mean, most) =
        (units::percent(accuracy.mean_error), units::percent(accuracy.largest_error));
    match accuracy.pairs {
        1 => format!("In this project one prediction was measured: its time was off by {mean}"),
        pairs => format!(
            "In this project {pairs} predictions were measured: their times were off by {mean} on \
             average, {most} at most"
        ),
    }
}

/// The best few: the lines of a hover.
pub(super) fn in_hover(page: &mut Page, study: &Study) {
    let best = study.best(IN_HOVER);
    if best.is_empty() {
        return;
    }
    page.gap();
    page.line(&[strong("What would make it faster")]);
    for prediction in best {
        let told = format!("{}: ~{}", prediction.title, speedup_range(prediction.speedup()));
        page.item(0, &[text(told)]);
    }
}
