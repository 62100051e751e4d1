//! [`Evidence`]: what rules look at. One measured iteration, by line, and the text that ran.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use ridgeline_graph::graph::{Graph, Task, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind};
use ridgeline_graph::recorded::TRUSTED_REPLAY;
use ridgeline_graph::simulate;
use ridgeline_operators::operator::Operator;
use ridgeline_optimize::facts::Probes;
use ridgeline_optimize::optimization::Bound;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::study::{self, Subject};
use ridgeline_profile::{FileId, LineCost, Phase, Profile};
use ridgeline_python::LineMap;
use ridgeline_recording::manifest::Manifest;

use super::finding::Place;

/// What one operator did for one line in one part of the iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Calls in the iteration.
    pub calls: u32,
    /// Nanoseconds of the host within it.
    pub host_ns: f64,
    /// Nanoseconds of the host waiting for a GPU within it.
    pub wait_ns: f64,
    /// Kernels, copies and fills that it launched.
    pub kernels: u32,
    /// Their nanoseconds.
    pub kernel_ns: f64,
}

impl Work {
    /// Nanoseconds where the work is done: on the GPU where there was any, else on the host.
    pub(crate) fn time_ns(&self) -> f64 {
        if self.kernels > 0 { self.kernel_ns } else { self.host_ns }
    }
}

/// A line, the part of the iteration, and the operator: index into [`Graph::operators`].
pub(crate) type Key = (FileId, u32, Phase, u32);

/// Everything that rules look at.
pub(crate) struct Evidence<'a> {
    /// Graph, profile, manifest and device.
    pub subject: &'a Subject,
    /// Single operators as the machine runs them otherwise.
    pub probes: &'a Probes,
    /// The texts, as they are today.
    pub program: &'a Program<'a>,
    /// The outermost operators by line.
    pub work: &'a BTreeMap<Key, Work>,
    /// By [`FileId`]: the text's place in [`Program::modules`] and where its lines are today.
    texts: Vec<Option<(usize, LineMap)>>,
}

impl<'a> Evidence<'a> {
    /// `work` is what the graph's operators did, by [`work`].
    pub(crate) fn new(
        subject: &'a Subject,
        probes: &'a Probes,
        program: &'a Program<'a>,
        work: &'a BTreeMap<Key, Work>,
    ) -> Evidence<'a> {
        let texts = subject
            .profile
            .files
            .iter()
            .map(|file| {
                let at = program.modules().iter().position(|module| module.path == file.path)?;
                let today = program.module(at).index.lines().checksums();
                Some((at, LineMap::new(&file.fingerprint, today)))
            })
            .collect();
        Evidence { subject, probes, program, work, texts }
    }

    /// The iteration as tasks.
    pub(crate) fn graph(&self) -> &'a Graph {
        &self.subject.recorded.graph
    }

    /// What the iteration costs.
    pub(crate) fn profile(&self) -> &'a Profile {
        &self.subject.profile
    }

    /// What the agent told, where it recorded.
    pub(crate) fn manifest(&self) -> Option<&'a Manifest> {
        self.subject.manifest.as_ref()
    }

    /// An operator of [`Evidence::work`].
    pub(crate) fn operator(&self, key: &Key) -> Option<&'a Operator> {
        self.graph().operators.get(key.3 as usize)
    }

    /// Whether a GPU ran it.
    pub(crate) fn on_gpu(&self) -> bool {
        self.profile().device.kind != "cpu"
    }

    /// Nanoseconds of an iteration.
    pub(crate) fn iteration_ns(&self) -> f64 {
        self.profile().iteration.time_ns
    }

    /// A place, as findings name it.
    pub(crate) fn place(&self, file: FileId, line: u32) -> Place {
        let path = self.profile().files.get(file.0 as usize).map(|file| file.path.clone());
        Place { path: path.unwrap_or_default(), line }
    }

    /// The text in which a line that ran is (its place in [`Program::modules`]) and its line today.
    /// Nothing where the line has changed since.
    pub(crate) fn today(&self, file: FileId, line: u32) -> Option<(usize, u32)> {
        let (module, map) = self.texts.get(file.0 as usize)?.as_ref()?;
        let place = map.place(line).filter(|place| !place.changed)?;
        Some((*module, place.line))
    }

    /// The line that ran for a line of today's text. Nothing where it has changed since.
    pub(crate) fn ran(&self, module: usize, line: u32) -> Option<(FileId, u32)> {
        let (file, (_, map)) = self.texts.iter().enumerate().find_map(|(file, text)| {
            text.as_ref().filter(|(at, _)| *at == module).map(|text| (file, text))
        })?;
        let ran = map.origin(line)?;
        let is_same = map.place(ran).is_some_and(|place| !place.changed && place.line == line);
        is_same.then_some((FileId(u32::try_from(file).ok()?), ran))
    }

    /// Nanoseconds by which an iteration is shorter when the graph is changed; 0 where it cannot be
    /// run then.
    pub(crate) fn saved(&self, change: impl FnOnce(&mut Graph)) -> f64 {
        let mut changed = self.graph().clone();
        change(&mut changed);
        let then = simulate::steady(&changed).map(|schedule| schedule.iteration_ns);
        let now = self.subject.recorded.schedule.iteration_ns;
        then.map_or(0.0, |then| (now - then).max(0.0))
    }
}

