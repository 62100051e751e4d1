//! The cost of each module instance, its children included.

use super::Sums;
use super::contexts::Contexts;
use super::costs::is_within;
use super::join::Join;
use ridgeline_profile::{FileId, ModuleCost, ModuleId, Phase, PhaseTimes};
use ridgeline_recording::line_log::{Marker, MarkerId, Markers};
use ridgeline_recording::manifest::Manifest;

/// The module instances of a recording.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub costs: Vec<ModuleCost>,
    /// By module: the last visit that included it.
    seen: Vec<u64>,
    visit: u64,
}

impl Modules {
    pub(crate) fn new(manifest: Option<&Manifest>) -> Modules {
        let Some(manifest) = manifest else { return Modules::default() };
        let mut costs: Vec<ModuleCost> = Vec::with_capacity(manifest.modules.len());
        for (index, module) in manifest.modules.iter().enumerate() {
            costs.push(ModuleCost {
                path: module.path.clone(),
                type_name: module.type_name.clone(),
                // Parents come before children, so a malformed manifest cannot make a module its
                // own ancestor.
                parent: module.parent.filter(|&parent| (parent as usize) < index).map(ModuleId),
                definition: module
                    .definition
                    .iter()
                    .filter(|(file, _)| (*file as usize) < manifest.files.len())
                    .map(|&(file, line)| (FileId(file), line))
                    .collect(),
                parameters: module
                    .parameters
                    .iter()
                    .fold(0, |sum, parameter| parameter.elements.saturating_add(sum)),
                ..ModuleCost::default()
            });
        }
        for index in (0..costs.len()).rev() {
            let Some((parameters, parent)) =
                costs.get(index).map(|module| (module.parameters, module.parent))
            else {
                continue;
            };
            if let Some(parent) = parent.and_then(|parent| costs.get_mut(parent.0 as usize)) {
                parent.parameters = parent.parameters.saturating_add(parameters);
            }
        }
        let seen = vec![0; costs.len()];
        Modules { costs, seen, visit: 0 }
    }

    /// Calls a function once for each module around any of the markers, and for its ancestors.
    pub(crate) fn each_around(
        &mut self,
        markers: &Markers,
        around: impl IntoIterator<Item = MarkerId>,
        mut with: impl FnMut(&mut ModuleCost),
    ) {
        self.visit += 1;
        for marker in around.into_iter().flat_map(|marker| markers.walk(marker)) {
            let Marker::Module(module) = marker else { continue };
            self.climb(module, &mut with);
        }
    }

    /// Calls a function for a module and its ancestors.
    pub(crate) fn each_holding(&mut self, module: u32, mut with: impl FnMut(&mut ModuleCost)) {
        self.visit += 1;
        self.climb(module, &mut with);
    }

    /// Calls a function once for each of the modules and their ancestors, except for those around
    /// the markers.
    pub(crate) fn each_within(
        &mut self,
        markers: &Markers,
        around: impl IntoIterator<Item = MarkerId>,
        modules: impl IntoIterator<Item = u32>,
        mut with: impl FnMut(&mut ModuleCost),
    ) {
        self.each_around(markers, around, |_| ());
        for module in modules {
            self.climb(module, &mut with);
        }
    }

    /// Returns the innermost module around the markers, starting with the first markers: the module
    /// that gets costs that belong to only one module.
    pub(crate) fn innermost(
        &mut self,
        markers: &Markers,
        around: [MarkerId; 2],
    ) -> Option<&mut ModuleCost> {
        let mut around = around.into_iter().flat_map(|marker| markers.walk(marker));
        let module = around.find_map(|marker| match marker {
            Marker::Module(module) => Some(module),
            Marker::Phase(_) => None,
        })?;
        self.costs.get_mut(module as usize)
    }

    fn climb(&mut self, module: u32, with: &mut impl FnMut(&mut ModuleCost)) {
        let mut next = Some(module);
        while let Some(module) = next {
            let index = module as usize;
            let (Some(seen), Some(cost)) = (self.seen.get_mut(index), self.costs.get_mut(index))
            else {
                return;
            };
            // The ancestors of a visited module have been visited with it.
            if *seen == self.visit {
                return;
            }
            *seen = self.visit;
            with(cost);
            next = cost.parent.map(|parent| parent.0);
        }
    }

    /// Adds each context's time to the modules that ran it, or whose forward operators it is the
    /// derivative of.
    pub(crate) fn add_times(&mut self, join: &Join<'_>, contexts: &Contexts<'_>, sums: &Sums) {
        let markers = &join.places.log.markers;
        for cost in &mut self.costs {
            cost.samples = sums.samples();
        }
        for (id, context, cost, factor) in sums.by_context(contexts) {
            let mut times = PhaseTimes::default();
            *times.get_mut(context.phase) = cost.time_ns * factor;
            self.each_around(markers, context.markers(), |module| {
                module.total_time += times;
                for (sample, time_ns) in module.samples.iter_mut().zip(sums.samples_of(id)) {
                    sample.total_ns += time_ns;
                }
            });
            // The optimizer's time is distributed to the modules that own the parameters.
            if context.phase != Phase::Optimizer
                && let Some(module) = self.innermost(markers, context.markers())
            {
                module.self_time += times;
                for (sample, time_ns) in module.samples.iter_mut().zip(sums.samples_of(id)) {
                    sample.own_ns += time_ns;
                }
            }
        }
    }

    /// Counts the calls of each module.
    pub(crate) fn add_calls(&mut self, join: &Join<'_>) {
        let (log, windows) = (join.places.log, join.windows);
        let share = 1.0 / windows.len().max(1) as f64;
        for moment in log.threads.iter().flat_map(|thread| &thread.moments) {
            if let Some((_, Marker::Module(module))) = log.markers.top(moment.marker)
                && moment.entered
                && is_within(windows, moment.time_ns)
                && let Some(cost) = self.costs.get_mut(module as usize)
            {
                cost.calls += share;
            }
        }
    }
}
