//! Module instances of the current text: measured ones, matched by path, and new ones.

use std::collections::HashMap;

use super::costed::{CostedOperators, Group};
use super::memory::{Kinds, add_to, kind_of, of_kinds, scale, to_kinds};
use super::places::Places;
use super::scale::{ScaledUnits, Unit};
use ridgeline_operators::op_list::Module;
use ridgeline_profile::{FileId, ModuleCost, ModuleId, Phase, PhaseTimes, Profile, Provenance};

/// The maximum nesting depth of modules.
const MAX_DEPTH: usize = 256;

/// The modules of the estimated profile.
pub(super) struct Modules {
    /// The modules, parents before children.
    pub costs: Vec<ModuleCost>,
    /// For each measured module, its current ID. `None` if the module was removed.
    pub renumbered: Vec<Option<ModuleId>>,
}

/// A path, and the number of earlier modules with the same path: two networks each have a root with
/// an empty path.
type Key<'a> = (&'a str, usize);

/// The self cost of a module in an operator list, without its children.
#[derive(Clone, Debug, Default)]
struct SelfCost {
    time: PhaseTimes,
    memory: Kinds,
    parameters: f64,
}

/// Returns the modules of the current text.
pub(super) fn modules(
    old: &Profile,
    before: &CostedOperators<'_>,
    now: &CostedOperators<'_>,
    scaled: &ScaledUnits,
    places: &Places<'_>,
) -> Modules {
    let before_time = |group: &Group, unit| scaled.measured_time(group, unit);
    let now_time = |group: &Group, unit| scaled.estimated_time(now, group, unit);
    let self_before = self_costs(before, &scaled.of_before, before_time);
    let self_now = self_costs(now, &scaled.of_now, now_time);
    let index_before = keys(before.list.modules.iter().map(|module| module.path.as_str()));
    let keys_now = keys(now.list.modules.iter().map(|module| module.path.as_str()));
    let keys_old = keys(old.modules.iter().map(|module| module.path.as_str()));
    let find_before: HashMap<Key<'_>, usize> = by_key(&index_before);
    let find_now: HashMap<Key<'_>, usize> = by_key(&keys_now);
    let find_old: HashMap<Key<'_>, usize> = by_key(&keys_old);

    let mut result = Modules { costs: Vec::new(), renumbered: vec![None; old.modules.len()] };
    let mut of_now: Vec<Option<ModuleId>> = vec![None; now.list.modules.len()];
    // The increase of a module also applies to all modules that contain it.
    let mut increase: Vec<SelfCost> = Vec::new();
    for (at, (module, key)) in old.modules.iter().zip(&keys_old).enumerate() {
        let (was, is) = (find_before.get(key), find_now.get(key));
        let parent = module.parent.map(|id| id.0 as usize);
        let nothing = SelfCost::default();
        let before = was.and_then(|at| self_before.get(*at)).unwrap_or(&nothing);
        let after = is.and_then(|at| self_now.get(*at)).unwrap_or(&nothing);
        if was.is_some() && is.is_none() && !scaled.is_partial {
            // It was removed, so the modules that contained it shrink.
            let mut decrease = difference(&SelfCost::default(), &of_module(module));
            decrease.parameters = -before.parameters;
            let container = parent.and_then(|at| result.renumbered.get(at).copied().flatten());
            add_to_ancestors(&result.costs, &mut increase, container, &decrease);
            continue;
        }
        let mut cost = module.clone();
        cost.parent = parent.and_then(|at| result.renumbered.get(at).copied().flatten());
        cost.definition = module.definition.iter().filter_map(|at| places.place(*at)).collect();
        if let Some(now) = is.and_then(|at| now.list.modules.get(*at)) {
            cost.type_name.clone_from(&now.type_name);
        }
        let new = rescaled(module, before, after);
        cost.self_time = new.time;
        cost.self_memory = to_kinds(&new.memory);
        let id = push(&mut result.costs, cost);
        increase.push(SelfCost::default());
        let mut change = difference(&new, &of_module(module));
        change.parameters = after.parameters - before.parameters;
        add_to_ancestors(&result.costs, &mut increase, id, &change);
        if let Some(slot) = result.renumbered.get_mut(at) {
            *slot = id;
        }
        if let Some(slot) = is.and_then(|at| of_now.get_mut(*at)) {
            *slot = id;
        }
    }
    for (at, (module, key)) in now.list.modules.iter().zip(&keys_now).enumerate() {
        if find_old.contains_key(key) {
            continue;
        }
        let parent = module.parent.and_then(|at| of_now.get(at as usize).copied().flatten());
        let new = self_now.get(at).cloned().unwrap_or_default();
        let lines = scaled.created_now.get(at).into_iter().flatten();
        let definition = lines.map(|place| (FileId(place.file), place.line)).collect();
        let id = push(&mut result.costs, new_module(module, parent, definition, &new));
        increase.push(SelfCost::default());
        add_to_ancestors(&result.costs, &mut increase, id, &new);
        if let Some(slot) = of_now.get_mut(at) {
            *slot = id;
        }
    }
    for (cost, increase) in result.costs.iter_mut().zip(&increase) {
        settle(cost, increase);
    }
    result
}

