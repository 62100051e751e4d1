//! Where time and memory go, as trees: by module, by line and by phase.
//!
//! What a node says includes its children, and what is left is its own. The leaves are whole
//! numbers that neither overlap nor leave anything out, so the roots of each tree add up to the
//! iteration (but for the rounding of each leaf to a nanosecond) and to the peak.

use std::collections::HashMap;

use serde::Serialize;

use super::{Place, finite, name, whole};
use crate::present::page::{clean, shorten};
use crate::profile::{FileId, LineCost, Phase, PhaseTimes, Profile, Provenance};
use crate::source::Lines;

/// How many nodes a tree has at the most; those that count least are their parents' own.
const MOST_NODES: usize = 20_000;
/// How much of a line's code is shown.
const CODE_CHARACTERS: usize = 120;

/// One way to divide the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// `module`, `line` or `phase`.
    pub key: &'static str,
    /// What to call it.
    pub label: &'static str,
    /// Parents before children.
    pub nodes: Vec<Node>,
    /// Nodes that were too many; what they cost is their parents' own.
    pub left_out: usize,
}

/// A part of the iteration, its children included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Node {
    /// `layer1`, `model.py:41`.
    pub name: String,
    /// More about it: a module's type, a function's file, a line's code.
    pub detail: String,
    /// Index of the node that holds it, or -1.
    pub parent: i64,
    /// Nanoseconds of one iteration.
    pub time_ns: u64,
    /// Bytes alive at the peak.
    pub memory_bytes: u64,
    /// Nanoseconds by phase, in the order of [`Phase::ALL`].
    pub phases: [u64; 5],
    /// How often it ran in one iteration; nothing for what does not run.
    pub calls: Option<f64>,
    /// The time is partly a measured total that was divided by an estimated share.
    pub estimated: bool,
    /// Where it stands.
    pub place: Option<Place>,
}

/// All breakdowns; modules only where there are some.
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
            // Whatever else a profile says, a parent comes before its children.
            parent: module.parent.map_or(-1, |parent| i64::from(parent.0)),
            memory_bytes: module.self_memory.total(),
            phases: phases(&module.self_time),
            calls: calls(module.calls),
            estimated: module.provenance == Provenance::Estimated,
            place: place.and_then(|&(file, line)| Place::of(profile, file, line)),
            ..Node::default()
        });
    }
    let whole_time = phases(&profile.iteration.phases);
    let rest = tree.rest(whole_time, profile.memory.peak_bytes);
    tree.add(Node { name: "outside of modules".to_owned(), parent: -1, ..rest });
    tree
}

fn by_line(profile: &Profile, code: &Code<'_>) -> Tree {
    let mut tree = Tree::default();
    for (file, path, lines) in files(profile) {
        let file_node = tree.add(Node {
            name: name(path),
            parent: -1,
            place: Place::of(profile, file, 1),
            ..Node::default()
        });
        let mut functions: HashMap<&str, i64> = HashMap::new();
        for line in lines {
            let place = Place::of(profile, file, line.line);
            let function = *functions.entry(&line.scope).or_insert_with(|| {
                tree.add(Node {
                    name: function_name(&line.scope),
                    parent: file_node,
                    place,
                    ..Node::default()
                })
            });
            tree.add(Node {
                name: format!("{}:{}", file_name(path), line.line),
                detail: code.of(file, line.line),
                parent: function,
                memory_bytes: line.self_memory.total(),
                phases: phases(&line.self_time),
                calls: calls(line.calls),
                estimated: line.provenance == Provenance::Estimated,
                place,
                ..Node::default()
            });
        }
    }
    for part in &profile.untracked {
        let mut phases = [0; 5];
        phases[part.phase as usize] = whole(part.time_ns);
        tree.add(Node { name: name(&part.name), parent: -1, phases, ..Node::default() });
    }
    let rest = tree.rest([0; 5], profile.memory.peak_bytes);
    tree.add(Node { name: "memory of no line".to_owned(), parent: -1, ..rest });
    tree
}

