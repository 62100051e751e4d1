//! Builds an iteration by hand: as calls of lines of the first file, or task by task.

use super::{Case, FileLine};
use ridgeline_graph::graph::{Resource, Task, TaskId, TaskKind};
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_operators::retyped::retyped;
use ridgeline_profile::{FileId, LineCost, ModuleCost, ModuleId, Phase};

pub(crate) use ridgeline_optimize::optimizations::shared::testing::{float, operator};

/// An [`operator`] with another element type.
pub(crate) fn of_type(element: ElementType, name: &str, shapes: &[&[u64]]) -> Operator {
    retyped(&operator(name, shapes), ElementType::Float32, element)
}

/// Calls.
impl Case {
    /// Adds a module instance, which the following calls belong to.
    pub(crate) fn module(mut self, path: &str, type_name: &str, line: u32) -> Case {
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

    /// A call on a line, with its work in microseconds; on a GPU the host also takes 10 µs for it.
    pub(crate) fn call(
        mut self,
        line: u32,
        phase: Phase,
        operator: &Operator,
        work_us: f64,
    ) -> Case {
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

    /// Like [`Case::call`], several times.
    pub(crate) fn calls(
        self,
        times: u32,
        line: u32,
        phase: Phase,
        operator: &Operator,
        work_us: f64,
    ) -> Case {
        (0..times).fold(self, |case, _| case.call(line, phase, operator, work_us))
    }

    /// Another kernel of the last call, with a name.
    pub(crate) fn kernel(mut self, name: &str, work_us: f64) -> Case {
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

    /// Host time on a line outside of operators.
    pub(crate) fn gap(mut self, line: u32, phase: Phase, gap_us: f64) -> Case {
        let host = self.graph.resource(&Resource::Host);
        let mut task = Task::new(TaskKind::HostGap, 1e3 * gap_us, phase);
        task.line = Some((FileId(0), line));
        self.graph.push(host, task);
        self
    }

    /// Sets how often a line of the first file ran in the iteration.
    pub(crate) fn line_calls(mut self, line: u32, times: f64) -> Case {
        self.profile.lines[0].push(LineCost { line, calls: times, ..LineCost::default() });
        self
    }

    /// Memory that the last call allocates, and that is not freed unless [`Case::frees`] is called.
    pub(crate) fn allocates(mut self, bytes: f64) -> Case {
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

    /// The last call frees the block with this index.
    pub(crate) fn frees(mut self, block: usize) -> Case {
        let task = self.last_host();
        self.graph.memory.blocks[block].freed = Some(Moment { task, event: self.calls });
        self
    }

    fn is_on_gpu(&self) -> bool {
        self.profile.device.kind != "cpu"
    }

    fn last_host(&self) -> TaskId {
        let last = self.graph.iter().filter(|(_, task)| task.kind.is_host()).last();
        last.expect("a call").0
    }
}

/// Single tasks.
impl Case {
    /// A task of the host.
    pub(crate) fn host(
        &mut self,
        kind: TaskKind,
        ns: f64,
        phase: Phase,
        at: Option<FileLine>,
    ) -> TaskId {
        let host = self.graph.resource(&Resource::Host);
        let mut task = Task::new(kind, ns, phase);
        task.line = at;
        self.graph.push(host, task)
    }

    /// Sets the operator of a task, with its own call number.
    pub(crate) fn operator(&mut self, task: TaskId, name: &str) -> u32 {
        self.graph.operators.push(Operator::new(name, Vec::new(), Vec::new()));
        let call = self.graph.operators.len() as u32 - 1;
        let task = self.graph.task_mut(task).expect("a task");
        (task.operator, task.call) = (Some(call), Some(call));
        call
    }

    /// A launch of 1 µs and the task that it starts on the GPU.
    pub(crate) fn launch(
        &mut self,
        kind: TaskKind,
        name: &str,
        ns: f64,
        at: Option<FileLine>,
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

    /// A block of memory that a task allocated.
    pub(crate) fn block(
        &mut self,
        bytes: f64,
        kind: BlockKind,
        allocated_by: Option<TaskId>,
        freed_by: Option<TaskId>,
    ) {
        self.graph.memory.is_known = true;
        let event = self.graph.memory.blocks.len() as u32;
        let moment = |task: TaskId| Moment { task, event };
        let line = allocated_by.and_then(|allocated_by| self.graph.task(allocated_by)?.line);
        self.graph.memory.add(Block {
            bytes,
            kind,
            allocated: allocated_by.map(moment),
            freed: freed_by.map(moment),
            line,
            module: None,
            call: None,
        });
    }
}
