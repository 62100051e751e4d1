//! Two runs side by side: the page of a terminal, the document of `--json` and the panel, and a
//! Markdown table for a pull request.

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::terminal::Style;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_base::units::difference;
use ridgeline_compare::change::{Measure, Verdict};
use ridgeline_compare::{Comparison, LineRow, ModuleRow};

/// The version of the JSON document.
pub const SCHEMA: u32 = 1;

/// The maximum number of lines, and of modules, shown in the terminal.
const MAX_ROWS: usize = 12;
/// Maximum length of a name in a table, in characters.
const MAX_NAME: usize = 56;

/// The identity of a run, for display.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunLabel {
    /// As given on the command line: a path, a commit, `last`.
    pub name: String,
    /// The time of the run, in milliseconds since 1970.
    pub when_unix_ms: Option<u64>,
    /// Git's HEAD at the time of the run.
    pub commit: Option<String>,
    /// Whether the source that ran was unmodified from that commit.
    pub clean: bool,
}

impl RunLabel {
    /// `HEAD~1 (a1b2c3d with changes)`.
    fn title(&self) -> String {
        let name = clean(&shorten(&self.name, MAX_NAME));
        let commit: String = self.commit.iter().flat_map(|commit| commit.chars()).take(7).collect();
        match (commit.as_str(), self.clean) {
            ("", _) => name,
            (commit, true) => format!("{name} ({})", clean(commit)),
            (commit, false) => format!("{name} ({} with changes)", clean(commit)),
        }
    }
}

