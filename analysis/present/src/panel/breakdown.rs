//! Time and memory as trees: by module, by line and by phase.
//!
//! A node includes its children; the remainder is its self cost. The leaves are whole numbers that
//! neither overlap nor omit anything, so the roots of each tree add up to the iteration (up to
//! rounding each leaf to a nanosecond) and to the peak.

use std::collections::HashMap;

use super::code::Code;
use super::tree::{Breakdown, Node, Tree};
use super::{Place, finite, name, parts, whole};
use crate::explained;
use crate::lenses::kinds;
use crate::share::share_of_peak;
use ridgeline_profile::{
    FileId, LineCost, MemoryByKind, Phase, PhaseTimes, Profile, Provenance, Untracked,
};

/// Memory below this share of the peak is not split by kind.
const MIN_PEAK_SHARE: f64 = 0.01;
/// Memory alive at the peak that no line of the user allocated.
const NO_LINE: &str = "not attributed to a line";

/// Returns all breakdowns; the one by module only if there are modules.
pub(super) fn all(profile: &Profile, texts: &[Option<&str>]) -> Vec<Breakdown> {
    let code = Code::new(profile, texts);
    let mut all = Vec::new();
    if !profile.modules.is_empty() {
        all.push(by_module(profile).finish("module", "module"));
    }
    all.push(by_line(profile, &code).finish("line", "line"));
    all.push(by_phase(profile, &code).finish("phase", "phase"));
    all
}

fn by_module(profile: &Profile) -> Tree {
    let mut tree = Tree::default();
    for module in &profile.modules {
        let place = module.definition.first();
        tree.add(Node {
            name: match module.path.rsplit('.').next().unwrap_or_default() {
                "" => name(&module.type_name),
                last => name(last),
            },
            detail: name(&module.type_name),
            // `Tree::add` makes a module with a parent that does not come before it a root.
            parent: module.parent.map_or(-1, |parent| i64::from(parent.0)),
            memory_bytes: module.self_memory.total(),
            phases: phases(&module.self_time),
            calls: calls(module.calls),
            estimated: module.provenance == Provenance::Estimated,
            holds: holds(&module.memory, profile),
            facts: explained::of_modules(std::iter::once(module), profile),
            place: place.and_then(|&(file, line)| Place::of(profile, file, line)),
            ..Node::default()
        });
    }
    let whole_time = phases(&profile.iteration.phases);
    let rest = tree.rest(whole_time, profile.memory.peak_bytes);
    tree.add(Node { name: "outside modules".to_owned(), parent: -1, ..rest });
    tree
}

fn by_line(profile: &Profile, code: &Code<'_>) -> Tree {
    let mut tree = Tree::default();
    for (file, path, lines) in files(profile) {
        let place = Place::of(profile, file, 1);
        let file_node = Node { name: name(path), parent: -1, place, ..Node::default() };
        let file_node = tree.add(file_node);
        let mut functions = HashMap::new();
        for line in lines {
            let place = Place::of(profile, file, line.line);
            let parent = *functions.entry(line.scope.as_str()).or_insert_with(|| {
                let name = function_name(&line.scope);
                tree.add(Node { name, parent: file_node, place, ..Node::default() })
            });
            tree.add(Node {
                parent,
                place,
                memory_bytes: line.self_memory.total(),
                phases: phases(&line.self_time),
                holds: holds(&line.self_memory, profile),
                parts: parts::of_line(profile, file, line, code),
                facts: explained::of_part(
                    line.utilization.as_ref(),
                    line.self_time.total(),
                    profile,
                ),
                ..line_node(line, file, path, code)
            });
        }
    }
    for part in &profile.untracked {
        tree.add(untracked_node(part, -1));
    }
    let rest = tree.rest([0; 5], profile.memory.peak_bytes);
    tree.add(Node { name: NO_LINE.to_owned(), parent: -1, ..rest });
    tree
}

fn by_phase(profile: &Profile, code: &Code<'_>) -> Tree {
    let mut tree = Tree::default();
    for phase in Phase::ALL.map(Some).into_iter().chain([None]) {
        let phase_name = phase.map_or("before the step", Phase::name);
        let facts = phase.map_or_else(Vec::new, |phase| explained::of_phase(phase, profile));
        let phase_node = Node { name: phase_name.to_owned(), parent: -1, facts, ..Node::default() };
        let root = tree.add(phase_node);
        let mut without_line = profile.memory.by_age.get(phase);
        for (file, path, lines) in files(profile) {
            let mut functions = HashMap::new();
            for line in lines {
                let place = Place::of(profile, file, line.line);
                let memory_bytes = line.self_memory_made.get(phase);
                let time_ns = phase.map_or(0, |phase| whole(line.self_time.get(phase)));
                if memory_bytes == 0 && time_ns == 0 {
                    continue;
                }
                without_line = without_line.saturating_sub(memory_bytes);
                let parent = *functions.entry(line.scope.as_str()).or_insert_with(|| {
                    let (name, detail) = (function_name(&line.scope), name(path));
                    tree.add(Node { name, detail, parent: root, place, ..Node::default() })
                });
                let phases = in_phase(phase, time_ns);
                let node = line_node(line, file, path, code);
                tree.add(Node { parent, place, memory_bytes, phases, ..node });
            }
        }
        for part in profile.untracked.iter().filter(|part| Some(part.phase) == phase) {
            tree.add(untracked_node(part, root));
        }
        let name = NO_LINE.to_owned();
        tree.add(Node { name, parent: root, memory_bytes: without_line, ..Node::default() });
    }
    tree
}

/// Returns the parts of a line's node that are the same in every tree.
fn line_node(line: &LineCost, file: FileId, path: &str, code: &Code<'_>) -> Node {
    Node {
        name: format!("{}:{}", file_name(path), line.line),
        detail: code.of(file, line.line),
        calls: calls(line.calls),
        estimated: line.provenance == Provenance::Estimated,
        ..Node::default()
    }
}

fn untracked_node(part: &Untracked, parent: i64) -> Node {
    let phases = in_phase(Some(part.phase), whole(part.time_ns));
    Node { name: name(&part.name), parent, phases, ..Node::default() }
}

fn in_phase(phase: Option<Phase>, time_ns: u64) -> [u64; 5] {
    Phase::ALL.map(|each| if Some(each) == phase { time_ns } else { 0 })
}

/// Returns the files that have lines, with their paths.
fn files(profile: &Profile) -> impl Iterator<Item = (FileId, &str, &[LineCost])> {
    let lines = (0_u32..).map(FileId).zip(&profile.files).zip(&profile.lines);
    lines
        .filter(|(_, lines)| !lines.is_empty())
        .map(|((id, file), lines)| (id, file.path.as_str(), lines.as_slice()))
}

fn file_name(path: &str) -> String {
    name(path.rsplit('/').next().unwrap_or(path))
}

/// The name of a scope. Lines without a scope did not run: their memory is owned by the modules
/// created there.
fn function_name(scope: &str) -> String {
    match scope {
        "" => "module construction".to_owned(),
        "<module>" => "outside functions".to_owned(),
        scope => name(scope),
    }
}

/// The memory by kind; empty if it is negligible.
fn holds(memory: &MemoryByKind, profile: &Profile) -> String {
    if share_of_peak(memory.total(), profile) < MIN_PEAK_SHARE {
        String::new()
    } else {
        kinds(memory)
    }
}

fn calls(calls: f64) -> Option<f64> {
    Some(finite(calls)).filter(|calls| *calls > 0.0)
}

fn phases(times: &PhaseTimes) -> [u64; 5] {
    Phase::ALL.map(|phase| whole(times.get(phase)))
}