fn by_phase(profile: &Profile, code: &Code<'_>) -> Tree {
    let mut tree = Tree::default();
    let memory_made = profile.memory.made;
    let before = (None, "before the iteration", memory_made.before);
    let of_phases = Phase::ALL.into_iter().zip(memory_made.phases);
    let made = of_phases.map(|(phase, bytes)| (Some(phase), phase.name(), bytes));
    for (phase, phase_name, made_bytes) in made.chain([before]) {
        let root = tree.add(Node { name: phase_name.to_owned(), parent: -1, ..Node::default() });
        let mut without_line = made_bytes;
        for (file, path, lines) in files(profile) {
            let mut functions: HashMap<&str, i64> = HashMap::new();
            for line in lines {
                let place = Place::of(profile, file, line.line);
                let bytes = line.self_memory_made.get(phase);
                without_line = without_line.saturating_sub(bytes);
                let mut times = [0; 5];
                if let Some(phase) = phase {
                    times[phase as usize] = whole(line.self_time.get(phase));
                }
                if bytes == 0 && times == [0; 5] {
                    continue;
                }
                let function = *functions.entry(&line.scope).or_insert_with(|| {
                    tree.add(Node {
                        name: function_name(&line.scope),
                        detail: name(path),
                        parent: root,
                        place,
                        ..Node::default()
                    })
                });
                tree.add(Node {
                    name: format!("{}:{}", file_name(path), line.line),
                    detail: code.of(file, line.line),
                    parent: function,
                    memory_bytes: bytes,
                    phases: times,
                    calls: calls(line.calls),
                    estimated: line.provenance == Provenance::Estimated,
                    place,
                    ..Node::default()
                });
            }
        }
        for part in profile.untracked.iter().filter(|part| Some(part.phase) == phase) {
            let mut phases = [0; 5];
            phases[part.phase as usize] = whole(part.time_ns);
            tree.add(Node { name: name(&part.name), parent: root, phases, ..Node::default() });
        }
        tree.add(Node {
            name: "memory of no line".to_owned(),
            parent: root,
            memory_bytes: without_line,
            ..Node::default()
        });
    }
    tree
}

/// The files that have lines, with their paths.
fn files(profile: &Profile) -> impl Iterator<Item = (FileId, &str, &[LineCost])> {
    let lines = (0_u32..).map(FileId).zip(&profile.files).zip(&profile.lines);
    lines
        .filter(|(_, lines)| !lines.is_empty())
        .map(|((id, file), lines)| (id, file.path.as_str(), lines.as_slice()))
}

fn file_name(path: &str) -> String {
    name(path.rsplit('/').next().unwrap_or(path))
}

/// Lines without a scope did not run: they hold what the modules own that were made there.
fn function_name(scope: &str) -> String {
    match scope {
        "" => "where modules are made".to_owned(),
        "<module>" => "outside of functions".to_owned(),
        scope => name(scope),
    }
}

fn calls(calls: f64) -> Option<f64> {
    Some(finite(calls)).filter(|calls| *calls > 0.0)
}

fn phases(times: &PhaseTimes) -> [u64; 5] {
    Phase::ALL.map(|phase| whole(times.get(phase)))
}

