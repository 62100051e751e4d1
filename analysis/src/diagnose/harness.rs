//! Programs and iterations by hand, for the tests of rules. A line is named by its last comment:
//! `loss.item()  # sync` is the line `sync`.

use std::collections::HashMap;
use std::sync::Arc;

use super::evidence::Evidence;
use super::finding::Finding;
use super::rule::Rule;
use crate::predict::device_table::DeviceTable;
use crate::predict::operator::Operator;
use crate::profile::{FileFacts, FileId, LineCost, Phase, Profile};
use crate::recording::manifest::{Location, Manifest};
use crate::source::batch_site::Entry;
use crate::source::batch_site::project::Modules;
use crate::source::fingerprint;
use crate::source::rewrite::program::Program;
use crate::whatif::graph::{Graph, Resource, Task, TaskId, TaskKind};
use crate::whatif::memory::{Block, BlockKind, Moment};
use crate::whatif::recorded::Recorded;
use crate::whatif::simulate;
use crate::whatif::study::Subject;

/// A line of a file.
pub(crate) type At = (FileId, u32);

/// A program and what one iteration of it did.
pub(crate) struct Case {
    texts: HashMap<String, Arc<str>>,
    pub graph: Graph,
    pub manifest: Manifest,
    pub profile: Profile,
    device: &'static str,
}

impl Case {
    /// A program of one file `train.py`.
    pub fn new(text: &str) -> Case {
        let mut case = Case {
            texts: HashMap::new(),
            graph: Graph::default(),
            manifest: Manifest::default(),
            profile: Profile::default(),
            device: "NVIDIA H200",
        };
        case.profile.device.kind = "cpu".to_owned();
        case.file("train.py", text);
        case
    }

    /// Another file.
    pub fn file(&mut self, path: &str, text: &str) -> &mut Case {
        self.texts.insert(path.to_owned(), text.into());
        let facts = FileFacts { path: path.to_owned(), fingerprint: fingerprint(text) };
        self.profile.files.push(facts);
        self.profile.lines.push(Vec::new());
        self
    }

    /// Lets a GPU have run it.
    pub fn on_gpu(mut self) -> Case {
        self.profile.device.kind = "cuda".to_owned();
        self
    }

    /// The line with a mark.
    #[track_caller]
    pub fn line(&self, mark: &str) -> At {
        let wanted = format!("# {mark}");
        for (file, facts) in (0_u32..).zip(&self.profile.files) {
            let text = &self.texts[&facts.path];
            let found = (1_u32..).zip(text.lines()).find(|(_, line)| line.ends_with(&wanted));
            if let Some((line, _)) = found {
                return (FileId(file), line);
            }
        }
        panic!("no line is marked {mark}");
    }

    /// The same, as a manifest has it.
    #[track_caller]
    pub fn location(&self, mark: &str) -> Location {
        let (file, line) = self.line(mark);
        Location { file: file.0, line }
    }

    /// Lets a line have run so often in an iteration.
    #[track_caller]
    pub fn ran(&mut self, mark: &str, calls: f64) -> &mut LineCost {
        let (file, line) = self.line(mark);
        let lines = &mut self.profile.lines[file.0 as usize];
        lines.push(LineCost { line, calls, ..LineCost::default() });
        lines.last_mut().expect("it was just added")
    }

    /// A task of the host.
    pub fn host(&mut self, kind: TaskKind, ns: f64, phase: Phase, at: Option<At>) -> TaskId {
        let host = self.graph.resource(&Resource::Host);
        let mut task = Task::new(kind, ns, phase);
        task.line = at;
        self.graph.push(host, task)
    }

    /// Names the operator of a task, and gives it a call of its own.
    pub fn operator(&mut self, task: TaskId, name: &str) -> u32 {
        self.graph.operators.push(Operator::new(name, Vec::new(), Vec::new()));
        let call = self.graph.operators.len() as u32 - 1;
        let task = self.graph.task_mut(task).expect("a task");
        (task.operator, task.call) = (Some(call), Some(call));
        call
    }

    /// A launch of 1 µs, and what it starts on the GPU.
    pub fn launch(
        &mut self,
        kind: TaskKind,
        name: &str,
        ns: f64,
        at: Option<At>,
    ) -> (TaskId, TaskId) {
        let launch = self.host(TaskKind::Launch, 1e3, Phase::Forward, at);
        let stream = self.graph.resource(&Resource::Stream(0, 7));
        let mut task = Task::new(kind, ns, Phase::Forward);
        task.name = Some(self.graph.name(name));
        (task.line, task.launched_by) = (at, Some(launch));
        let task = self.graph.push(stream, task);
        self.graph.wait(launch, task, 0.0);
        (launch, task)
    }

    /// A block of memory that a task made.
    pub fn block(
        &mut self,
        bytes: f64,
        kind: BlockKind,
        made: Option<TaskId>,
        freed: Option<TaskId>,
    ) {
        self.graph.memory.is_known = true;
        let event = self.graph.memory.blocks.len() as u32;
        let moment = |task: TaskId| Moment { task, event };
        let line = made.and_then(|made| self.graph.task(made)?.line);
        self.graph.memory.add(Block {
            bytes,
            kind,
            allocated: made.map(moment),
            freed: freed.map(moment),
            line,
            module: None,
            call: None,
        });
    }

    fn with<T>(&self, look: impl FnOnce(&Evidence<'_>) -> T) -> T {
        let schedule = simulate::steady(&self.graph).expect("it runs");
        let measured_ns = schedule.iteration_ns;
        let mut profile = self.profile.clone();
        profile.iteration.time_ns = measured_ns;
        let graph = self.graph.clone();
        let recorded =
            Recorded { graph, schedule, replay_error: 0.0, measured_ns, notes: Vec::new() };
        let device = DeviceTable::shipped().find(self.device).expect("a GPU of the table").clone();
        let manifest = Some(self.manifest.clone());
        let subject = Subject { recorded, profile: Arc::new(profile), manifest, device };
        let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
        let modules = Modules::read(&self.texts, &entry);
        let program = Program::new(&modules, &self.texts, &entry);
        look(&Evidence::new(&subject, &program))
    }

    /// What a rule finds in the measured iteration.
    pub fn measured(&self, rule: &dyn Rule) -> Vec<Finding> {
        self.with(|evidence| rule.measured(evidence))
    }

    /// What a rule finds in the text alone.
    pub fn unmeasured(&self, rule: &dyn Rule) -> Vec<Finding> {
        self.with(|evidence| rule.unmeasured(evidence.program))
    }

    /// Holds the one finding of a rule to its line, and gives it.
    #[track_caller]
    pub fn finds(&self, rule: &dyn Rule, mark: &str) -> Finding {
        let mut found = self.measured(rule);
        assert_eq!(found.len(), 1, "{found:#?}");
        let found = found.remove(0);
        assert_eq!((found.at.line, found.rule), (self.line(mark).1, rule.name()), "{found:#?}");
        found
    }

    /// Holds a rule to finding nothing, measured or not.
    #[track_caller]
    pub fn finds_nothing(&self, rule: &dyn Rule) {
        assert_eq!(self.measured(rule), []);
        assert_eq!(self.unmeasured(rule), []);
    }
}

/// The lines that a rule finds in a text alone, counted from 1.
pub(crate) fn lines_in(rule: &dyn Rule, text: &str) -> Vec<u32> {
    let mut case = Case::new(text);
    case.host(TaskKind::HostGap, 1e6, Phase::Other, None);
    case.unmeasured(rule).into_iter().map(|found| found.at.line).collect()
}
