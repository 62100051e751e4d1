//! Terminal pages: a file's source with its costs in the margin, and a summary of the profile.

mod summary;

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use anstyle::{AnsiColor, Style as Ansi};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::share::{share_of_peak, share_of_whole};
use crate::cost_map::CostMap;
use ridgeline_base::printable::clean;
use ridgeline_base::units;
use ridgeline_profile::{MemoryByKind, PhaseTimes, Profile, Provenance};
use ridgeline_python::SourceIndex;

pub use summary::summary;

/// The capabilities of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use ANSI colors.
    pub color: bool,
    /// Width in columns.
    pub width: usize,
}

const FAINT: Ansi = Ansi::new().dimmed();
const BOLD: Ansi = Ansi::new().bold();
const WARM: Ansi = AnsiColor::Yellow.on_default();
const HOT: Ansi = AnsiColor::Red.on_default().bold();
const CALM: Ansi = AnsiColor::Cyan.on_default();

/// Pages for narrower terminals have this width, in columns.
const MIN_WIDTH: usize = 40;
/// Pages for wider terminals have this width, in columns.
const MAX_WIDTH: usize = 200;
/// Tab width in columns.
const TAB: usize = 4;
/// The number of context lines before and after a line with a cost.
const CONTEXT_LINES: usize = 3;
/// Shorter stretches of lines are not folded.
const MIN_FOLD: usize = 6;
/// The maximum number of enclosing functions and classes shown for a line.
const MAX_SCOPES: usize = 8;
/// Lines from this share of the iteration on are warm.
const WARM_SHARE: f64 = 0.05;
/// Lines from this share of the iteration on are hot.
const HOT_SHARE: f64 = 0.2;

/// Formats a file's source with its costs in the margin. Long stretches without costs are folded.
pub fn annotated_source(
    profile: &Profile,
    costs: &CostMap,
    index: &SourceIndex,
    style: Style,
) -> String {
    let margin = Margin::new(style);
    let mut page = String::new();
    let _ = writeln!(page, "{}", style.paint(FAINT, &margin.heading()));
    let rows: Vec<Option<Row>> =
        (1..=line_count(index)).map(|line| row(profile, costs, line)).collect();
    let is_shown = shown_lines(&rows, index);
    let mut line = 1;
    for group in is_shown.chunk_by(|a, b| a == b) {
        let is_folded = group.first() == Some(&false) && group.len() >= MIN_FOLD;
        if is_folded {
            let fold = format!("{:>width$}⋯ {} lines", "", group.len(), width = margin.width());
            let _ = writeln!(page, "{}", style.paint(FAINT, &fold));
        }
        for row in rows.iter().skip(line as usize - 1).take(group.len()) {
            if !is_folded {
                page += &margin.row(profile, row.as_ref(), line, index, style);
            }
            line += 1;
        }
    }
    page
}

/// Returns the lines of a range, counted from 1, with their costs in the margin. Folds none.
pub fn annotated_lines(
    profile: &Profile,
    costs: &CostMap,
    index: &SourceIndex,
    lines: RangeInclusive<u32>,
    style: Style,
) -> String {
    let margin = Margin::new(style);
    let mut page = format!("{}\n", style.paint(FAINT, &margin.heading()));
    for line in *lines.start().max(&1)..=*lines.end().min(&line_count(index)) {
        page += &margin.row(profile, row(profile, costs, line).as_ref(), line, index, style);
    }
    page
}

/// The number of lines, without the empty line after a final newline.
fn line_count(index: &SourceIndex) -> u32 {
    let count = index.lines().count();
    let ends_with_newline = index.lines().start_of(count) == index.text().len() && count > 1;
    count - u32::from(ends_with_newline)
}

/// For each line, returns whether it is shown: lines with costs, their context lines, and the
/// enclosing `def` and `class` lines.
fn shown_lines(rows: &[Option<Row>], index: &SourceIndex) -> Vec<bool> {
    let mut shown = vec![false; rows.len()];
    let mut show = |first: usize, last: usize| {
        let last = last.min(rows.len());
        shown.get_mut(first.min(last)..last).unwrap_or_default().fill(true);
    };
    let mut scope_before = 0;
    for (at, _) in rows.iter().enumerate().filter(|(_, row)| row.is_some()) {
        show(at.saturating_sub(CONTEXT_LINES), at + 1 + CONTEXT_LINES);
        let start = index.lines().trimmed(index.text(), u32::try_from(at + 1).unwrap_or(u32::MAX));
        let scope = index.scope_at(start.start);
        if scope == scope_before {
            continue;
        }
        scope_before = scope;
        let mut enclosing = index.scopes().get(scope);
        for _ in 0..MAX_SCOPES {
            let Some(scope) = enclosing else { break };
            if let Some(header) = scope.statement.and_then(|at| index.statements().get(at)) {
                show(header.first_line as usize - 1, header.last_line as usize);
            }
            enclosing = scope.parent.and_then(|parent| index.scopes().get(parent as usize));
        }
    }
    shown
}

/// The costs in the margin of a line.
struct Row {
    time: PhaseTimes,
    memory: MemoryByKind,
    provenance: Provenance,
}

/// Returns the row for the first line of a statement: the larger of its own cost and that of the
/// modules it creates.
fn row(profile: &Profile, costs: &CostMap, line: u32) -> Option<Row> {
    let counts = |row: &Row| {
        share_of_whole(row.time.total(), profile) >= 0.0005
            || share_of_peak(row.memory.total(), profile) >= 0.0005
    };
    let statement = costs.statement_on_line(line).filter(|cost| cost.first_line == line);
    let statement = statement.map(|cost| Row {
        time: cost.total_time,
        memory: cost.total_memory,
        provenance: cost.provenance,
    });
    let definition = costs.definition_on_line(line).filter(|cost| cost.first_line == line);
    let definition = definition.map(|cost| Row {
        time: cost.total_time,
        memory: cost.memory,
        provenance: cost.provenance,
    });
    match (statement.filter(counts), definition.filter(counts)) {
        (Some(statement), Some(definition)) => {
            let own_is_more = statement.time.total() >= definition.time.total();
            Some(if own_is_more { statement } else { definition })
        }
        (statement, definition) => statement.or(definition),
    }
}

