//! [`Evidence`]: the input of the rules. One measured iteration, by line, and the text that ran.

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
use ridgeline_optimize::study::{self, RecordedRun};
use ridgeline_profile::{FileId, LineCost, Phase, Profile};
use ridgeline_python::LineMap;
use ridgeline_python::semantics::parts::Part;
use ridgeline_python::semantics::project;
use ridgeline_recording::manifest::Manifest;

use super::finding::SourceLine;

/// The work of one operator for one line in one phase of the iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Number of calls in the iteration.
    pub calls: u32,
    /// Host time inside it, in nanoseconds.
    pub host_ns: f64,
    /// Time that the host waited for a GPU inside it, in nanoseconds.
    pub wait_ns: f64,
    /// Number of kernels, copies and fills that it launched.
    pub kernels: u32,
    /// Duration of those kernels, copies and fills, in nanoseconds.
    pub kernel_ns: f64,
}

impl Work {
    /// The time where the work is done, in nanoseconds: on the GPU if it launched anything,
    /// otherwise on the host.
    pub(crate) fn time_ns(&self) -> f64 {
        if self.kernels > 0 { self.kernel_ns } else { self.host_ns }
    }
}

/// A line, the phase of the iteration, and the operator as an index into [`Graph::operators`].
pub(crate) type Key = (FileId, u32, Phase, u32);

pub(crate) struct Evidence<'a> {
    /// Graph, profile, manifest and device.
    pub run: &'a RecordedRun,
    /// Single operators, as measured in other variants on this machine.
    pub probes: &'a Probes,
    /// The current source text.
    pub program: &'a Program<'a>,
    /// The work of the outermost operators, by line.
    pub work: &'a BTreeMap<Key, Work>,
    /// By [`FileId`].
    files: Vec<Option<CurrentFile<'a>>>,
}

/// A file of the profile as it is now.
struct CurrentFile<'a> {
    /// The index of its module in [`Program::modules`].
    module: usize,
    part: &'a Part,
    /// From the lines that ran to its current lines.
    map: LineMap,
}

impl<'a> Evidence<'a> {
    /// `work` is the result of [`work`] for the subject's graph.
    pub(crate) fn new(
        subject: &'a RecordedRun,
        probes: &'a Probes,
        program: &'a Program<'a>,
        work: &'a BTreeMap<Key, Work>,
    ) -> Evidence<'a> {
        let files = subject
            .profile
            .files
            .iter()
            .map(|file| {
                let (module, part) = project::file(program.modules(), &file.path)?;
                let map = LineMap::new(&file.fingerprint, &part.fingerprint);
                Some(CurrentFile { module, part, map })
            })
            .collect();
        Evidence { run: subject, probes, program, work, files }
    }

    /// The iteration as a graph of tasks.
    pub(crate) fn graph(&self) -> &'a Graph {
        &self.run.recorded.graph
    }

    pub(crate) fn profile(&self) -> &'a Profile {
        &self.run.profile
    }

    /// The agent's manifest, if the agent recorded.
    pub(crate) fn manifest(&self) -> Option<&'a Manifest> {
        self.run.manifest.as_ref()
    }

    /// The operator of a key in [`Evidence::work`].
    pub(crate) fn operator(&self, key: &Key) -> Option<&'a Operator> {
        self.graph().operators.get(key.3 as usize)
    }

    /// Whether the iteration ran on a GPU.
    pub(crate) fn on_gpu(&self) -> bool {
        self.profile().device.kind != "cpu"
    }

    /// Iteration time in nanoseconds.
    pub(crate) fn iteration_ns(&self) -> f64 {
        self.profile().iteration.time_ns
    }

    /// Converts a line to the form that findings use.
    pub(crate) fn place(&self, file: FileId, line: u32) -> SourceLine {
        let path = self.profile().files.get(file.0 as usize).map(|file| file.path.clone());
        SourceLine { path: path.unwrap_or_default(), line }
    }

    /// Maps a line that ran to its file's index in [`Program::modules`] and the line in the current
    /// text. Returns `None` if the line has changed since.
    pub(crate) fn current_line(&self, file: FileId, line: u32) -> Option<(usize, u32)> {
        let file = self.files.get(file.0 as usize)?.as_ref()?;
        let place = file.map.place(line).filter(|place| !place.changed)?;
        Some((file.module, file.part.line_in_module(place.line)))
    }

    /// Maps a line of the current text to the line that ran. Returns `None` if it has changed
    /// since.
    pub(crate) fn recorded_line(&self, module: usize, line: u32) -> Option<(FileId, u32)> {
        let (path, line) = self.program.module(module).place_of_line(line);
        let (id, file) = self.files.iter().enumerate().find_map(|(id, file)| {
            file.as_ref().filter(|file| file.part.path == path).map(|file| (id, file))
        })?;
        let ran = file.map.origin(line)?;
        let is_same = file.map.place(ran).is_some_and(|place| !place.changed && place.line == line);
        is_same.then_some((FileId(u32::try_from(id).ok()?), ran))
    }

    /// The time that a change of the graph saves per iteration, in nanoseconds; 0 if the changed
    /// graph cannot be simulated.
    pub(crate) fn saved(&self, change: impl FnOnce(&mut Graph)) -> f64 {
        let mut changed = self.graph().clone();
        change(&mut changed);
        let then = simulate::steady(&changed).map(|schedule| schedule.iteration_ns);
        let now = self.run.recorded.schedule.iteration_ns;
        then.map_or(0.0, |then| (now - then).max(0.0))
    }
}

