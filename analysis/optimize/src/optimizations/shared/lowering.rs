//! Runs an iteration under `torch.autocast`: selects the calls that run in the lower type, and adds
//! casts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::autocast::{self, Input, Rule, Shape, Tensors, Types};
use super::insert::{AddedOperator, Inserter};
use super::retyped::cast;
use super::{factors, mixed_precision, overhead};
use crate::facts::{Facts, Variant};
use crate::optimization::Bound;
use ridgeline_graph::calls::{Call, has_kernels};
use ridgeline_graph::graph::{Graph, Resource, TaskId};
use ridgeline_graph::memory::{Block, BlockKind, Moment};
use ridgeline_operators::operator::{ElementType, Operator};
use ridgeline_operators::retyped::retyped;
use ridgeline_profile::Phase;

use ElementType::Float32;

/// Uncertainty factor of the time of an operator in 16 bits on a CPU without a probe, which keeps
/// its time. CPU speed in 16 bits does not follow a datasheet. The backward pass of oneDNN's
/// recurrent layers has no probe: in `demo-projects/seq2seq`, mostly such layers, it took 1.3 times
/// its time in one run on an EPYC with 2 cores (torch 2.15), and a single LSTM 0.8 to 0.95 times.
const UNPROBED_UNCERTAINTY: f64 = 1.4;

/// The changes to an iteration.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoweringChanges {
    /// Indices of the calls that now run in the lower type.
    pub calls: Vec<usize>,
    /// Number of casts: kernels, or operators on a CPU.
    pub casts: usize,
}

/// Runs an iteration's forward and backward pass under autocast.
pub(crate) fn lower(
    graph: &mut Graph,
    facts: &Facts<'_>,
    calls: &[Call],
    element: ElementType,
    bound: Bound,
) -> LoweringChanges {
    let mut lowering = Lowering {
        facts,
        element,
        bound,
        on_gpu: has_kernels(graph),
        operators: graph.operators.as_slice().into(),
        host_ns: overhead::small_call_ns(graph, calls),
        machine_factor: overhead::machine_factor(graph, facts, calls),
        inserter: Inserter::new(graph),
        known: vec![None; graph.operators.len()],
        types: Types::default(),
        lowered: HashMap::new(),
        added: HashMap::new(),
        weights: HashSet::new(),
        backward: BTreeMap::new(),
        halved: HashSet::new(),
        done: LoweringChanges::default(),
        graph,
    };
    let in_model = |call: &Call| matches!(call.phase, Phase::Forward | Phase::Backward);
    for (place, call) in calls.iter().enumerate().filter(|(_, call)| in_model(call)) {
        lowering.call(place, call);
    }
    let last = calls.iter().rev().find(|call| call.phase == Phase::Backward);
    let left = std::mem::take(&mut lowering.backward).into_values().flatten();
    if let Some(last) = last {
        left.for_each(|cast| lowering.cast_after(last, cast));
        lowering.keep_weights(last);
    }
    lowering.shrink_blocks();
    lowering.done
}

/// A cast: the tensor's shape, and the types before and after.
type Cast = (Shape, ElementType, ElementType);

struct Lowering<'a, 'g> {
    graph: &'g mut Graph,
    facts: &'a Facts<'a>,
    element: ElementType,
    bound: Bound,
    on_gpu: bool,
    /// The operators before the change.
    operators: Rc<[Operator]>,
    host_ns: f64,
    machine_factor: f64,
    inserter: Inserter,
    /// By operator, computed at the first call.
    known: Vec<Option<Rc<OperatorTypes>>>,
    types: Types,
    /// By operator: the operator in the lower type, and a factor on its time.
    lowered: HashMap<u32, (u32, f64)>,
    added: HashMap<Cast, AddedOperator>,
    /// Weights cast so far, by module and shape.
    weights: HashSet<(Option<u32>, Shape)>,
    /// Casts of the backward pass, by module.
    backward: BTreeMap<Option<u32>, Vec<Cast>>,
    /// Calls whose outputs have the lower type.
    halved: HashSet<u32>,
    done: LoweringChanges,
}

/// An operator as seen by autocast.
struct OperatorTypes {
    rule: Rule,
    /// Whether it takes an FP32 tensor.
    takes_full: bool,
    tensors: Tensors,
}

impl Lowering<'_, '_> {
    fn known(&mut self, operator: u32) -> Option<Rc<OperatorTypes>> {
        let slot = self.known.get_mut(operator as usize)?;
        if let Some(known) = slot {
            return Some(Rc::clone(known));
        }
        let operator = self.operators.get(operator as usize)?;
        let known = Rc::new(OperatorTypes {
            rule: autocast::rule(operator.base_name().unwrap_or_default(), self.on_gpu),
            takes_full: operator.input_tensors().any(|it| it.element == Some(Float32)),
            tensors: self.types.tensors(operator),
        });
        *slot = Some(Rc::clone(&known));
        Some(known)
    }