/// The document of `compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document<'a> {
    schema: u32,
    runs: [&'a RunLabel; 2],
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// Returns the document of `compare --json`.
pub fn document<'a>(comparison: &'a Comparison, runs: [&'a RunLabel; 2]) -> Document<'a> {
    Document { schema: SCHEMA, runs, comparison }
}

/// Formats a comparison for the terminal.
pub fn page(comparison: &Comparison, runs: [&RunLabel; 2], style: Style) -> String {
    let mut page = String::new();
    let mut say = |text: &str| {
        page += text.trim_end();
        page.push('\n');
    };
    let [before, after] = runs;
    say(&format!("{} → {}", before.title(), after.title()));
    say(&style.faint(&sides(comparison)));
    say("");
    for row in table(&headline(comparison), style) {
        say(&row);
    }
    let line_measures = comparison.lines.iter().map(|row| &row.own);
    let module_measures = comparison.modules.iter().map(|row| &row.own);
    let tables = [
        ("lines", lines(comparison), no_rows("lines", line_measures)),
        ("modules", modules(comparison), no_rows("modules", module_measures)),
    ];
    for (title, rows, nothing) in tables {
        say("");
        if rows.is_empty() {
            say(&nothing);
            continue;
        }
        say(&style.faint(&format!("{title}, by self time or memory")));
        for row in table(rows.get(..MAX_ROWS).unwrap_or(&rows), style) {
            say(&row);
        }
        if rows.len() > MAX_ROWS {
            say(&style.faint(&format!("and {} more", rows.len() - MAX_ROWS)));
        }
    }
    say("");
    for about in about(comparison) {
        say(&style.faint(&about));
    }
    page
}

/// Formats a comparison as Markdown, for a comment on a pull request.
pub fn markdown(comparison: &Comparison, runs: [&RunLabel; 2]) -> String {
    let [before, after] = runs.map(|run| escaped(&run.title()));
    let mut text = format!("**{before} → {after}**: {}\n\n", escaped(&sides(comparison)));
    markdown_table(&mut text, "", &headline(comparison));
    let line_measures = comparison.lines.iter().map(|row| &row.own);
    let lines = lines(comparison);
    if lines.is_empty() {
        text += &format!("{}\n\n", no_rows("lines", line_measures));
    } else {
        markdown_table(
            &mut text,
            "line (self time or memory)",
            lines.get(..MAX_ROWS).unwrap_or(&lines),
        );
        if lines.len() > MAX_ROWS {
            text += &format!("and {} more\n\n", lines.len() - MAX_ROWS);
        }
    }
    let about: Vec<String> = about(comparison).iter().map(|sentence| escaped(sentence)).collect();
    text += &format!(
        "<details><summary>How changes are tested</summary>\n\n{}\n\n</details>\n",
        about.join("\n")
    );
    text
}

fn markdown_table(text: &mut String, title: &str, rows: &[Row]) {
    *text += &format!("| {title} | before | after | change | |\n|---|---:|---:|---:|---|\n");
    for row in rows {
        let verdict = match row.verdict {
            verdict if verdict.is_change() => format!("**{}**", verdict.name()),
            verdict => verdict.name().to_owned(),
        };
        let indent = if row.name.starts_with(' ') { "&emsp;" } else { "" };
        let name = escaped(row.name.trim());
        *text += &format!(
            "| {indent}{name} | {} | {} | {} | {verdict} |\n",
            row.before, row.after, row.change
        );
    }
    text.push('\n');
}

/// Text as Markdown that shows it unchanged. Names come from the project.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            // A name such as @user or #12 would notify or link.
            '@' | '#' => escaped.push_str(&format!("&#{};", u32::from(character))),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => {
                escaped.push('\\');
                escaped.push(character);
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The text for a table without rows: nothing changed, or changes are unknown.
fn no_rows<'a>(title: &str, measures: impl Iterator<Item = &'a Measure>) -> String {
    let (mut known, mut unknown) = (0, 0);
    let is_time = |time: Option<f64>| time.is_some_and(|time| time > 0.0);
    // Rows with no self time in either run are equal and need no test.
    for measure in measures.filter(|row| is_time(row.before) || is_time(row.after)) {
        *(if measure.verdict == Verdict::Unknown { &mut unknown } else { &mut known }) += 1;
    }
    match (known, unknown) {
        (_, 0) => format!("No significant change in {title}."),
        (0, _) => format!("Changes in {title} are unknown: too few measurements."),
        _ => format!("No significant change in {title}; unknown for {unknown} of them."),
    }
}

/// `cpu, batch size 32, 7 timed iterations → cpu, batch size 32, 3 timed iterations`.
fn sides(comparison: &Comparison) -> String {
    let texts = [&comparison.before, &comparison.after].map(|side| {
        let batch =
            side.batch_size.map(|batch| format!(", batch size {batch}")).unwrap_or_default();
        let ranks = side.world_size.filter(|ranks| *ranks > 1);
        let ranks = ranks.map(|ranks| format!(", {ranks} ranks")).unwrap_or_default();
        let device = if side.device.is_empty() { "unknown device" } else { &side.device };
        format!(
            "{}{ranks}{batch}, {} timed iterations",
            clean(&shorten(device, MAX_NAME)),
            side.timed_iterations
        )
    });
    let [before, after] = texts;
    if before == after { before } else { format!("{before} → {after}") }
}

struct Row {
    name: String,
    before: String,
    after: String,
    change: String,
    verdict: Verdict,
}

fn row(name: impl Into<String>, measure: &Measure, unit: fn(f64) -> String) -> Row {
    let format_value = |value: Option<f64>| value.map_or("-".to_owned(), unit);
    Row {
        name: name.into(),
        before: format_value(measure.before),
        after: format_value(measure.after),
        change: measure.ratio.map(difference).unwrap_or_default(),
        verdict: measure.verdict,
    }
}

fn headline(comparison: &Comparison) -> Vec<Row> {
    let rate = |value: f64| format!("{}/s", units::significant(value));
    let mut rows = vec![row("iteration", &comparison.time, units::duration)];
    rows.push(row("samples", &comparison.throughput, rate));
    rows.push(row("peak memory", &comparison.peak, units::bytes));
    let phases = comparison.phases.iter();
    rows.extend(phases.map(|phase| row(format!("  {}", phase.name), &phase.time, units::duration)));
    rows.retain(|row| row.before != "-" || row.after != "-");
    rows
}

fn lines(comparison: &Comparison) -> Vec<Row> {
    let place = |row: &LineRow| {
        let line = match (row.line_before, row.line_after) {
            (Some(was), Some(is)) if was != is => format!("{is} (was {was})"),
            (Some(line), _) | (None, Some(line)) => line.to_string(),
            (None, None) => String::new(),
        };
        let edited = if row.is_changed { ", edited" } else { "" };
        let scope = match row.scope.as_str() {
            "" => String::new(),
            scope => format!(" {}", clean(&shorten(scope, 24))),
        };
        format!("{}:{line}{edited}{scope}", clean(&shorten(&row.file, 32)))
    };
    let mut rows = Vec::new();
    for line in &comparison.lines {
        push_changes(&mut rows, place(line), &line.own, &line.memory);
    }
    rows
}

fn modules(comparison: &Comparison) -> Vec<Row> {
    let name = |row: &ModuleRow| {
        let path = if row.path.is_empty() { "(model)" } else { &row.path };
        clean(&shorten(&format!("{path} {}", row.type_name), MAX_NAME))
    };
    let mut rows = Vec::new();
    for module in &comparison.modules {
        push_changes(&mut rows, name(module), &module.own, &module.memory);
    }
    rows
}

/// Adds a row for the self time and one for the memory, if they changed.
fn push_changes(rows: &mut Vec<Row>, name: String, own: &Measure, memory: &Measure) {
    if own.verdict.is_change() && own.difference() != 0.0 {
        rows.push(row(name.clone(), own, units::duration));
    }
    if memory.verdict.is_change() && memory.difference() != 0.0 {
        rows.push(row(name, memory, units::bytes));
    }
}

fn table(rows: &[Row], style: Style) -> Vec<String> {
    let width =
        |cell: fn(&Row) -> &str| rows.iter().map(|row| cell(row).width()).max().unwrap_or(0);
    let (names, before) = (width(|row| &row.name), width(|row| &row.before));
    let (after, change) = (width(|row| &row.after), width(|row| &row.change));
    let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
    rows.iter()
        .map(|row| {
            let verdict = match row.verdict {
                verdict if verdict.is_change() => verdict.name().to_owned(),
                verdict => style.faint(verdict.name()),
            };
            format!(
                "{}{}  {}{} → {}{}  {}{}  {verdict}",
                row.name,
                pad(&row.name, names),
                pad(&row.before, before),
                row.before,
                pad(&row.after, after),
                row.after,
                pad(&row.change, change),
                row.change,
            )
        })
        .collect()
}

/// Sentences about how changes were tested.
fn about(comparison: &Comparison) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(why) = &comparison.unlike {
        sentences
            .push(format!("Times and memory cannot be compared: {}.", clean(&shorten(why, 200))));
    }
    if let Some(test) = &comparison.test {
        let (way, p) = match comparison.time.ratio {
            Some(ratio) if ratio < 1.0 => ("faster", test.p_faster),
            _ => ("slower", test.p_slower),
        };
        let few = if test.can_detect_change() { "" } else { "; too few to be significant" };
        sentences.push(format!(
            "Iteration time: {} over {} and {} iterations, p = {p:.3} for {way}{few}.",
            test.name, comparison.before.timed_iterations, comparison.after.timed_iterations
        ));
    }
    if comparison.unlike.is_none() {
        sentences.push(
            "Lines, modules and phases: the profiler covers only a few iterations, so changes are \
            reported only above 10% with non-overlapping ranges, or above their own spread if that \
            is larger."
                .to_owned(),
        );
    }
    sentences.extend(
        comparison.notes.iter().map(|note| format!("Note: {}.", clean(&shorten(note, 200)))),
    );
    sentences
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use ridgeline_compare::compare;
    use ridgeline_compare::fixture::{TRAIN, profile};
    use ridgeline_compare::run::Run;

    fn runs() -> (Run, Run) {
        let (_, mut measured) = profile(TRAIN);
        measured.iteration.timed_ns = vec![99e6, 100e6, 100e6, 101e6, 104e6];
        let before = Run::of(&measured);
        for time in &mut measured.iteration.timed_ns {
            *time *= 1.3;
        }
        measured.iteration.time_ns *= 1.3;
        let line = measured.lines[0].iter_mut().find(|line| line.line == 8).expect("line 8");
        line.self_time.forward += 30e6;
        line.total_time.forward += 30e6;
        measured.modules[1].self_time.forward += 30e6;
        measured.memory.peak_bytes += 50_000_000;
        (before, Run::of(&measured))
    }

    #[test]
    fn a_page() {
        let (before, after) = runs();
        let commit = |name: &str, clean| RunLabel {
            name: name.to_owned(),
            commit: Some("a1b2c3d4e5f6".to_owned()),
            clean,
            ..RunLabel::default()
        };
        let found = compare(&before, &after);
        let style = Style { color: false, width: 100 };
        let shown = page(&found, [&commit("HEAD", true), &commit("last", false)], style);
        expect![[r#"
            HEAD (a1b2c3d) → last (a1b2c3d with changes)
            NVIDIA H200, batch size 32, 5 timed iterations

            iteration     100 ms →  130 ms  +30%  slower
            samples        320/s →   246/s  −23%  slower
            peak memory   120 MB →  170 MB  +42%  larger
              data        8.0 ms →  8.0 ms   ±0%  within noise
              forward      25 ms →   25 ms   ±0%  within noise
              backward     40 ms →   40 ms   ±0%  within noise
              optimizer  20.2 ms → 20.2 ms   ±0%  within noise
              other       6.8 ms →  6.8 ms   ±0%  within noise

            lines, by self time or memory
            train.py:8  50 ms → 80 ms  +60%  slower

            modules, by self time or memory
            conv Conv2d  65 ms → 95 ms  +46%  slower

            Iteration time: Mann-Whitney U over 5 and 5 iterations, p = 0.004 for slower.
            Lines, modules and phases: the profiler covers only a few iterations, so changes are reported only above 10% with non-overlapping ranges, or above their own spread if that is larger.
            Note: both runs used the same code.
        "#]].assert_eq(&shown);
    }

    #[test]
    fn a_table_for_a_pull_request() {
        let (before, mut after) = runs();
        after.lines.iter_mut().for_each(|line| line.scope = "a|b <i>@me</i>".to_owned());
        let name = |name: &str| RunLabel { name: name.to_owned(), ..RunLabel::default() };
        let shown = markdown(&compare(&before, &after), [&name("base_run"), &name("head")]);
        expect![[r#"
            **base\_run → head**: NVIDIA H200, batch size 32, 5 timed iterations

            |  | before | after | change | |
            |---|---:|---:|---:|---|
            | iteration | 100 ms | 130 ms | +30% | **slower** |
            | samples | 320/s | 246/s | −23% | **slower** |
            | peak memory | 120 MB | 170 MB | +42% | **larger** |
            | &emsp;data | 8.0 ms | 8.0 ms | ±0% | within noise |
            | &emsp;forward | 25 ms | 25 ms | ±0% | within noise |
            | &emsp;backward | 40 ms | 40 ms | ±0% | within noise |
            | &emsp;optimizer | 20.2 ms | 20.2 ms | ±0% | within noise |
            | &emsp;other | 6.8 ms | 6.8 ms | ±0% | within noise |

            | line (self time or memory) | before | after | change | |
            |---|---:|---:|---:|---|
            | train.py:8 a\|b &lt;i>&#64;me&lt;/i> | 50 ms | 80 ms | +60% | **slower** |

            <details><summary>How changes are tested</summary>

            Iteration time: Mann-Whitney U over 5 and 5 iterations, p = 0.004 for slower.
            Lines, modules and phases: the profiler covers only a few iterations, so changes are reported only above 10% with non-overlapping ranges, or above their own spread if that is larger.
            Note: both runs used the same code.

            </details>
        "#]].assert_eq(&shown);
    }

    #[test]
    fn pages_without_changes() {
        let (before, _) = runs();
        let found = compare(&before, &before);
        let style = Style { color: false, width: 100 };
        let shown = page(&found, [&RunLabel::default(), &RunLabel::default()], style);
        assert!(shown.contains("No significant change in lines."), "{shown}");
        assert!(shown.contains("both runs used the same code"), "{shown}");
        // Changes are unknown between different devices, and from a single timed iteration.
        let other_device = Run { device: "cpu".to_owned(), ..before.clone() };
        let once = |ns: u64| {
            let mut run = Run { timed_ns: vec![100e6], ..before.clone() };
            run.lines.iter_mut().for_each(|line| line.own_ns += ns);
            run
        };
        for (then, now) in [(before.clone(), other_device), (once(0), once(1_000_000))] {
            let found = compare(&then, &now);
            let shown = page(&found, [&RunLabel::default(), &RunLabel::default()], style);
            let expected = "\nChanges in lines are unknown: too few measurements.\n";
            assert!(shown.contains(expected) && !shown.contains("No lines"), "{shown}");
        }
        // One of the lines did not run in the profiled iterations.
        let mut less = before.clone();
        less.lines.retain(|line| line.line != 19);
        let found = compare(&before, &less);
        let shown = page(&found, [&RunLabel::default(), &RunLabel::default()], style);
        let expected = "No significant change in lines; unknown for 1 of them.";
        assert!(shown.contains(expected) && !shown.contains("gone"), "{shown}");
        let empty = compare(&Run::default(), &Run::default());
        page(&empty, [&RunLabel::default(), &RunLabel::default()], style);
    }
}