/// What-ifs and the memory of a line.
impl Evidence<'_> {
    /// Whether the simulated iteration is as long as the measured one. If it is not, everything
    /// derived from the graph is a guess.
    pub(crate) fn is_replayed(&self) -> bool {
        self.run.recorded.replay_error.abs() <= TRUSTED_REPLAY
    }

    /// The time that a what-if optimization saves per iteration, in nanoseconds. Returns `None` if
    /// it does not apply.
    pub(crate) fn saved_by(&self, optimization: &str, bound: Bound) -> Option<f64> {
        let found = study::optimization(optimization)?;
        let facts = self.facts_for(optimization)?;
        let mut applies = false;
        let saved = self.saved(|graph| applies = found.apply(graph, &facts, bound).is_ok());
        applies.then_some(saved)
    }

    /// Returns the cost of one line, or `None` if it did not run in the profiled iterations.
    pub(crate) fn line(&self, file: FileId, line: u32) -> Option<&LineCost> {
        let lines = self.profile().lines.get(file.0 as usize)?;
        lines.iter().find(|cost| cost.line == line)
    }

    /// The memory of the selected blocks that is allocated in the iteration and outlives it, except
    /// gradients, weights, batches and optimizer state. Returns `None` if the recording has no
    /// memory events.
    pub(crate) fn retained_bytes(&self, is_here: impl Fn(&Block) -> bool) -> Option<Retained> {
        let memory = &self.graph().memory;
        let is_retainable = |kind: BlockKind| {
            matches!(kind, BlockKind::Activations | BlockKind::Temporaries | BlockKind::Other)
        };
        let retained = memory.blocks.iter().filter(|block| block.freed.is_none());
        let retained = retained.filter(|block| is_retainable(block.kind));
        let (new, old): (Vec<&Block>, Vec<&Block>) =
            retained.partition(|block| block.allocated.is_some());
        let (here, elsewhere): (Vec<&Block>, Vec<&Block>) =
            new.into_iter().partition(|block| is_here(block));
        let sizes: Vec<f64> = here.iter().map(|block| block.bytes).collect();
        let this_iteration = sizes.iter().sum();
        let total_of_same_sizes = |blocks: &[&Block]| -> f64 {
            let bytes = blocks.iter().map(|block| block.bytes);
            bytes.filter(|bytes| sizes.contains(bytes)).sum()
        };
        // What other lines retain replaces what they retained in earlier iterations.
        let before = (total_of_same_sizes(&old) - total_of_same_sizes(&elsewhere)).max(0.0);
        memory.is_known.then_some(Retained { this_iteration, total: this_iteration + before })
    }
}

/// Memory that a line retains beyond the iteration, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Retained {
    /// Retained by the measured iteration.
    pub this_iteration: f64,
    /// Including blocks of the same sizes from before the iteration, which earlier iterations
    /// retained.
    pub total: f64,
}

/// Sums the graph's tasks by line, phase and operator.
pub(crate) fn work(graph: &Graph) -> BTreeMap<Key, Work> {
    // A hash map is faster, and there are many more tasks than lines.
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
