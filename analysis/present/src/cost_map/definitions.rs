//! The statements that create modules, and the cost of those modules.

use super::DefinitionCost;
use super::builder::{Builder, Unit};
use ridgeline_profile::{ModuleId, Provenance};

/// The maximum number of parents followed for a module.
const MAX_ANCESTORS: usize = 64;

impl Builder<'_> {
    pub(super) fn definitions(&self) -> Vec<DefinitionCost> {
        let mut created: Vec<(Unit, u32, bool)> = Vec::new();
        for (id, module) in (0_u32..).zip(&self.profile.modules) {
            for &(file, line) in &module.definition {
                if file == self.file
                    && let Some(place) = self.map.place(line)
                {
                    created.push((self.unit(place.line), id, place.changed));
                }
            }
        }
        created.sort_unstable();
        created.dedup_by_key(|(unit, id, _)| (*unit, *id));
        let definition = |group: &[(Unit, u32, bool)]| {
            let (unit, ..) = group.first().copied().unwrap_or_default();
            let mut cost = DefinitionCost {
                span: self.span(unit),
                first_line: unit.first_line,
                last_line: unit.last_line,
                ..DefinitionCost::default()
            };
            let created_here = |id: u32| group.binary_search_by_key(&id, |(_, id, _)| *id).is_ok();
            for &(_, id, _) in group {
                // A module's cost includes its children, which are mostly created by the same
                // statement.
                if self.ancestors(id).any(created_here) {
                    continue;
                }
                if let Some(module) = self.profile.modules.get(id as usize) {
                    cost.total_time += module.total_time;
                    cost.memory += module.memory;
                    cost.provenance = cost.provenance.max(module.provenance);
                    cost.modules.push(ModuleId(id));
                }
            }
            self.limit(&mut cost.total_time);
            let replaced = group.iter().any(|(.., changed)| *changed);
            if replaced || self.changed(unit.first_line, unit.last_line) {
                cost.provenance = Provenance::Stale;
            }
            cost
        };
        created.chunk_by(|(a, ..), (b, ..)| a == b).map(definition).collect()
    }

    pub(super) fn ancestors(&self, module: u32) -> impl Iterator<Item = u32> {
        let parent = |id: u32| Some(self.profile.modules.get(id as usize)?.parent?.0);
        std::iter::successors(parent(module), move |&id| parent(id)).take(MAX_ANCESTORS)
    }
}
