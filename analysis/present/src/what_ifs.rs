//! What-ifs as text: a table for the terminal, and the best few for a hover.

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
use ridgeline_profile::{BUSY_NOTE, FileId};

/// The maximum number of optimizations in a hover.
const MAX_IN_HOVER: usize = 3;
/// The maximum number of lines listed for an optimization.
const MAX_LINES: usize = 4;
/// Why an edit is not measured, although there is one.
pub const NEEDS_LAUNCHER: &str = "measured what-ifs run one process, and this one needs several";
/// The heading of optimizations that are only published.
const RESEARCH: &str = "research: published, not available in PyTorch";
/// Maximum length of a title in a table, in characters.
const MAX_TITLE: usize = 44;
/// Two runs of the same text that differ by more than this fraction indicate a noisy machine.
const NOISY_DRIFT: f64 = 0.1;
/// Pages for narrower terminals have this width, in columns.
const MIN_WIDTH: usize = 60;

/// Formats a speedup: `1.4×`, or with two decimals close to 1: `1.04×`.
pub fn speedup(value: f64) -> String {
    format!("{value:.*}×", places(value))
}

/// `1.4× (1.2 to 1.6)`, or `1.4×` if all of these are equal when rounded.
fn speedup_range(range: Range) -> String {
    let (value, ends) = (speedup(range.value), self::range(range));
    if ends.contains(" to ") { format!("{value} ({ends})") } else { value }
}

fn places(value: f64) -> usize {
    if (0.85..1.15).contains(&value) { 2 } else { 1 }
}