fn new_module(
    module: &Module,
    parent: Option<ModuleId>,
    definition: Vec<(FileId, u32)>,
    self_costs: &SelfCost,
) -> ModuleCost {
    ModuleCost {
        path: module.path.clone(),
        type_name: module.type_name.clone(),
        parent,
        definition,
        self_time: self_costs.time,
        self_memory: to_kinds(&self_costs.memory),
        provenance: Provenance::Estimated,
        ..ModuleCost::default()
    }
}

fn push(costs: &mut Vec<ModuleCost>, cost: ModuleCost) -> Option<ModuleId> {
    let id = u32::try_from(costs.len()).ok().map(ModuleId);
    costs.push(cost);
    id
}

/// Sets the totals of a module, including its children.
fn settle(cost: &mut ModuleCost, increase: &SelfCost) {
    let before = (cost.total_time, cost.memory);
    for phase in Phase::ALL {
        let total = cost.total_time.get(phase) + increase.time.get(phase);
        *cost.total_time.get_mut(phase) = total.max(cost.self_time.get(phase));
    }
    let mut memory = of_kinds(&cost.memory);
    add_to(&mut memory, &increase.memory);
    let minimum = of_kinds(&cost.self_memory);
    cost.memory = to_kinds(&Kinds::by(|kind| memory[kind].max(minimum[kind])));
    // The cast saturates.
    cost.parameters = (cost.parameters as f64 + increase.parameters).round() as u64;
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
    let time = same(before.0.total(), cost.total_time.total());
    if !time || before.1 != cost.memory {
        cost.provenance = Provenance::Estimated;
    }
}

/// Adds a difference to a module and to all modules that contain it.
fn add_to_ancestors(
    costs: &[ModuleCost],
    increase: &mut [SelfCost],
    module: Option<ModuleId>,
    difference: &SelfCost,
) {
    let parent = |id: &ModuleId| costs.get(id.0 as usize).and_then(|cost| cost.parent);
    for id in std::iter::successors(module, parent).take(MAX_DEPTH) {
        if let Some(sum) = increase.get_mut(id.0 as usize) {
            sum.time += difference.time;
            sum.parameters += difference.parameters;
            add_to(&mut sum.memory, &difference.memory);
        }
    }
}

fn difference(new: &SelfCost, old: &SelfCost) -> SelfCost {
    let mut found = SelfCost::default();
    for phase in Phase::ALL {
        *found.time.get_mut(phase) = new.time.get(phase) - old.time.get(phase);
    }
    found.memory = Kinds::by(|kind| new.memory[kind] - old.memory[kind]);
    found
}

fn of_module(module: &ModuleCost) -> SelfCost {
    SelfCost { time: module.self_time, memory: of_kinds(&module.self_memory), parameters: 0.0 }
}

/// Scales a measured module by the ratio of both estimates.
fn rescaled(module: &ModuleCost, before: &SelfCost, now: &SelfCost) -> SelfCost {
    let mut new = of_module(module);
    for phase in Phase::ALL {
        let (old, was, is) =
            (module.self_time.get(phase), before.time.get(phase), now.time.get(phase));
        *new.time.get_mut(phase) = if was > 0.0 { old * (is / was) } else { old + is };
    }
    new.memory = scale(&new.memory, &before.memory, &now.memory);
    new
}

fn self_costs(
    costed: &CostedOperators<'_>,
    units: &[Option<Unit>],
    time: impl Fn(&Group, Option<Unit>) -> f64,
) -> Vec<SelfCost> {
    let modules = costed.list.modules.iter();
    let mut found: Vec<SelfCost> = modules
        .map(|module| SelfCost { parameters: module.parameters as f64, ..SelfCost::default() })
        .collect();
    for (group, unit) in costed.groups.iter().zip(units) {
        let module = group.module.and_then(|at| found.get_mut(at as usize));
        if let Some(module) = module {
            *module.time.get_mut(group.phase) += time(group, *unit);
        }
    }
    for held in costed.list.memory.iter().flat_map(|memory| &memory.at_peak) {
        if let Some(module) = held.module.and_then(|at| found.get_mut(at as usize)) {
            module.memory[kind_of(held)] += held.bytes as f64;
        }
    }
    found
}

fn keys<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<Key<'a>> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    paths
        .map(|path| {
            let count = seen.entry(path).or_default();
            *count += 1;
            (path, *count - 1)
        })
        .collect()
}

fn by_key<'a>(keys: &[Key<'a>]) -> HashMap<Key<'a>, usize> {
    keys.iter().enumerate().map(|(at, key)| (*key, at)).collect()
}
