//! What-ifs for people: a table for the terminal, and the best few for a hover.

use unicode_width::UnicodeWidthStr;

use super::page::{Page, Piece, strong, text};
use super::terminal::Style;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_operators::range::Range;
use ridgeline_optimize::accuracy::{Accuracy, Pair};
use ridgeline_optimize::optimization::Prediction;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::study::Study;
use ridgeline_profile::FileId;

/// So many a hover tells.
const IN_HOVER: usize = 3;
/// So many lines of a file are named.
const LINES: usize = 4;
/// Above the rows that nobody can apply.
const RESEARCH: &str = "research: published, not available in PyTorch";
/// Characters of a title in a table.
const TITLE: usize = 44;
/// Two runs of the same text that differ by more say that the machine had something else to do.
const UNEVEN: f64 = 0.1;
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
        line("No optimization applies.");
    }
    for row in table(study, style) {
        line(&row);
    }
    if !study.what_ifs.combinations.is_empty() {
        line("");
        line(&style.faint("combinations"));
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
        line(&style.faint("not applicable"));
        refusals(study).iter().for_each(|refusal| line(refusal));
    }
    line("");
    for about in about(study) {
        line(&style.faint(&about));
    }
    page
}

/// `An iteration with a batch of 32 takes 102 ms now on NVIDIA H200, with a peak of 3.1 GB`.
fn now(study: &Study) -> String {
    let peak = study
        .peak_bytes
        .map(|peak| format!(", peak memory {}", units::bytes(peak)))
        .unwrap_or_default();
    let device = match study.device.as_str() {
        "" | "unknown" => String::new(),
        name => format!(" on {}", clean(&shorten(name, 72))),
    };
    let batch = study.batch_size.map(|batch| format!(" with batch size {batch}"));
    let batch = batch.unwrap_or_default();
    format!("Iteration{batch}: {}{device}{peak}", units::duration(study.iteration_ns))
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
        column("optimization", 0, true, &|row| shorten(&row.title, TITLE)),
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
    // They are sorted last.
    let first_research = rows.iter().position(|row| row.is_research).unwrap_or(rows.len());
    let mut table = vec![style.faint(written(&|column| column.heading.to_owned()).trim_end())];
    for at in 0..rows.len() {
        if at == first_research {
            table.extend([String::new(), style.faint(RESEARCH)]);
        }
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
        "~ = simulated from the recorded step ({} tasks; the unmodified simulation is off by \
        {off}). Ranges go from the worst to the best expected case.",
        study.tasks
    )];
    lines.extend(study.notes.iter().map(|note| clean(&shorten(note, 400))));
    lines
}

/// `1.6× measured (2.0 ms to 1.3 ms), ~2.0× predicted`, and how even the machine was where it was not;
/// nothing where a side took no time.
pub fn pair(pair: &Pair) -> Option<String> {
    let mut told = format!(
        "{} measured ({} to {}), ~{} predicted",
        speedup(pair.measured.speedup()?),
        units::duration(pair.measured.before_ns),
        units::duration(pair.measured.after_ns),
        speedup(pair.predicted.speedup()?),
    );
    if pair.drift.abs() > UNEVEN {
        let drift = units::percent(pair.drift.abs());
        told += &format!("; noisy machine: {drift} drift during the measurement");
    }
    Some(told)
}

