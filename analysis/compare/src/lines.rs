//! Matches lines of two runs by checksum.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::run::{Run, RunLine};
use ridgeline_python::LineMap;

/// Indices into the lines of the two runs; at least one of them is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinePair {
    pub before: Option<usize>,
    pub after: Option<usize>,
    /// Whether the line was edited: the later line replaces the earlier one at the same place.
    pub is_changed: bool,
}

/// Matches every line of both runs, each in exactly one pair.
///
/// Within a file, lines with a cost are diffed like text: lines that stayed in order, lines that
/// moved, and lines that were replaced one for one within a function. A line that moved to another
/// file is matched if it is unique on both sides.
pub(super) fn matched(before: &Run, after: &Run) -> Vec<LinePair> {
    let (old, new) = (by_file(before), by_file(after));
    let mut matches: Vec<Option<(usize, bool)>> = vec![None; before.lines.len()];
    let mut is_taken = vec![false; after.lines.len()];
    for (path, old) in &old {
        let Some(new) = new.get(path) else { continue };
        for (from, to, is_changed) in within_file((before, old), (after, new)) {
            let slot = matches.get_mut(from).zip(is_taken.get_mut(to));
            if let Some((slot, taken)) = slot.filter(|(slot, taken)| slot.is_none() && !**taken) {
                (*slot, *taken) = (Some((to, is_changed)), true);
            }
        }
    }
    let unmatched_old =
        unique_lines(&before.lines, |at| matches.get(at).is_some_and(Option::is_none));
    let unmatched_new =
        unique_lines(&after.lines, |at| is_taken.get(at).is_some_and(|taken| !taken));
    for (key, from) in unmatched_old {
        if let Some(&to) = unmatched_new.get(&key)
            && let Some((slot, taken)) = matches.get_mut(from).zip(is_taken.get_mut(to))
        {
            (*slot, *taken) = (Some((to, false)), true);
        }
    }
    let old = matches.iter().enumerate().map(|(at, found)| LinePair {
        before: Some(at),
        after: found.map(|(to, _)| to),
        is_changed: found.is_some_and(|(_, is_changed)| is_changed),
    });
    let new = is_taken.iter().enumerate().filter(|(_, taken)| !**taken);
    let new = new.map(|(at, _)| LinePair { before: None, after: Some(at), is_changed: false });
    old.chain(new).collect()
}

/// Counts the lines of a run's texts that have no cost, by checksum. A line that runs only
/// sometimes may have no cost in the profiled iterations.
pub(super) fn without_cost(run: &Run) -> HashMap<u32, usize> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for checksum in run.texts.iter().flat_map(|text| &text.checksums) {
        *counts.entry(*checksum).or_default() += 1;
    }
    for line in &run.lines {
        if let Some(count) = counts.get_mut(&line.checksum) {
            *count = count.saturating_sub(1);
        }
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// Returns the indices of lines by file, in text order.
fn by_file(run: &Run) -> BTreeMap<&str, Vec<usize>> {
    let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, line) in run.lines.iter().enumerate() {
        files.entry(run.file(line)).or_default().push(at);
    }
    for lines in files.values_mut() {
        lines.sort_by_key(|at| run.lines.get(*at).map(|line| line.line));
    }
    files
}

type Side<'a> = (&'a Run, &'a [usize]);

fn within_file<'a>(
    (before, old): (&'a Run, &'a Vec<usize>),
    (after, new): (&'a Run, &'a Vec<usize>),
) -> Vec<(usize, usize, bool)> {
    let (old, new): (Side<'_>, Side<'_>) = ((before, old), (after, new));
    let checksums = |(run, lines): Side<'_>| -> Vec<u32> {
        let found = lines.iter().filter_map(|at| run.lines.get(*at));
        found.map(|line| line.checksum).collect()
    };
    let (then, now) = (checksums(old), checksums(new));
    let is_known = |checksums: &[u32]| checksums.iter().any(|checksum| *checksum != 0);
    if !is_known(&then) || !is_known(&now) {
        return by_number(old, new);
    }
    let map = LineMap::new(&then, &now);
    let mut found = Vec::new();
    for (number, &from) in (1_u32..).zip(old.1) {
        let Some(place) = map.place(number) else { continue };
        let Some(&to) = new.1.get((place.line as usize).saturating_sub(1)) else { continue };
        let scope = |run: &'a Run, at: usize| run.lines.get(at).map(|line| line.scope.as_str());
        // A line that was replaced within a function is usually the same line, edited.
        if !place.changed || scope(before, from) == scope(after, to) {
            found.push((from, to, place.changed));
        }
    }
    found
}

/// Matches lines by number, for runs without checksums.
fn by_number((before, old): Side<'_>, (after, new): Side<'_>) -> Vec<(usize, usize, bool)> {
    fn key(run: &Run, at: usize) -> Option<(u32, &str)> {
        run.lines.get(at).map(|line| (line.line, line.scope.as_str()))
    }
    let mut places: HashMap<(u32, &str), VecDeque<usize>> = HashMap::new();
    for &at in new {
        if let Some(key) = key(after, at) {
            places.entry(key).or_default().push_back(at);
        }
    }
    let found = old.iter().filter_map(|&from| {
        let to = places.get_mut(&key(before, from)?)?.pop_front()?;
        Some((from, to, false))
    });
    found.collect()
}

/// Returns the lines that are unique by scope and checksum among those for which `take` returns
/// true.
fn unique_lines(lines: &[RunLine], take: impl Fn(usize) -> bool) -> BTreeMap<(&str, u32), usize> {
    let mut found: BTreeMap<(&str, u32), Option<usize>> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        if line.checksum != 0 && take(at) {
            let key = (line.scope.as_str(), line.checksum);
            found.entry(key).and_modify(|slot| *slot = None).or_insert(Some(at));
        }
    }
    found.into_iter().filter_map(|(key, at)| Some((key, at?))).collect()
}
