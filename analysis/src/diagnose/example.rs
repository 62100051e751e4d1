//! Hand-made programs of one file with hand-made iterations, for the tests of rules.

use std::collections::HashMap;
use std::sync::Arc;

use super::evidence::Evidence;
use super::finding::Finding;
use super::rule::Rule;
use crate::predict::device_spec::DeviceSpec;
use crate::predict::operator::{ElementType, Operator};
use crate::profile::{Device, FileFacts, FileId, LineCost, ModuleCost, ModuleId, Phase, Profile};
use crate::recording::manifest::Manifest;
use crate::source::batch_site::Entry;
use crate::source::batch_site::project::Modules;
use crate::source::fingerprint;
use crate::source::rewrite::program::Program;
use crate::whatif::graph::{Graph, Resource, Task, TaskKind};
use crate::whatif::memory::{Block, BlockKind, Moment, peak};
use crate::whatif::optimizations::shared::retyped::retyped;
use crate::whatif::optimizations::shared::testing;
use crate::whatif::recorded::Recorded;
use crate::whatif::simulate;
use crate::whatif::study::Subject;

/// A program, `train.py`, and one iteration of it.
pub(crate) struct Example {
    text: &'static str,
    pub graph: Graph,
    pub manifest: Manifest,
    pub profile: Profile,
    pub device: DeviceSpec,
    module: Option<u32>,
    calls: u32,
}

/// An operator on tensors of FP32 by shape, which gives one of the last shape.
pub(crate) fn operator(name: &str, shapes: &[&[u64]]) -> Operator {
    testing::operator(name, shapes)
}

/// The same in another type.
pub(crate) fn of_type(element: ElementType, name: &str, shapes: &[&[u64]]) -> Operator {
    retyped(&operator(name, shapes), ElementType::Float32, element)
}

/// A tensor in FP32.
pub(crate) fn float(shape: &[u64]) -> crate::predict::operator::Tensor {
    testing::float(shape)
}

/// The findings of a text alone.
pub(crate) fn read(rule: &dyn Rule, text: &'static str) -> Vec<Finding> {
    with_program(text, |program| rule.unmeasured(program))
}

/// The lines at which a text alone has findings.
pub(crate) fn lines_read(rule: &dyn Rule, text: &'static str) -> Vec<u32> {
    read(rule, text).iter().map(|finding| finding.at.line).collect()
}