/// A tree under construction: each node is added with what is its own.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Adds a node below one that was added before; an index that cannot be makes it a root.
    fn add(&mut self, mut node: Node) -> i64 {
        let index = self.nodes.len() as i64;
        if !(0..index).contains(&node.parent) {
            node.parent = -1;
        }
        self.nodes.push(node);
        index
    }

    /// What the nodes leave of the iteration's time by phase and of the peak.
    fn rest(&self, mut phases: [u64; 5], mut memory_bytes: u64) -> Node {
        for node in &self.nodes {
            memory_bytes = memory_bytes.saturating_sub(node.memory_bytes);
            for (left, time_ns) in phases.iter_mut().zip(node.phases) {
                *left = left.saturating_sub(time_ns);
            }
        }
        Node { memory_bytes, phases, ..Node::default() }
    }

    /// Adds children to their parents and leaves out what costs nothing or is too much.
    fn finish(mut self, key: &'static str, label: &'static str) -> Breakdown {
        for index in (0..self.nodes.len()).rev() {
            let (before, rest) = self.nodes.split_at_mut(index);
            let Some(node) = rest.first_mut() else { continue };
            node.time_ns = node.phases.iter().fold(0, |sum, time_ns| time_ns.saturating_add(sum));
            let parent = usize::try_from(node.parent).ok().and_then(|at| before.get_mut(at));
            if let Some(parent) = parent {
                parent.memory_bytes = parent.memory_bytes.saturating_add(node.memory_bytes);
                parent.estimated |= node.estimated;
                for (sum, time_ns) in parent.phases.iter_mut().zip(node.phases) {
                    *sum = sum.saturating_add(time_ns);
                }
            }
        }
        let left_out = self.keep(MOST_NODES);
        Breakdown { key, label, nodes: self.nodes, left_out }
    }

    /// Keeps the nodes that count most, of which a parent is never less than its children.
    fn keep(&mut self, most: usize) -> usize {
        let roots = self.nodes.iter().filter(|node| node.parent == -1);
        let (time_ns, bytes) = roots.fold((0_u64, 0_u64), |(time_ns, bytes), root| {
            (time_ns.saturating_add(root.time_ns), bytes.saturating_add(root.memory_bytes))
        });
        let share = |node: &Node| {
            let of_time = node.time_ns as f64 / time_ns.max(1) as f64;
            of_time.max(node.memory_bytes as f64 / bytes.max(1) as f64)
        };
        let mut order: Vec<(usize, f64)> =
            self.nodes.iter().map(share).enumerate().filter(|(_, share)| *share > 0.0).collect();
        // The sort is stable, so of equals the parent, which comes first, is kept first.
        order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let left_out = order.len().saturating_sub(most);
        order.truncate(most);
        let mut kept: Vec<i64> = vec![-1; self.nodes.len()];
        order.sort_by_key(|(index, _)| *index);
        for (new, (old, _)) in (0..).zip(&order) {
            if let Some(entry) = kept.get_mut(*old) {
                *entry = new;
            }
        }
        let of = |index: i64| usize::try_from(index).ok().and_then(|at| kept.get(at)).copied();
        let nodes = std::mem::take(&mut self.nodes);
        for (index, mut node) in (0_i64..).zip(nodes) {
            if of(index).is_some_and(|new| new >= 0) {
                node.parent = of(node.parent).unwrap_or(-1);
                self.nodes.push(node);
            }
        }
        left_out
    }
}

/// The code of lines, where today's text still is what ran.
struct Code<'a> {
    profile: &'a Profile,
    texts: &'a [Option<&'a str>],
    lines: Vec<Option<Lines>>,
}

impl<'a> Code<'a> {
    fn new(profile: &'a Profile, texts: &'a [Option<&'a str>]) -> Code<'a> {
        let lines = texts.iter().map(|text| text.map(Lines::new)).collect();
        Code { profile, texts, lines }
    }

    fn of(&self, file: FileId, line: u32) -> String {
        self.find(file, line).map(|code| shorten(&clean(code), CODE_CHARACTERS)).unwrap_or_default()
    }

    fn find(&self, file: FileId, line: u32) -> Option<&str> {
        let (file, index) = (file.0 as usize, line.checked_sub(1)? as usize);
        let text = (*self.texts.get(file)?)?;
        let lines = self.lines.get(file)?.as_ref()?;
        let ran = self.profile.files.get(file)?.fingerprint.get(index)?;
        let code = text.get(lines.trimmed(text, line))?;
        (lines.checksums().get(index)? == ran).then_some(code)
    }
}
