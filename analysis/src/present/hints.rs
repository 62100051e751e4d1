//! Inlay hints: the time of a statement at the end of its line.

use std::ops::Range;

use crate::profile::{PhaseTimes, Profile, Provenance};
use crate::source::{CostMap, SourceIndex};
use crate::units;

/// A hint is shorter than this, in characters.
pub const MAX_CHARACTERS: usize = 20;

/// A text at the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Where it stands: after the last character of the statement's last line.
    pub offset: usize,
    /// The line that it stands on, counted from 1.
    pub line: u32,
    /// `4.2 ms · 8%`.
    pub label: String,
    /// Where the number comes from; stale ones are to be shown faded.
    pub provenance: Provenance,
}

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct HintOptions {
    /// Statements under this share of the iteration, 0 to 1, have no hint.
    pub min_share: f64,
    /// Statements under this time, in nanoseconds, have no hint.
    pub min_duration_ns: f64,
    /// Lines that made modules show what those modules cost.
    pub definitions: bool,
    /// The loop's line says how long an iteration takes, for editors that show no lenses.
    pub headline: bool,
}

impl Default for HintOptions {
    fn default() -> HintOptions {
        HintOptions {
            min_share: 0.01,
            min_duration_ns: 1_000.0,
            definitions: true,
            headline: false,
        }
    }
}

/// The hints of one file within `range` (bytes of today's text), by place, one a line.
pub fn hints(
    profile: &Profile,
    costs: &CostMap,
    index: &SourceIndex,
    range: Range<usize>,
    options: &HintOptions,
) -> Vec<Hint> {
    let mut found: Vec<Hint> = Vec::new();
    let lines = index.lines();
    for cost in &costs.statements {
        if cost.span.end < range.start || cost.span.start > range.end {
            continue;
        }
        let share = share(&cost.total_time, profile);
        if share < options.min_share || cost.total_time.total() < options.min_duration_ns {
            continue;
        }
        found.push(Hint {
            offset: lines.trimmed(index.text(), cost.last_line).end,
            line: cost.last_line,
            label: label(cost.total_time.total(), share, cost.provenance),
            provenance: cost.provenance,
        });
    }
    found
}

fn share(time: &PhaseTimes, profile: &Profile) -> f64 {
    let whole = profile.iteration.time_ns;
    if whole > 0.0 { time.total() / whole } else { 0.0 }
}

fn label(time_ns: f64, share: f64, provenance: Provenance) -> String {
    let time = units::duration(time_ns);
    match provenance {
        Provenance::Measured => format!("{time} · {}", units::percent(share)),
        Provenance::Estimated => format!("~{time} · {}", units::percent(share)),
        Provenance::Stale => format!("was {time}"),
    }
}