/// The columns that fit the terminal.
struct Margin {
    width: usize,
    phases: bool,
    memory: bool,
    bar: usize,
}

const COLUMN: usize = 9;
const SHARE: usize = 6;

impl Margin {
    fn new(style: Style) -> Margin {
        let width = style.width.clamp(MIN_WIDTH, MAX_WIDTH);
        Margin {
            width,
            phases: width >= 100,
            memory: width >= 64,
            bar: if width >= 80 { 8 } else { 4 },
        }
    }

    /// The width up to the line numbers, in columns.
    fn width(&self) -> usize {
        let phases = if self.phases { 2 * COLUMN } else { 0 };
        let memory = if self.memory { COLUMN } else { 0 };
        COLUMN + SHARE + 1 + self.bar + phases + memory + 1
    }

    fn heading(&self) -> String {
        let mut text =
            format!("{:>COLUMN$}{:>SHARE$} {:bar$}", "time", "share", "", bar = self.bar);
        if self.phases {
            text += &format!("{:>COLUMN$}{:>COLUMN$}", "forward", "backward");
        }
        if self.memory {
            text += &format!("{:>COLUMN$}", "memory");
        }
        text.trim_end().to_owned()
    }

    fn row(
        &self,
        profile: &Profile,
        row: Option<&Row>,
        line: u32,
        index: &SourceIndex,
        style: Style,
    ) -> String {
        let digits = index.lines().count().max(1).ilog10() as usize + 1;
        let numbers = style.paint(FAINT, &format!("{line:>digits$} │"));
        let taken = self.width() + digits + 3;
        let start = index.lines().start_of(line);
        let code = index.text().get(start..index.lines().trimmed(index.text(), line).end);
        let code = fit(code.unwrap_or_default(), self.width.saturating_sub(taken));
        let costs = match row {
            Some(row) => self.costs(profile, row, style),
            None => " ".repeat(self.width()),
        };
        let space = if code.is_empty() { "" } else { " " };
        format!("{costs}{numbers}{space}{code}\n")
    }

    fn costs(&self, profile: &Profile, row: &Row, style: Style) -> String {
        let total = row.time.total();
        let share = share_of_whole(total, profile);
        let mark = match row.provenance {
            Provenance::Measured => "",
            Provenance::Estimated => "~",
            Provenance::Stale => "?",
        };
        let time = |ns: f64| if ns > 0.0 { units::duration(ns) } else { String::new() };
        let color = match row.provenance {
            Provenance::Stale => FAINT,
            _ if share >= HOT_SHARE => HOT,
            _ if share >= WARM_SHARE => WARM,
            _ => Ansi::new(),
        };
        let shown = if total > 0.0 { format!("{mark}{}", time(total)) } else { String::new() };
        let percent = if total > 0.0 { units::percent(share) } else { String::new() };
        let mut text = style.paint(color, &format!("{shown:>COLUMN$}{percent:>SHARE$}"));
        text += &format!(" {}", style.paint(color, &bar(share, self.bar)));
        if self.phases {
            let forward = time(row.time.forward);
            let backward = time(row.time.backward);
            text += &format!("{forward:>COLUMN$}{backward:>COLUMN$}");
        }
        if self.memory {
            let bytes = row.memory.total();
            let is_much = share_of_peak(bytes, profile) >= 0.0005;
            let memory = if is_much { units::bytes(bytes as f64) } else { String::new() };
            text += &style.paint(CALM, &format!("{memory:>COLUMN$}"));
        }
        text + " "
    }
}

impl Style {
    /// Formats headings.
    pub(super) fn bold(self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    /// Formats secondary text.
    pub(super) fn faint(self, text: &str) -> String {
        self.paint(FAINT, text)
    }

    fn paint(self, look: Ansi, text: &str) -> String {
        if self.color && !text.trim().is_empty() {
            format!("{look}{text}{look:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Formats a share as a bar of blocks, in eighths of a cell; always `cells` wide.
fn bar(share: f64, cells: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    // Any positive share is visible.
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let part = match eighths % 8 {
        1 => "▏",
        2 => "▎",
        3 => "▍",
        4 => "▌",
        5 => "▋",
        6 => "▊",
        7 => "▉",
        _ => "",
    };
    let text = format!("{}{part}", "█".repeat(eighths / 8));
    let used = eighths.div_ceil(8);
    text + &" ".repeat(cells.saturating_sub(used))
}

/// Fits a line of source into `columns` columns: expands tabs, replaces control characters, counts
/// wide characters as two columns, and truncates with `…`.
fn fit(code: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    // A line may be megabytes long, so only inspect as much of it as could be shown.
    for letter in code.chars().take(4 * columns + 1) {
        let shown = match letter {
            '\t' => " ".repeat(TAB - used % TAB),
            '\u{feff}' if used == 0 => String::new(),
            letter => clean(letter.encode_utf8(&mut [0; 4])),
        };
        let width = if letter == '\t' { shown.len() } else { letter_width(&shown) };
        if used + width > columns {
            while used + 1 > columns
                && let Some(last) = text.pop()
            {
                used -= last.width().unwrap_or(0).min(used);
            }
            text.push('…');
            return text;
        }
        used += width;
        text.push_str(&shown);
    }
    text
}

fn letter_width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

#[cfg(test)]
mod tests;
