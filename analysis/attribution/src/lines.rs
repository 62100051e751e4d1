//! The user's lines and their costs.

use std::collections::HashMap;

use super::Sums;
use super::contexts::Contexts;
use super::costs::{Cost, is_within};
use super::join::Join;
use ridgeline_profile::{
    DeviceTime, FileFacts, LineCost, MODULES_PER_LINE, MemoryByKind, ModuleId, PhaseTimes,
};
use ridgeline_recording::line_log::{Marker, StackFrame, StackId, Stacks};

/// The user's files and functions, which stack frames refer to by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    pub files: Vec<FileFacts>,
    /// `(file, qualified name)`.
    pub codes: Vec<(u32, String)>,
}

/// Index of a line in [`Lines`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LineIndex(u32);

impl LineIndex {
    /// Returns the index among all lines.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// All lines with a cost.
#[derive(Debug)]
pub(super) struct Lines {
    known: HashMap<(u32, u32), LineIndex>,
    files: Vec<u32>,
    costs: Vec<LineCost>,
    /// By stack: the line of its innermost frame.
    of_stack: Vec<Option<LineIndex>>,
    number_of_files: usize,
    /// By line: the last visit that included it, so a line that is on a stack twice (recursion)
    /// counts once.
    seen: Vec<u64>,
    visit: u64,
}

impl Lines {
    pub(crate) fn new(sources: &Sources, stacks: &Stacks) -> Lines {
        let mut lines = Lines {
            known: HashMap::new(),
            files: Vec::new(),
            costs: Vec::new(),
            of_stack: vec![None],
            number_of_files: sources.files.len(),
            seen: Vec::new(),
            visit: 0,
        };
        for (_, frame) in stacks.iter() {
            let line = sources
                .codes
                .get(frame.code as usize)
                .and_then(|(file, scope)| lines.at(*file, frame.line, scope));
            lines.of_stack.push(line);
        }
        lines
    }

    /// Returns a line of a file, and adds it if it is new. Returns `None` for line 0 and for files
    /// that the recording does not contain.
    pub(crate) fn at(&mut self, file: u32, line: u32, scope: &str) -> Option<LineIndex> {
        if file as usize >= self.number_of_files || line == 0 {
            return None;
        }
        let next = LineIndex(self.costs.len() as u32);
        let index = *self.known.entry((file, line)).or_insert(next);
        if index == next {
            self.files.push(file);
            self.costs.push(LineCost { line, ..LineCost::default() });
            self.seen.push(0);
        }
        if let Some(cost) = self.costs.get_mut(index.0 as usize)
            && cost.scope.is_empty()
        {
            scope.clone_into(&mut cost.scope);
        }
        Some(index)
    }

    /// Returns the line of a stack's innermost frame.
    pub(crate) fn of_stack(&self, stack: StackId) -> Option<LineIndex> {
        self.of_stack.get(stack.0 as usize).copied().flatten()
    }

    /// Returns the line of the innermost frame that has one.
    pub(crate) fn innermost(&self, stacks: &Stacks, stack: StackId) -> Option<LineIndex> {
        stacks.walk(stack).find_map(|(id, _)| self.of_stack(id))
    }

    /// Returns the file and the number of a line.
    pub(crate) fn location(&self, line: LineIndex) -> Option<(u32, u32)> {
        let index = line.0 as usize;
        Some((*self.files.get(index)?, self.costs.get(index)?.line))
    }

    /// Returns the cost of a line so far.
    pub(crate) fn cost_mut(&mut self, line: LineIndex) -> Option<&mut LineCost> {
        self.costs.get_mut(line.0 as usize)
    }

    /// Calls a function with the cost of each line.
    pub(crate) fn each_cost(&mut self, with: impl FnMut(&mut LineCost)) {
        self.costs.iter_mut().for_each(with);
    }

    /// Calls a function once for each line on any of the stacks. Inspects at most `depth` frames of
    /// each stack, from the innermost.
    pub(crate) fn each_on(
        &mut self,
        stacks: &Stacks,
        on: impl IntoIterator<Item = StackId>,
        depth: usize,
        mut with: impl FnMut(LineIndex, &mut LineCost),
    ) {
        self.visit += 1;
        for stack in on {
            for (id, _) in stacks.walk(stack).take(depth) {
                let Some(line) = self.of_stack.get(id.0 as usize).copied().flatten() else {
                    continue;
                };
                self.once(line, &mut with);
            }
        }
    }

    /// Calls a function once for each line on any of the stacks, with the innermost frame there.
    pub(crate) fn each_frame_on(
        &mut self,
        stacks: &Stacks,
        on: impl IntoIterator<Item = StackId>,
        mut with: impl FnMut(LineIndex, StackFrame),
    ) {
        self.visit += 1;
        for (id, frame) in on.into_iter().flat_map(|stack| stacks.walk(stack)) {
            if let Some(line) = self.of_stack(id) {
                self.once(line, &mut |line, _| with(line, frame));
            }
        }
    }