/// Predictions that were measured: one line each, and how good they were.
pub fn measured(pairs: &[Pair], accuracy: Option<Accuracy>) -> String {
    let told = pairs.iter().filter_map(|one| Some(format!("{}: {}", clean(&one.name), pair(one)?)));
    let lines: Vec<String> = told.chain(accuracy.map(accuracy_in_words)).collect();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// `In this project 7 predictions were measured on this device: their times were off by 6% on average, 14% at most`.
fn accuracy_in_words(accuracy: Accuracy) -> String {
    let (mean, most) =
        (units::percent(accuracy.mean_error), units::percent(accuracy.largest_error));
    match accuracy.pairs {
        1 => format!(
            "1 prediction was measured in this project on this device: its time was off by {mean}"
        ),
        pairs => format!(
            "{pairs} predictions were measured in this project on this device: times were off by \
            {mean} on average, {most} at most"
        ),
    }
}

/// The best few: the lines of a hover.
///
/// `links` are addresses that make an edit at a click.
pub(super) fn in_hover(page: &mut Page, study: &Study, links: &[(EditKind, String)]) {
    let best = study.best(IN_HOVER);
    if best.is_empty() {
        return;
    }
    let mut pieces = vec![strong("Optimizations:")];
    for (at, prediction) in best.into_iter().enumerate() {
        pieces.push(text(if at == 0 { " " } else { " · " }));
        let link = links.iter().find(|(edit, _)| prediction.names == [edit.name()]);
        pieces.push(match link {
            Some((_, address)) => Piece::Link(prediction.title.clone(), address.clone()),
            None => text(&prediction.title),
        });
        pieces.push(text(format!(" ~{}", speedup_range(prediction.speedup()))));
        if let Some(correction) = prediction.correction {
            pieces.push(text(format!(", {}", correction.words())));
        }
    }
    page.line(&pieces);
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use ridgeline_optimize::accuracy::Sides;
    use ridgeline_optimize::ranking::{Refused, WhatIfs};

    fn prediction(names: &[&str], title: &str, time_ns: Range) -> Prediction {
        Prediction {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            title: title.to_owned(),
            before_ns: 100e6,
            time_ns,
            samples_factor: 1.0,
            ..Prediction::default()
        }
    }

    fn study() -> Study {
        let range = |low: f64, value: f64, high: f64| Range { low, value, high };
        let compile = Prediction {
            peak_bytes: Some(range(1e9, 2e9, 3e9)),
            lines: vec![(FileId(0), 4), (FileId(0), 9), (FileId(1), 2)],
            notes: vec!["compilation slows down".to_owned()],
            ..prediction(&["compile"], "torch.compile", range(50e6, 70e6, 90e6))
        };
        let slower = prediction(&["amp-bf16"], "Mixed precision (bf16)", range(1e8, 104e6, 1e9));
        let gist = Prediction {
            is_research: true,
            ..prediction(&["gist"], "Activation compression (Gist)", Range::exact(90e6))
        };
        let gpus = Prediction {
            samples_factor: 4.0,
            ..prediction(&["data-parallel"], "Data parallel", Range::exact(110e6))
        };
        let refused = |name| Refused { name, title: "", why: "there is no GPU".to_owned() };
        Study {
            device: "NVIDIA H200".to_owned(),
            batch_size: Some(32),
            iteration_ns: 100e6,
            peak_bytes: Some(3e9),
            replay_error: -0.004,
            tasks: 1234,
            files: vec!["train.py".to_owned(), "net.py".to_owned()],
            what_ifs: WhatIfs {
                predictions: vec![gpus, compile, slower, gist],
                combinations: Vec::new(),
                refusals: vec![refused("fp8"), refused("tf32")],
            },
            notes: vec!["The recording has no memory data".to_owned()],
            ..Study::default()
        }
    }

    #[track_caller]
    fn check(width: usize, expected: Expect) {
        expected.assert_eq(&page(&study(), Style { color: false, width }));
    }

    #[test]
    fn a_wide_terminal() {
        check(
            200,
            expect![[r#"
                Iteration with batch size 32: 100 ms on NVIDIA H200, peak memory 3.0 GB

                optimization                   name           speedup         range  iteration  peak memory  lines
                Data parallel                  data-parallel    ~3.6×    3.6 to 3.6    ~110 ms      unknown
                torch.compile                  compile          ~1.4×    1.1 to 2.0     ~70 ms      ~2.0 GB  train.py:4, 9, net.py:2
                Mixed precision (bf16)         amp-bf16        ~0.96×  0.10 to 1.00    ~104 ms      unknown

                research: published, not available in PyTorch
                Activation compression (Gist)  gist            ~1.11×  1.11 to 1.11     ~90 ms      unknown

                compile: compilation slows down

                not applicable
                fp8, tf32: there is no GPU

                ~ = simulated from the recorded step (1234 tasks; the unmodified simulation is off by 0.4%). Ranges go from the worst to the best expected case.
                The recording has no memory data
            "#]],
        );
    }

    #[test]
    fn a_correction_by_measurements_is_shown() {
        let mut study = study();
        let sides = |after_ns| Sides { before_ns: 100.0, after_ns, ..Sides::default() };
        let pair = Pair {
            name: "compile".to_owned(),
            predicted: sides(81.0),
            measured: sides(100.0),
            ..Pair::default()
        };
        study.correct(&[pair]);
        let mut page = Page::default();
        in_hover(&mut page, &study, &[]);
        let (_, plain) = page.finish();
        expect![[r#"
            Optimizations: torch.compile ~1.3× (1.0 to 1.8), corrected by +11% from 1 measurement"#]]
        .assert_eq(&plain);
        let page = super::page(&study, Style { color: false, width: 200 });
        let note =
            "compile: time corrected by +11% from 1 measurement in this project; compilation";
        assert!(page.contains(note), "{page}");
    }

    #[test]
    fn the_hover_tells_what_is_faster_on_what_is_there() {
        let mut page = Page::default();
        in_hover(&mut page, &study(), &[(EditKind::Compile, "command:apply".to_owned())]);
        let (markdown, plain) = page.finish();
        expect![[r#"
            Optimizations: torch.compile ~1.4× (1.1 to 2.0)"#]]
        .assert_eq(&plain);
        assert!(markdown.contains("[torch.compile](command:apply)"), "{markdown}");
        let mut page = Page::default();
        in_hover(&mut page, &Study::default(), &[]);
        assert!(page.is_empty());
    }

    #[test]
    fn measured_beside_predicted() {
        let sides = |after_ns: f64| Sides { before_ns: 2e6, after_ns, ..Sides::default() };
        let pair = |drift: f64| Pair {
            name: "compile".to_owned(),
            predicted: sides(1e6),
            measured: sides(1.25e6),
            drift,
            ..Pair::default()
        };
        let pairs = [pair(0.02), pair(-0.5), Pair::default()];
        let accuracy = Accuracy { pairs: 2, mean_error: 0.2, largest_error: 0.25 };
        expect![[r#"
            compile: 1.6× measured (2.0 ms to 1.2 ms), ~2.0× predicted
            compile: 1.6× measured (2.0 ms to 1.2 ms), ~2.0× predicted; noisy machine: 50% drift during the measurement
            2 predictions were measured in this project on this device: times were off by 20% on average, 25% at most
        "#]]
        .assert_eq(&measured(&pairs, Some(accuracy)));
    }
}
