//! An operator list with the cost of each operator on a device.

use std::collections::HashMap;

use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::machine_costs::MachineCosts;
use ridgeline_operators::op_cost::{OpCost, Options, cost};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::operator::Operator;
use ridgeline_profile::Phase;

/// Calls of one operator from one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Index into the list's signatures.
    pub signature: u32,
    /// The part of the iteration.
    pub phase: Phase,
    /// Index into the list's stacks, of the innermost frame.
    pub stack: Option<u32>,
    /// Index into the list's modules.
    pub module: Option<u32>,
    /// Calls in one iteration.
    pub calls: f64,
    /// Time of all calls, in nanoseconds.
    pub time_ns: f64,
}

/// An operator list with costs.
#[derive(Debug)]
pub struct CostedOperators<'a> {
    /// The list.
    pub list: &'a OpList,
    /// The cost of one call, by signature.
    pub costs: Vec<OpCost>,
    /// The calls by operator and place, in the order of the first calls.
    pub groups: Vec<Group>,
}

impl<'a> CostedOperators<'a> {
    /// Computes the cost of every operator in a list, with what was measured on the machine.
    pub fn new(
        list: &'a OpList,
        device: &DeviceSpec,
        options: &Options,
        machine_costs: &MachineCosts,
    ) -> CostedOperators<'a> {
        let cost_of = |operator: &Operator| match machine_costs.of(operator) {
            Some((full, ratio)) => {
                let modelled = cost(operator, device, options);
                OpCost { time_ns: cost(&full, device, options).time_ns.times(ratio), ..modelled }
            }
            None => cost(operator, device, options),
        };
        let costs: Vec<OpCost> = list.signatures.iter().map(cost_of).collect();
        let time_of = |cost: &OpCost| {
            let time_ns = cost.time_ns.value;
            let is_work = time_ns.is_finite() && time_ns > 0.0;
            if is_work { time_ns + machine_costs.call_ns } else { 0.0 }
        };
        let times: Vec<f64> = costs.iter().map(time_of).collect();
        let mut index: HashMap<(u32, Phase, Option<u32>, Option<u32>), usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for op in &list.ops {
            let key = (op.signature, op.phase, op.stack, op.module);
            let at = *index.entry(key).or_insert_with(|| {
                let (signature, phase, stack, module) = key;
                groups.push(Group { signature, phase, stack, module, calls: 0.0, time_ns: 0.0 });
                groups.len() - 1
            });
            if let (Some(group), Some(time_ns)) =
                (groups.get_mut(at), times.get(op.signature as usize))
            {
                group.calls += 1.0;
                group.time_ns += time_ns;
            }
        }
        CostedOperators { list, costs, groups }
    }

    /// Returns the name of a group's operator without its overload. Operators of the same name are
    /// calibrated together.
    pub fn name(&self, group: &Group) -> &'a str {
        let operator = self.list.signatures.get(group.signature as usize);
        let name = operator.map_or("", |operator| operator.name.as_str());
        name.split_once('.').map_or(name, |(base, _)| base)
    }
}
