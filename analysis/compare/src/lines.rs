//! Which line of one run is which of another, told by checksums alone.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::run::{Run, RunLine};
use ridgeline_python::LineMap;

/// Indices into the lines of the two runs; one of them may be nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matched {
    pub before: Option<usize>,
    pub after: Option<usize>,
    /// The later line stands in the place of the earlier one and reads differently.
    pub is_changed: bool,
}

/// Every line of both runs, once.
///
/// Within a file the lines that cost something are compared as texts are: what stayed in order, what
/// moved, and what was replaced one for one within a function. A line that is in another file now is
/// found where it is the only one like it on both sides.
pub(super) fn matched(before: &Run, after: &Run) -> Vec<Matched> {
    let (old, new) = (by_file(before), by_file(after));
    let mut to: Vec<Option<(usize, bool)>> = vec![None; before.lines.len()];
    let mut is_taken = vec![false; after.lines.len()];
    for (path, old) in &old {
        let Some(new) = new.get(path) else { continue };
        for (from, into, is_changed) in within_file((before, old), (after, new)) {
            let place = to.get_mut(from).zip(is_taken.get_mut(into));
            if let Some((place, taken)) = place.filter(|(place, taken)| place.is_none() && !**taken)
            {
                (*place, *taken) = (Some((into, is_changed)), true);
            }
        }
    }
    let lone_old = lone(&before.lines, |at| to.get(at).is_some_and(Option::is_none));
    let lone_new = lone(&after.lines, |at| is_taken.get(at).is_some_and(|taken| !taken));
    for (key, from) in lone_old {
        if let Some(&into) = lone_new.get(&key)
            && let Some((place, taken)) = to.get_mut(from).zip(is_taken.get_mut(into))
        {
            (*place, *taken) = (Some((into, false)), true);
        }
    }
    let old = to.iter().enumerate().map(|(at, found)| Matched {
        before: Some(at),
        after: found.map(|(into, _)| into),
        is_changed: found.is_some_and(|(_, is_changed)| is_changed),
    });
    let new = is_taken.iter().enumerate().filter(|(_, taken)| !**taken);
    let new = new.map(|(at, _)| Matched { before: None, after: Some(at), is_changed: false });
    old.chain(new).collect()
}

/// How many lines of a run's texts read so, by checksum, and are none of those that cost something: a
/// line that runs at times may have cost nothing in the iterations that were watched.
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

/// Indices of lines by file, in the order of the text.
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
        let Some(&into) = new.1.get((place.line as usize).saturating_sub(1)) else { continue };
        let scope = |run: &'a Run, at: usize| run.lines.get(at).map(|line| line.scope.as_str());
        // What was replaced within a function is mostly the same line, edited.
        if !place.changed || scope(before, from) == scope(after, into) {
            found.push((from, into, place.changed));
        }
    }
    found
}

/// Without checksums a line is where it was.
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
        let into = places.get_mut(&key(before, from)?)?.pop_front()?;
        Some((from, into, false))
    });
    found.collect()
}

/// Lines that are the only ones of their scope and checksum among those that `take` wants.
fn lone(lines: &[RunLine], take: impl Fn(usize) -> bool) -> BTreeMap<(&str, u32), usize> {
    let mut found: BTreeMap<(&str, u32), Option<usize>> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        if line.checksum != 0 && take(at) {
            let key = (line.scope.as_str(), line.checksum);
            found.entry(key).and_modify(|place| *place = None).or_insert(Some(at));
        }
    }
    found.into_iter().filter_map(|(key, at)| Some((key, at?))).collect()
}