/// What a what-if and a line's memory say.
impl Evidence<'_> {
    /// Whether the graph takes as long as the iteration took: what is worked out from one that does
    /// not is a guess.
    pub(crate) fn is_replayed(&self) -> bool {
        self.subject.recorded.replay_error.abs() <= TRUSTED_REPLAY
    }

    /// Nanoseconds by which an iteration is shorter with an optimization of the what-ifs; nothing
    /// where it does not apply.
    pub(crate) fn saved_by(&self, optimization: &str, bound: Bound) -> Option<f64> {
        let one = study::optimization(optimization)?;
        let facts = self.facts_for(optimization)?;
        let mut applies = false;
        let saved = self.saved(|graph| applies = one.apply(graph, &facts, bound).is_ok());
        applies.then_some(saved)
    }

    /// What one line costs; nothing where it did not run in the profiled iterations.
    pub(crate) fn line(&self, file: FileId, line: u32) -> Option<&LineCost> {
        let lines = self.profile().lines.get(file.0 as usize)?;
        lines.iter().find(|cost| cost.line == line)
    }

    /// What of some blocks was made in the iteration and outlives it, and is no gradient, weight, batch or
    /// state of the optimizer. Nothing where the recording does not tell of memory.
    pub(crate) fn left_behind(&self, is_here: impl Fn(&Block) -> bool) -> Option<Left> {
        let memory = &self.graph().memory;
        let is_loose = |kind: BlockKind| {
            matches!(kind, BlockKind::Activations | BlockKind::Temporaries | BlockKind::Other)
        };
        let stays = memory.blocks.iter().filter(|block| block.freed.is_none());
        let stays = stays.filter(|block| is_loose(block.kind));
        let (new, old): (Vec<&Block>, Vec<&Block>) =
            stays.partition(|block| block.allocated.is_some());
        let (here, elsewhere): (Vec<&Block>, Vec<&Block>) =
            new.into_iter().partition(|block| is_here(block));
        let sizes: Vec<f64> = here.iter().map(|block| block.bytes).collect();
        let each = sizes.iter().sum();
        let alike = |blocks: &[&Block]| -> f64 {
            let bytes = blocks.iter().map(|block| block.bytes);
            bytes.filter(|bytes| sizes.contains(bytes)).sum()
        };
        // What other lines leave takes the place of what they left before.
        let before = (alike(&old) - alike(&elsewhere)).max(0.0);
        memory.is_known.then_some(Left { each, all: each + before })
    }
}

/// Bytes that a line leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Left {
    /// In the measured iteration.
    pub each: f64,
    /// With what was there before and is of the same sizes: what earlier iterations left.
    pub all: f64,
}

/// The graph's tasks by line and operator.
pub(crate) fn work(graph: &Graph) -> BTreeMap<Key, Work> {
    // A map without an order is quicker, and there are many more tasks than lines.
    let mut found: HashMap<Key, (Work, Option<u32>)> = HashMap::default();
    for task in graph.tasks.iter().filter(|task| !task.is_removed) {
        let Some(key) = key(task) else { continue };
        let (work, last_call) = found.entry(key).or_default();
        if task.call.is_some() && *last_call != task.call && task.kind.is_host() {
            *last_call = task.call;
            work.calls += 1;
        }
        match task.kind {
            TaskKind::Wait | TaskKind::RankWait => work.wait_ns += task.duration_ns,
            kind if kind.is_host() => work.host_ns += task.duration_ns,
            _ => {
                work.kernels += 1;
                work.kernel_ns += task.duration_ns;
            }
        }
    }
    found.into_iter().map(|(key, (work, _))| (key, work)).collect()
}

fn key(task: &Task) -> Option<Key> {
    let (file, line) = task.line?;
    Some((file, line, task.phase, task.operator?))
}