    /// Calls a function once for each of the lines.
    pub(crate) fn each_of(
        &mut self,
        lines: impl IntoIterator<Item = LineIndex>,
        mut with: impl FnMut(LineIndex, &mut LineCost),
    ) {
        self.visit += 1;
        for line in lines {
            self.once(line, &mut with);
        }
    }

    fn once(&mut self, line: LineIndex, with: &mut impl FnMut(LineIndex, &mut LineCost)) {
        let index = line.0 as usize;
        if let (Some(seen), Some(cost)) = (self.seen.get_mut(index), self.costs.get_mut(index))
            && *seen != self.visit
        {
            *seen = self.visit;
            with(line, cost);
        }
    }

    /// Adds each context's time to its lines, and returns the time without a line, by phase.
    pub(crate) fn add_times(
        &mut self,
        join: &Join<'_>,
        contexts: &Contexts<'_>,
        sums: &Sums,
    ) -> PhaseTimes {
        let stacks = &join.places.log.stacks;
        let on_device = !join.trace.activities.is_empty();
        let mut without_line = PhaseTimes::default();
        for cost in &mut self.costs {
            cost.samples = sums.samples();
        }
        for (id, context, cost, factor) in sums.by_context(contexts) {
            let time_ns = cost.time_ns * factor;
            let own_line = self.innermost(stacks, context.line);
            match own_line.and_then(|line| self.cost_mut(line)) {
                Some(line) => {
                    *line.self_time.get_mut(context.phase) += time_ns;
                    for (sample, time_ns) in line.samples.iter_mut().zip(sums.samples_of(id)) {
                        sample.own_ns += time_ns;
                    }
                }
                None => *without_line.get_mut(context.phase) += time_ns,
            }
            let device = on_device.then(|| device_time(cost, factor, sums.scale.per_iteration));
            self.each_on(stacks, context.stacks(), usize::MAX, |_, line| {
                *line.total_time.get_mut(context.phase) += time_ns;
                for (sample, time_ns) in line.samples.iter_mut().zip(sums.samples_of(id)) {
                    sample.total_ns += time_ns;
                }
                if let Some(device) = device {
                    let sum = line.device_time.get_or_insert_default();
                    sum.kernel_ns += device.kernel_ns;
                    sum.launch_ns += device.launch_ns;
                    sum.idle_ns += device.idle_ns;
                }
            });
        }
        without_line
    }

    /// Counts the executions of each line, and stores which modules were called from it.
    pub(crate) fn add_calls(&mut self, join: &Join<'_>) {
        let (log, windows) = (join.places.log, join.windows);
        let share = 1.0 / windows.len().max(1) as f64;
        for moment in log.threads.iter().flat_map(|thread| &thread.moments) {
            let called = match log.markers.top(moment.marker) {
                Some((_, Marker::Module(module))) => Some(module),
                _ => None,
            };
            if (!moment.arrived && called.is_none()) || !is_within(windows, moment.time_ns) {
                continue;
            }
            let Some(line) = self.of_stack(moment.stack) else { continue };
            let Some(cost) = self.cost_mut(line) else { continue };
            if moment.arrived {
                cost.calls += share;
            } else if moment.entered
                && let Some(module) = called.map(ModuleId)
                && cost.modules.len() < MODULES_PER_LINE
                && !cost.modules.contains(&module)
            {
                cost.modules.push(module);
            }
        }
    }

    /// Returns the lines with a cost by file, each sorted by line number.
    pub(crate) fn finish(self) -> Vec<Vec<LineCost>> {
        let mut by_file = vec![Vec::new(); self.number_of_files];
        for (file, cost) in self.files.into_iter().zip(self.costs) {
            let costs_something = cost.calls > 0.0
                || cost.total_time != PhaseTimes::default()
                || cost.total_memory != MemoryByKind::default();
            if let Some(lines) = by_file.get_mut(file as usize)
                && costs_something
            {
                lines.push(cost);
            }
        }
        for lines in &mut by_file {
            lines.sort_by_key(|line| line.line);
        }
        by_file
    }
}

/// Returns the device time of a cost. Only host time is scaled, because kernels take as long
/// without the profiler.
fn device_time(cost: &Cost, factor: f64, per_iteration: f64) -> DeviceTime {
    DeviceTime {
        kernel_ns: cost.kernel_ns * per_iteration,
        launch_ns: cost.launch_ns * per_iteration,
        idle_ns: cost.host_ns * factor,
    }
}