    fn call(&mut self, place: usize, call: &Call) {
        let Some(known) = self.known(call.operator) else { return };
        let forward = call.phase != Phase::Backward;
        let inputs = known.tensors.inputs(call.phase);
        let is_lower = match known.rule {
            Rule::Lower => known.takes_full,
            Rule::Full | Rule::FullWithin => false,
            Rule::Widest => {
                let most = inputs.iter().map(|input| input.elements).fold(0.0, f64::max);
                let mut widest = inputs.iter().filter(|input| input.elements == most).peekable();
                widest.peek().is_some() && widest.all(|input| self.types.of(input).is_lower)
            }
        };
        if forward && matches!(known.rule, Rule::Lower | Rule::Full) {
            for input in inputs {
                if self.types.of(input).is_lower != is_lower {
                    self.cast_input(call, input, is_lower);
                }
            }
        }
        if forward && is_lower {
            self.cast_weights(call, &known.tensors.weights);
        }
        self.types.record_outputs(&known.tensors, is_lower, call.number);
        if is_lower {
            self.lower(call);
            self.done.calls.push(place);
        }
        if !forward {
            let casts = self.backward.remove(&call.module).unwrap_or_default();
            casts.into_iter().for_each(|cast| self.cast_after(call, cast));
        }
    }

    fn lower(&mut self, call: &Call) {
        let (changed, ratio) = match self.lowered.get(&call.operator) {
            Some(known) => *known,
            None => {
                let Some(operator) = self.operators.get(call.operator as usize) else { return };
                let changed = retyped(operator, Float32, self.element);
                let variant = match self.element {
                    ElementType::BFloat16 => Variant::BFloat16,
                    _ => Variant::Float16,
                };
                let recorded = self.graph.recorded_as(call.operator);
                let probed = self.facts.probes.ratio(recorded, variant);
                let modelled = || {
                    if !self.on_gpu {
                        return self.bound.within_factor(1.0, UNPROBED_UNCERTAINTY);
                    }
                    let ratio = self.facts.modelled_ratio(operator, &changed);
                    self.bound.of(ratio) * self.fitted(operator)
                };
                let ratio = probed.map_or_else(modelled, |ratio| self.bound.of(ratio));
                let entry = (self.graph.exchange_operator(call.operator, changed), ratio);
                self.lowered.insert(call.operator, entry);
                entry
            }
        };
        self.graph.scale(&call.work, ratio);
        call.set_operator(self.graph, changed);
        self.halved.insert(call.number);
    }

    /// Returns the fitted correction of the cost model, from steps on GPUs measured in both types.
    fn fitted(&self, operator: &Operator) -> f64 {
        let has_tf32 = self.facts.device.capability() >= Some((8, 0));
        factors::mixed_precision().of(mixed_precision::kind(operator, has_tf32))
    }

    /// Casts an activation before an operator. The backward pass casts its gradient back. The saved
    /// activation has the type in which it is used.
    fn cast_input(&mut self, call: &Call, input: &Input, is_lower: bool) {
        let types = if is_lower { (Float32, self.element) } else { (self.element, Float32) };
        let maker = self.types.of(input).call;
        let added = self.added((input.shape, types.0, types.1));
        self.inserter.before(self.graph, call, added);
        self.done.casts += 1;
        self.types.cast(input.shape, is_lower);
        if let Some(maker) = maker {
            if is_lower {
                self.halved.insert(maker);
            } else {
                self.halved.remove(&maker);
            }
        }
        let back = (input.shape, types.1, types.0);
        self.backward.entry(call.module).or_default().push(back);
    }

    fn cast_weights(&mut self, call: &Call, weights: &[Shape]) {
        for shape in weights.iter().copied() {
            if !self.weights.insert((call.module, shape)) {
                continue;
            }
            let added = self.added((shape, Float32, self.element));
            self.inserter.before(self.graph, call, added);
            self.done.casts += 1;
            let back = (shape, self.element, Float32);
            self.backward.entry(call.module).or_default().push(back);
        }
    }

    fn cast_after(&mut self, call: &Call, cast: Cast) {
        let added = self.added(cast);
        self.inserter.after(self.graph, call, added);
        self.done.casts += 1;
    }

    fn added(&mut self, (shape, from, to): Cast) -> AddedOperator {
        let key = (shape, from, to);
        if let Some(known) = self.added.get(&key) {
            return *known;
        }
        let operator = cast(self.types.sizes(shape), from, to);
        let work_ns = overhead::work_ns(self.facts, &operator, self.machine_factor);
        self.graph.operators.push(operator);
        let operator = self.graph.operators.len() as u32 - 1;
        let added = AddedOperator { operator, work_ns, host_ns: self.host_ns };
        self.added.insert(key, added);
        added
    }

    /// Adds the memory of the cast weights, which live until the end of the backward pass.
    fn keep_weights(&mut self, last: &Call) {
        let elements: u64 = self
            .weights
            .iter()
            .map(|(_, shape)| self.types.sizes(*shape).iter().product::<u64>())
            .sum();
        let first = self.graph.find(&Resource::Host).and_then(|host| self.graph.first(host));
        let moment = |task: TaskId, event: u32| Moment { task, event };
        self.graph.memory.add(Block {
            bytes: elements as f64 * self.element.bytes(),
            kind: BlockKind::Activations,
            allocated: first.map(|task| moment(task, 0)),
            freed: last.host.last().map(|task| moment(*task, u32::MAX)),
            line: None,
            module: None,
            call: None,
        });
    }

    fn shrink_blocks(&mut self) {
        let halved = &self.halved;
        self.graph.change_blocks(|block| {
            let is_stored = matches!(block.kind, BlockKind::Activations | BlockKind::Temporaries);
            if is_stored && block.call.is_some_and(|call| halved.contains(&call)) {
                block.bytes *= 0.5;
            }
        });
    }
}
