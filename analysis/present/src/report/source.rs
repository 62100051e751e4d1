//! The current source with its costs, one row for each line. A row has an id such as `f0l12`, made
//! of the file and the line in the text that ran, which the panel links to.

use std::fmt::Write as _;

use super::{style, text};
use crate::cost_map::CostMap;
use crate::headline::with_provenance;
use crate::lenses::kinds;
use crate::share::{share_of_peak, share_of_whole};
use ridgeline_base::printable::shorten;
use ridgeline_base::units;
use ridgeline_profile::{FileId, LineCost, Profile};
use ridgeline_python::{LineMap, Lines, SourceIndex};

/// The maximum number of lines shown, over all files.
const MAX_LINES: u32 = 20_000;
/// Maximum length of a line, in characters.
const MAX_LINE: usize = 400;

/// Returns the sources of the files that have costs, most expensive first.
pub(super) fn sources(profile: &Profile, texts: &[Option<&str>]) -> String {
    let mut files: Vec<(FileId, &str, f64)> = (0_u32..)
        .map(FileId)
        .zip(texts)
        .filter_map(|(file, source)| {
            let lines = profile.lines.get(file.0 as usize).filter(|lines| !lines.is_empty())?;
            let self_ns = |line: &LineCost| line.self_time.total();
            Some((file, (*source)?, lines.iter().map(self_ns).sum()))
        })
        .collect();
    files.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
    let mut html = String::new();
    if !files.is_empty() {
        html.push_str("<h2>Source</h2>\n");
    }
    let mut lines_left = MAX_LINES;
    for (file, source, _) in files {
        lines_left -= write_source(&mut html, profile, file, source, lines_left);
    }
    html
}

/// Writes at most `max_lines` lines and returns the number written.
fn write_source(
    html: &mut String,
    profile: &Profile,
    file: FileId,
    source: &str,
    max_lines: u32,
) -> u32 {
    let index = SourceIndex::new(source);
    let costs = CostMap::build(profile, file, &index);
    let path = profile.files.get(file.0 as usize).map_or("?", |file| file.path.as_str());
    let path = text(&shorten(path, 200));
    let lines = index.lines();
    let shown = lines.count().min(max_lines);
    let ran_as = lines_that_ran(profile, file, lines);
    let _ = write!(
        html,
        "<h3>{path}</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{path}\">\
         <table class=\"src\"><thead><tr><th class=\"n\">time</th><th class=\"n\">share</th>\
         <th class=\"n\">memory</th><th class=\"n\">line</th><th>code</th></tr></thead><tbody>\n"
    );
    for line in 1..=shown {
        let statement = costs.statement_on_line(line).filter(|cost| cost.first_line == line);
        let definition = costs.definition_on_line(line).filter(|cost| cost.first_line == line);
        let statement_cost =
            statement.map(|cost| (cost.total_time.total(), cost.total_memory, cost.provenance));
        let definition_cost =
            definition.map(|cost| (cost.total_time.total(), cost.memory, cost.provenance));
        let highest_cost = match (statement_cost, definition_cost) {
            (Some(statement), Some(definition)) if definition.0 > statement.0 => Some(definition),
            (statement, definition) => statement.or(definition),
        };
        let (mut time, mut share, mut memory) = (String::new(), String::new(), String::new());
        let (mut class, mut title) = (String::new(), String::new());
        if let Some((time_ns, bytes, provenance)) = highest_cost {
            let share_of_iteration = share_of_whole(time_ns, profile);
            if share_of_iteration >= 0.0005 {
                time = with_provenance(units::duration(time_ns), provenance);
                share = units::percent(share_of_iteration);
            }
            if let Some(heat) = style::heat(share_of_iteration) {
                class = format!(" class=\"{heat}\"");
            }
            if share_of_peak(bytes.total(), profile) >= 0.0005 {
                memory = units::bytes(bytes.total() as f64);
                title = format!(" title=\"{}\"", text(&kinds(&bytes)));
            }
        }
        let ran_as = ran_as.get(line as usize - 1).copied().flatten();
        let id = ran_as.map(|ran| format!(" id=\"f{}l{ran}\"", file.0)).unwrap_or_default();
        let start = lines.start_of(line);
        let code = index.text().get(start..lines.trimmed(index.text(), line).end);
        let code: String = code.unwrap_or_default().chars().take(MAX_LINE).collect();
        let _ = writeln!(
            html,
            "<tr{id}{class}><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\"{title}>{memory}</td><td class=\"l\">{line}</td><td>{}</td></tr>",
            text(&time),
            text(&share),
            text(&code.replace('\t', "    ")),
        );
    }
    html.push_str("</tbody></table></div>\n");
    if lines.count() > shown {
        html.push_str("<p class=\"quiet\">The rest of the file is not shown.</p>\n");
    }
    shown
}

/// For each line of the current text, returns its line in the text that ran. `None` for new lines.
fn lines_that_ran(profile: &Profile, file: FileId, current: &Lines) -> Vec<Option<u32>> {
    let ran = profile.files.get(file.0 as usize).map_or(&[][..], |file| &file.fingerprint);
    if ran.is_empty() {
        return (1..=current.count()).map(Some).collect();
    }
    let map = LineMap::new(ran, current.checksums());
    let mut lines = vec![None; current.count() as usize];
    for (old, _) in (1_u32..).zip(ran) {
        let place = map.place(old).and_then(|place| lines.get_mut(place.line as usize - 1));
        if let Some(line) = place {
            line.get_or_insert(old);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_compare::fixture::{TRAIN, profile};

    #[test]
    fn row_ids_are_the_lines_that_ran() {
        let (source, mut profile) = profile(TRAIN);
        let today = format!("import torch\n\n{source}");
        let html = sources(&profile, &[Some(&today)]);
        let row = |id: &str| html.lines().find(|row| row.contains(&format!("id=\"{id}\"")));
        let row_18 = row("f0l18").expect("a row");
        assert!(row_18.contains(">20</td><td>        loss.backward()</td>"), "{row_18}");
        assert!(html.contains("<tr><td"), "new lines have no id");
        profile.files[0].fingerprint.clear();
        let html = sources(&profile, &[Some(&today)]);
        assert!(html.contains("id=\"f0l1\""));
    }

    #[test]
    fn long_sources_are_truncated() {
        let (source, mut profile) = profile(TRAIN);
        profile.files.push(profile.files[0].clone());
        profile.lines.push(profile.lines[0].clone());
        let long = source + &"x = 1\n".repeat(30_000);
        let html = sources(&profile, &[Some(&long), Some(&long)]);
        assert_eq!(html.matches("<tr").count(), MAX_LINES as usize + 2);
        assert_eq!(html.matches("is not shown").count(), 2);
    }
}