/// A program of one file.
pub(crate) fn with_program<T>(text: &str, ask: impl FnOnce(&Program<'_>) -> T) -> T {
    let project: HashMap<String, Arc<str>> =
        HashMap::from([("train.py".to_owned(), Arc::from(text))]);
    let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    let modules = Modules::read(&project, &entry);
    ask(&Program::new(&modules, &project, &entry))
}

impl Example {
    pub fn on_cpu(text: &'static str) -> Example {
        let device = Device { kind: "cpu".to_owned(), ..Device::default() };
        let file = FileFacts { path: "train.py".to_owned(), fingerprint: fingerprint(text) };
        Example {
            text,
            graph: Graph::default(),
            manifest: Manifest { torch: "2.15.0".to_owned(), ..Manifest::default() },
            profile: Profile { device, files: vec![file], ..Profile::default() },
            device: testing::cpu(),
            module: None,
            calls: 0,
        }
    }

    /// A GPU with TF32.
    pub fn on_gpu(text: &'static str) -> Example {
        let mut example = Example::on_cpu(text);
        example.profile.device.kind = "cuda".to_owned();
        example.device = testing::gpu("8.0");
        example
    }

    /// Another program for the same iteration.
    pub fn set_text(&mut self, text: &'static str) {
        self.text = text;
        self.profile.files[0].fingerprint = fingerprint(text);
    }

    fn is_on_gpu(&self) -> bool {
        self.profile.device.kind != "cpu"
    }

    /// Adds a module instance; what is called from here on belongs to it.
    pub fn module(mut self, path: &str, type_name: &str, line: u32) -> Example {
        let of = |known: &str| self.profile.modules.iter().position(|one| one.path == known);
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let parent = of(parent).filter(|_| !path.is_empty()).map(|at| ModuleId(at as u32));
        self.module = Some(self.profile.modules.len() as u32);
        self.profile.modules.push(ModuleCost {
            path: path.to_owned(),
            type_name: type_name.to_owned(),
            parent,
            definition: vec![(FileId(0), line)],
            ..ModuleCost::default()
        });
        self
    }

    /// A call of a line whose work takes so many microseconds; on a GPU the host takes 10 for it.
    pub fn call(mut self, line: u32, phase: Phase, operator: &Operator, work_us: f64) -> Example {
        let known = self.graph.operators.iter().position(|known| known == operator);
        let index = known.unwrap_or_else(|| {
            self.graph.operators.push(operator.clone());
            self.graph.operators.len() - 1
        });
        let (number, module) = (self.calls, self.module);
        let task = |kind: TaskKind, duration_us: f64| {
            let mut task = Task::new(kind, 1e3 * duration_us, phase);
            (task.operator, task.call) = (Some(index as u32), Some(number));
            (task.line, task.module) = (Some((FileId(0), line)), module);
            task
        };
        self.calls += 1;
        let host = self.graph.resource(&Resource::Host);
        if !self.is_on_gpu() {
            self.graph.push(host, task(TaskKind::HostOperator, work_us));
            return self;
        }
        let stream = self.graph.resource(&Resource::Stream(0, 7));
        self.graph.push(host, task(TaskKind::HostOperator, 5.0));
        let launch = self.graph.push(host, task(TaskKind::Launch, 5.0));
        let mut kernel = task(TaskKind::Kernel, work_us);
        kernel.launched_by = Some(launch);
        let kernel = self.graph.push(stream, kernel);
        self.graph.wait(launch, kernel, 0.0);
        self
    }

    /// The same several times.
    pub fn calls(
        self,
        times: u32,
        line: u32,
        phase: Phase,
        operator: &Operator,
        work_us: f64,
    ) -> Example {
        (0..times).fold(self, |example, _| example.call(line, phase, operator, work_us))
    }

    /// Another kernel of the last call, with a name.
    pub fn kernel(mut self, name: &str, work_us: f64) -> Example {
        let last = self.graph.tasks.iter().rfind(|task| task.kind == TaskKind::Kernel).copied();
        let last = last.expect("a call on a GPU");
        let mut task = last;
        (task.name, task.duration_ns) = (Some(self.graph.name(name)), 1e3 * work_us);
        let launch = last.launched_by.expect("a launch");
        let stream = self.graph.resource(&Resource::Stream(0, 7));
        let kernel = self.graph.push(stream, task);
        self.graph.wait(launch, kernel, 0.0);
        self
    }

    /// Time of the host on a line outside of operators.
    pub fn gap(mut self, line: u32, phase: Phase, gap_us: f64) -> Example {
        let host = self.graph.resource(&Resource::Host);
        let mut task = Task::new(TaskKind::HostGap, 1e3 * gap_us, phase);
        task.line = Some((FileId(0), line));
        self.graph.push(host, task);
        self
    }

    /// How often a line ran in the iteration.
    pub fn ran(mut self, line: u32, times: f64) -> Example {
        if self.profile.lines.is_empty() {
            self.profile.lines.push(Vec::new());
        }
        self.profile.lines[0].push(LineCost { line, calls: times, ..LineCost::default() });
        self
    }

    /// Memory that the last call made, and that lives on; see [`Example::frees`].
    pub fn makes(mut self, bytes: f64) -> Example {
        let task = self.last_host();
        let by = self.graph.tasks[task.index()];
        self.graph.memory.is_known = true;
        self.graph.memory.add(Block {
            bytes,
            kind: BlockKind::Activations,
            allocated: Some(Moment { task, event: self.calls }),
            freed: None,
            line: by.line,
            module: by.module,
            call: by.call,
        });
        self
    }

    /// The last call frees the block of this number.
    pub fn frees(mut self, block: usize) -> Example {
        let task = self.last_host();
        self.graph.memory.blocks[block].freed = Some(Moment { task, event: self.calls });
        self
    }

    fn last_host(&self) -> crate::whatif::graph::TaskId {
        let last = self.graph.iter().filter(|(_, task)| task.kind.is_host()).last();
        last.expect("a call").0
    }

    /// Changes what the agent told.
    pub fn told(mut self, change: impl FnOnce(&mut Manifest)) -> Example {
        change(&mut self.manifest);
        self
    }

    /// What a rule finds.
    pub fn found(self, rule: &dyn Rule) -> Vec<Finding> {
        let text = self.text;
        let subject = self.subject();
        with_program(text, |program| rule.measured(&Evidence::new(&subject, program)))
    }

    /// The iteration, as rules are given it.
    pub fn subject(self) -> Subject {
        let schedule = simulate::steady(&self.graph).unwrap_or_default();
        let mut profile = self.profile;
        profile.iteration.time_ns = schedule.iteration_ns;
        if let Some(bytes) = peak(&self.graph, &schedule) {
            profile.memory.peak_bytes = bytes as u64;
        }
        let recorded = Recorded {
            measured_ns: schedule.iteration_ns,
            graph: self.graph,
            schedule,
            replay_error: 0.0,
            notes: Vec::new(),
        };
        Subject {
            recorded,
            profile: Arc::new(profile),
            manifest: Some(self.manifest),
            device: self.device,
        }
    }
}