/// Formats a study for the terminal: the table, combinations, notes, and optimizations that do not
/// apply.
pub fn page(study: &Study, style: Style) -> String {
    let mut page = String::new();
    let mut line = |text: &str| {
        page += text.trim_end();
        page.push('\n');
    };
    line(&current_iteration(study));
    for note in study.notes.iter().filter(|note| is_about_all(note)) {
        line(&clean(&shorten(note, 400)));
    }
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

/// `Iteration with batch size 32: 102 ms on NVIDIA H200, peak memory 3.1 GB`.
fn current_iteration(study: &Study) -> String {
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
    /// Columns with a higher number are dropped first on a narrow terminal.
    drop_order: u32,
    /// Texts are left-aligned, numbers right-aligned.
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
    let column = |heading, drop_order, is_text, cell: &dyn Fn(&Prediction) -> String| Column {
        heading,
        cells: rows.iter().map(cell).collect(),
        drop_order,
        is_text,
    };
    let mut columns = vec![
        column("optimization", 0, true, &|row| shorten(&row.title, MAX_TITLE)),
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
        let heaviest = columns.iter().enumerate().max_by_key(|(_, column)| column.drop_order);
        match heaviest {
            Some((at, column)) if column.drop_order > 0 => columns.remove(at),
            _ => break,
        };
    }
    let row = |cell: &dyn Fn(&Column) -> String| {
        let cells = columns.iter().map(|column| {
            let cell = cell(column);
            let gap = " ".repeat(column.width().saturating_sub(cell.width()));
            if column.is_text { format!("{cell}{gap}") } else { format!("{gap}{cell}") }
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    // Research optimizations are sorted last.
    let first_research = rows.iter().position(|row| row.is_research).unwrap_or(rows.len());
    let mut table = vec![style.faint(row(&|column| column.heading.to_owned()).trim_end())];
    for at in 0..rows.len() {
        if at == first_research {
            table.extend([String::new(), style.faint(RESEARCH)]);
        }
        table.push(row(&|column| column.cells.get(at).cloned().unwrap_or_default()));
    }
    table
}

/// `1.2 to 1.6`, or `1.4` if both are equal when rounded.
fn range(range: Range) -> String {
    let places = places(range.value);
    let [low, high] = [range.low, range.high].map(|end| format!("{end:.places$}"));
    if low == high { low } else { format!("{low} to {high}") }
}

fn peak(row: &Prediction) -> String {
    row.peak_bytes
        .map_or_else(|| "unknown".to_owned(), |peak| format!("~{}", units::bytes(peak.value)))
}

/// `train.py:12, 14, model.py:3`.
fn lines(study: &Study, row: &Prediction) -> String {
    let mut places: Vec<String> = Vec::new();
    let mut last: Option<FileId> = None;
    for (file, line) in row.lines.iter().take(MAX_LINES) {
        let path = study.files.get(file.0 as usize).map(|path| clean(&shorten(path, 40)));
        let Some(path) = path else { continue };
        places.push(if last == Some(*file) { line.to_string() } else { format!("{path}:{line}") });
        last = Some(*file);
    }
    if row.lines.len() > MAX_LINES {
        places.push(format!("and {} more", row.lines.len() - MAX_LINES));
    }
    places.join(", ")
}

fn combination(row: &Prediction) -> String {
    let peak = row
        .peak_bytes
        .map(|peak| format!(", peak ~{}", units::bytes(peak.value)))
        .unwrap_or_default();
    let time = units::duration(row.time_ns.value);
    format!("{}: ~{}, ~{time}{peak}", row.names.join(" + "), speedup_range(row.speedup()))
}

/// The optimizations that do not apply, grouped by reason.
fn refusals(study: &Study) -> Vec<String> {
    let mut groups: Vec<(String, &str)> = Vec::new();
    for refused in &study.what_ifs.refusals {
        match groups.iter_mut().find(|(_, why)| *why == refused.why) {
            Some((names, _)) => *names += &format!(", {}", refused.name),
            None => groups.push((refused.name.to_owned(), &refused.why)),
        }
    }
    groups.iter().map(|(names, why)| format!("{names}: {}", clean(&shorten(why, 400)))).collect()
}

/// `amp-bf16: …; …`. `None` without notes.
fn notes(row: &Prediction) -> Option<String> {
    if row.notes.is_empty() {
        return None;
    }
    let notes: Vec<String> = row.notes.iter().map(|note| clean(&shorten(note, 400))).collect();
    Some(format!("{}: {}", row.names.join("+"), notes.join("; ")))
}

/// Sentences about the assumptions behind the numbers.
fn about(study: &Study) -> Vec<String> {
    let replay_error = units::percent(study.replay_error.abs());
    let mut lines = vec![format!(
        "~ = simulated from the recorded step ({} tasks; the unmodified simulation is off by \
        {replay_error}). Ranges go from the worst to the best expected case.",
        study.tasks
    )];
    let notes = study.notes.iter().filter(|note| !is_about_all(note));
    lines.extend(notes.map(|note| clean(&shorten(note, 400))));
    lines
}

/// Whether a note concerns all numbers, so that it comes first.
fn is_about_all(note: &str) -> bool {
    note.starts_with(BUSY_NOTE)
}

/// `1.6× measured (2.0 ms to 1.3 ms), ~2.0× predicted`, and the drift if the machine was noisy.
/// `None` if a side took no time.
pub fn pair(pair: &Pair) -> Option<String> {
    let mut text = format!(
        "{} measured ({} to {}), ~{} predicted",
        speedup(pair.measured.speedup()?),
        units::duration(pair.measured.before_ns),
        units::duration(pair.measured.after_ns),
        speedup(pair.predicted.speedup()?),
    );
    if pair.drift.abs() > NOISY_DRIFT {
        let drift = units::percent(pair.drift.abs());
        text += &format!("; noisy machine: {drift} drift during the measurement");
    }
    if let Some(check) = &pair.numerics {
        text += &format!("; {}", clean(&check.words()));
    }
    Some(text)
}

/// Formats the predictions that were measured, one on each line, followed by their accuracy.
pub fn measured(pairs: &[Pair], accuracy: Option<Accuracy>) -> String {
    let rows = pairs.iter().filter_map(|one| Some(format!("{}: {}", clean(&one.name), pair(one)?)));
    let lines: Vec<String> = rows.chain(accuracy.map(accuracy_text)).collect();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// `7 predictions were measured in this project on this device: times were off by 6% on average,
/// 14% at most`.
fn accuracy_text(accuracy: Accuracy) -> String {
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

/// Adds the best few predictions to a hover.
///
/// `links` are URLs that apply an edit when clicked.
pub(super) fn in_hover(page: &mut Page, study: &Study, links: &[(EditKind, String)]) {
    let best = study.best(MAX_IN_HOVER);
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
    use ridgeline_optimize::numerics::Check;
    use ridgeline_optimize::ranking::{Inapplicable, WhatIfs};

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
        let refused = |name| Inapplicable { name, title: "", why: "there is no GPU".to_owned() };
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
                Data parallel                  data-parallel    ~3.6×           3.6    ~110 ms      unknown
                torch.compile                  compile          ~1.4×    1.1 to 2.0     ~70 ms      ~2.0 GB  train.py:4, 9, net.py:2
                Mixed precision (bf16)         amp-bf16        ~0.96×  0.10 to 1.00    ~104 ms      unknown

                research: published, not available in PyTorch
                Activation compression (Gist)  gist            ~1.11×          1.11     ~90 ms      unknown

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
    fn the_hover_lists_speedups_on_the_same_hardware() {
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
    fn measured_and_predicted_speedups() {
        let sides = |after_ns: f64| Sides { before_ns: 2e6, after_ns, ..Sides::default() };
        let pair = |drift: f64| Pair {
            name: "compile".to_owned(),
            predicted: sides(1e6),
            measured: sides(1.25e6),
            drift,
            ..Pair::default()
        };
        let why = "no backward pass was seen".to_owned();
        let unknown = Pair { numerics: Some(Check::Unknown(why)), ..pair(0.0) };
        let pairs = [pair(0.02), pair(-0.5), unknown, Pair::default()];
        let accuracy = Accuracy { pairs: 2, mean_error: 0.2, largest_error: 0.25 };
        expect![[r#"
            compile: 1.6× measured (2.0 ms to 1.2 ms), ~2.0× predicted
            compile: 1.6× measured (2.0 ms to 1.2 ms), ~2.0× predicted; noisy machine: 50% drift during the measurement
            compile: 1.6× measured (2.0 ms to 1.2 ms), ~2.0× predicted; effect on the loss unknown: no backward pass was seen
            2 predictions were measured in this project on this device: times were off by 20% on average, 25% at most
        "#]]
        .assert_eq(&measured(&pairs, Some(accuracy)));
    }
}
