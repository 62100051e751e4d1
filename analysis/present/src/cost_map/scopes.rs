//! The costs of functions and classes in the current text.

use std::collections::{BTreeMap, HashMap};

use super::builder::{Builder, min_by_kind};
use super::{ScopeCost, StatementCost};
use ridgeline_profile::{MemoryByKind, ModuleId, PhaseTimes, Provenance};
use ridgeline_python::syntax::statements::{Scope, ScopeKind};

impl Builder<'_> {
    /// Returns the costs of functions and classes. A function's frame is at one of its lines at a
    /// time, so its total is the sum of its lines. The cost of a module class is that of its
    /// instances. The cost of any other class is the larger of its most expensive method and the
    /// self time of all its methods, because it is unknown which method calls which.
    pub(super) fn scopes(&self, statements: &[StatementCost]) -> Vec<ScopeCost> {
        let scopes = self.index.scopes();
        let mut by_scope: BTreeMap<usize, (ScopeCost, PhaseTimes)> = BTreeMap::new();
        for cost in statements {
            // In the text a header belongs to the scope it opens, but it runs in the enclosing one.
            let known = cost.statement.and_then(|at| self.index.statements().get(at));
            let at = match known {
                Some(statement) => statement.scope as usize,
                None => self.index.scope_at(cost.span.start),
            };
            let Some(scope) = scopes.get(at).filter(|scope| scope.kind != ScopeKind::File) else {
                continue;
            };
            let (sum, own) = by_scope
                .entry(at)
                .or_insert_with(|| (self.empty_cost(at, scope), PhaseTimes::default()));
            sum.total_time += cost.total_time;
            sum.total_memory += cost.total_memory;
            sum.provenance = sum.provenance.max(cost.provenance);
            *own += cost.self_time;
        }
        let instances = self.instances_by_type();
        let mut classes: BTreeMap<usize, (ScopeCost, PhaseTimes)> = BTreeMap::new();
        for (cost, own) in by_scope.values_mut() {
            self.limit(&mut cost.total_time);
            cost.total_memory = min_by_kind(cost.total_memory, self.profile.memory.at_peak);
            let class = scopes.get(cost.scope).and_then(|scope| scope.parent).unwrap_or(0) as usize;
            let Some(scope) = scopes.get(class).filter(|scope| scope.kind == ScopeKind::Class)
            else {
                continue;
            };
            if cost.is_class {
                continue;
            }
            let (sum, own_sum) = classes
                .entry(class)
                .or_insert_with(|| (self.empty_cost(class, scope), PhaseTimes::default()));
            *own_sum += *own;
            sum.provenance = sum.provenance.max(cost.provenance);
            if cost.total_time.total() > sum.total_time.total() {
                sum.total_time = cost.total_time;
            }
            if cost.total_memory.total() > sum.total_memory.total() {
                sum.total_memory = cost.total_memory;
            }
        }
        for (class, (mut sum, own)) in classes {
            let name = self.index.text().get(sum.name.clone()).unwrap_or_default();
            if let Some(instances) = instances.get(name) {
                (sum.total_time, sum.total_memory) = self.cost_of(instances);
                sum.modules.clone_from(instances);
            } else if own.total() > sum.total_time.total() {
                sum.total_time = own;
            }
            self.limit(&mut sum.total_time);
            // The class body runs once and is not part of the cost of the class.
            by_scope.insert(class, (sum, own));
        }
        let mut costs: Vec<ScopeCost> = by_scope.into_values().map(|(cost, _)| cost).collect();
        for cost in &mut costs {
            let first = self.index.lines().line_of(cost.span.start);
            let last = self.index.lines().line_of(cost.span.end.saturating_sub(1));
            if cost.provenance != Provenance::Stale && self.changed(first, last) {
                cost.provenance = Provenance::Stale;
            }
        }
        costs
    }

    fn empty_cost(&self, at: usize, scope: &Scope) -> ScopeCost {
        ScopeCost {
            scope: at,
            name: scope.name.clone(),
            span: scope.span.clone(),
            line: self.index.lines().line_of(scope.name.start),
            is_class: scope.kind == ScopeKind::Class,
            ..ScopeCost::default()
        }
    }

    /// The outermost instances of each module type: those inside another instance of the same type
    /// are left out.
    fn instances_by_type(&self) -> HashMap<&str, Vec<ModuleId>> {
        let modules = &self.profile.modules;
        let mut found: HashMap<&str, Vec<ModuleId>> = HashMap::new();
        for (at, module) in modules.iter().enumerate() {
            let Ok(id) = u32::try_from(at) else { break };
            let is_same = |parent: u32| {
                modules
                    .get(parent as usize)
                    .is_some_and(|parent| parent.type_name == module.type_name)
            };
            if !self.ancestors(id).any(is_same) {
                found.entry(module.type_name.as_str()).or_default().push(ModuleId(id));
            }
        }
        found
    }

    fn cost_of(&self, modules: &[ModuleId]) -> (PhaseTimes, MemoryByKind) {
        let modules = modules.iter().filter_map(|id| self.profile.modules.get(id.0 as usize));
        modules.fold(Default::default(), |(mut time, mut memory), module| {
            time += module.total_time;
            memory += module.memory;
            (time, memory)
        })
    }
}
