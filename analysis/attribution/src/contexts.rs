//! The contexts that moments are attributed to: stacks, modules and phase.
//!
//! Autograd's work has two stacks: the one on which it runs (`loss.backward()` is on it) and that
//! of the forward operator whose derivative it is. Its total cost belongs to both. Its self cost
//! belongs to the forward line, unless user code runs within the node (a custom function's
//! `backward`, a hook, the second forward pass of a checkpoint): then it belongs to that code.

use std::collections::HashMap;

use super::backward::Nodes;
use super::correlate::Place;
use super::join::Join;
use ridgeline_profile::Phase;
use ridgeline_recording::line_log::{Marker, MarkerId, Markers, StackId, Stacks};
use ridgeline_recording::manifest::Manifest;
use ridgeline_recording::trace::ThreadId;

/// Index into [`Contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ContextId(pub u32);

/// What moments that are attributed to the same lines, modules and phase have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Context {
    /// Stack of the working thread.
    pub own: StackId,
    /// Stack of the thread that waits for it: on a GPU, autograd works on another thread.
    pub caller: StackId,
    /// Stack of the forward operator, for autograd's work.
    pub forward: StackId,
    /// The one of the three stacks whose line gets the self cost.
    pub line: StackId,
    /// Modules and phases around the working thread.
    pub marker: MarkerId,
    /// Modules and phases around the forward operator.
    pub forward_marker: MarkerId,
    pub phase: Phase,
}

impl Context {
    /// Returns the stacks whose lines all get the total cost.
    pub(crate) fn stacks(&self) -> [StackId; 3] {
        [self.own, self.caller, self.forward]
    }

    /// Returns the markers around it, starting with those around its own line.
    pub(crate) fn markers(&self) -> [MarkerId; 2] {
        if self.line == self.own || self.forward_marker == MarkerId::NONE {
            [self.marker, self.forward_marker]
        } else {
            [self.forward_marker, self.marker]
        }
    }
}

/// All contexts of a recording, and the context of each operator.
pub(super) struct Contexts<'a> {
    join: &'a Join<'a>,
    /// By node: the places of the node, of its waiting caller and of its forward operator.
    node_places: Vec<NodePlace>,
    /// By thread: whether autograd's engine runs nodes on it.
    runs_nodes: Vec<bool>,
    /// By operator: whether it, or an operator around or within it, created a node that ran.
    builds_the_loss: Vec<bool>,
    phases: Vec<Option<Phase>>,
    forward_unless_marked: bool,
    /// By stack: whether the training loop fetches its next batch.
    fetches: Vec<bool>,
    all: Vec<Context>,
    ids: HashMap<Context, ContextId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodePlace {
    own: StackId,
    caller: StackId,
    forward: Place,
}

impl<'a> Contexts<'a> {
    /// `forward_unless_marked`: whether operators outside of all markers belong to the forward
    /// pass, as they do without a line log.
    pub(crate) fn new(
        join: &'a Join<'a>,
        manifest: Option<&Manifest>,
        forward_unless_marked: bool,
    ) -> Contexts<'a> {
        let mut contexts = Contexts {
            join,
            node_places: vec![NodePlace::default(); join.nodes.nodes.len()],
            runs_nodes: runs_nodes(join),
            builds_the_loss: builds_the_loss(&join.nodes, &join.parents),
            phases: phases(&join.places.log.markers),
            forward_unless_marked,
            fetches: fetches(&join.places.log.stacks, manifest),
            all: Vec::new(),
            ids: HashMap::new(),
        };
        contexts.place_nodes();
        contexts
    }

    /// Places the nodes in order of time, because the forward operator of a node can have run
    /// within an earlier node (second derivatives), whose line it gets then.
    fn place_nodes(&mut self) {
        let mut order: Vec<(i64, u32, usize)> = self
            .join
            .nodes
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| {
                let operator = self.join.trace.operators.get(node.operator as usize)?;
                Some((operator.start_ns, node.operator, index))
            })
            .collect();
        order.sort_unstable();
        for (start_ns, operator, index) in order {
            let Some(node) = self.join.nodes.nodes.get(index) else { continue };
            let own = self.join.place_of(operator).stack;
            let thread = self.join.trace.operators.get(operator as usize);
            let caller = match thread {
                Some(operator) if own == StackId::EMPTY => {
                    self.caller_of(operator.thread, operator.forward_thread.get(), start_ns)
                }
                _ => StackId::EMPTY,
            };
            let forward = node.forward.map_or(Place::default(), |forward| {
                let place = self.join.place_of(forward);
                let context = self.describe(Some(forward), place);
                let marker =
                    if context.forward_marker == MarkerId::NONE || context.line == context.own {
                        context.marker
                    } else {
                        context.forward_marker
                    };
                Place { stack: context.line, marker }
            });
            if let Some(place) = self.node_places.get_mut(index) {
                *place = NodePlace { own, caller, forward };
            }
        }
    }

    /// Returns the stack of the thread that waits for autograd's thread.
    fn caller_of(&self, thread: ThreadId, forward: Option<u64>, time_ns: i64) -> StackId {
        forward
            .and_then(|forward| self.join.nodes.forward_threads.get(&forward).copied())
            .or(self.join.places.main)
            .filter(|&waiting| waiting != thread)
            .map_or(StackId::EMPTY, |waiting| self.join.places.at(waiting, time_ns).stack)
    }

    /// Returns the stack that waits for an operator that autograd's thread runs outside of every
    /// node: a callback at the end of the backward pass (`queue_callback`), in which DDP waits for
    /// its buckets and FSDP reduces the gradients of its root.
    fn caller_after_nodes(&self, operator: u32) -> Option<StackId> {
        let ran = self.join.trace.operators.get(operator as usize)?;
        if !self.runs_nodes.get(ran.thread.index()).copied().unwrap_or(false) {
            return None;
        }
        let caller = self.caller_of(ran.thread, None, ran.start_ns);
        (caller != StackId::EMPTY).then_some(caller)
    }

    /// Returns the context of an operator.
    pub(crate) fn of_operator(&mut self, operator: u32) -> ContextId {
        let context = self.describe(Some(operator), self.join.place_of(operator));
        self.intern(context)
    }

    /// Returns the context of a moment, from the thread's innermost operator and place.
    pub(crate) fn of_moment(&mut self, operator: Option<u32>, place: Place) -> ContextId {
        let context = self.describe(operator, place);
        self.intern(context)
    }

    fn describe(&self, operator: Option<u32>, place: Place) -> Context {
        let node = operator
            .and_then(|operator| *self.join.nodes.of_operator.get(operator as usize)?)
            .and_then(|node| self.node_places.get(node as usize));
        let Some(node) = node else {
            let after_nodes = operator.filter(|_| place.stack == StackId::EMPTY);
            let caller = after_nodes.and_then(|operator| self.caller_after_nodes(operator));
            return Context {
                own: place.stack,
                caller: caller.unwrap_or(StackId::EMPTY),
                forward: StackId::EMPTY,
                line: caller.unwrap_or(place.stack),
                marker: place.marker,
                forward_marker: MarkerId::NONE,
                phase: match caller {
                    Some(_) => Phase::Backward,
                    None => self.phase_outside_nodes(operator, place),
                },
            };
        };
        let stacks = &self.join.places.log.stacks;
        let users_code = stacks.depth(place.stack) > stacks.depth(node.own);
        let line = if users_code || node.forward.stack == StackId::EMPTY {
            if place.stack == StackId::EMPTY { node.caller } else { place.stack }
        } else {
            node.forward.stack
        };
        Context {
            own: place.stack,
            caller: node.caller,
            forward: node.forward.stack,
            line,
            marker: place.marker,
            forward_marker: node.forward.marker,
            // A hook of the backward pass may step an optimizer.
            phase: match self.phase_of_marker(place.marker) {
                Some(Phase::Optimizer) => Phase::Optimizer,
                _ => Phase::Backward,
            },
        }
    }

    fn phase_of_marker(&self, marker: MarkerId) -> Option<Phase> {
        self.phases.get(marker.0 as usize).copied().flatten()
    }

    fn phase_outside_nodes(&self, operator: Option<u32>, place: Place) -> Phase {
        let builds_the_loss = operator
            .is_some_and(|operator| self.builds_the_loss.get(operator as usize) == Some(&true));
        match self.phase_of_marker(place.marker) {
            // In the closure of `optimizer.step(closure)`.
            Some(Phase::Optimizer) if builds_the_loss => return Phase::Forward,
            Some(phase) => return phase,
            None => {}
        }
        if self.fetches.get(place.stack.0 as usize).copied().unwrap_or(false) {
            return Phase::Data;
        }
        // A loss outside of every module is still part of the forward pass.
        let is_forward = operator.is_some() && (self.forward_unless_marked || builds_the_loss);
        if is_forward { Phase::Forward } else { Phase::Other }
    }

    fn intern(&mut self, context: Context) -> ContextId {
        if let Some(&id) = self.ids.get(&context) {
            return id;
        }
        let id = ContextId(self.all.len() as u32);
        self.all.push(context);
        self.ids.insert(context, id);
        id
    }

    /// Returns a context by id.
    pub(crate) fn get(&self, id: ContextId) -> Option<Context> {
        self.all.get(id.0 as usize).copied()
    }

    /// Returns the number of contexts.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Iterates over all contexts, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ContextId, &Context)> {
        (0u32..).map(ContextId).zip(&self.all)
    }
}

fn runs_nodes(join: &Join<'_>) -> Vec<bool> {
    let mut runs = vec![false; join.trace.threads.len()];
    for node in &join.nodes.nodes {
        let operator = join.trace.operators.get(node.operator as usize);
        if let Some(thread) = operator.and_then(|one| runs.get_mut(one.thread.index())) {
            *thread = true;
        }
    }
    runs
}

/// Returns whether each operator, or an operator around or within it, created a node that ran. The
/// whole tree of such an operator is part of the forward pass.
fn builds_the_loss(nodes: &Nodes, parents: &[Option<u32>]) -> Vec<bool> {
    let mut builds = nodes.made_a_node.clone();
    // Children come after their parents, so one backward pass reaches the outermost operator and
    // one forward pass everything within it.
    for (index, parent) in parents.iter().enumerate().rev() {
        let made = builds.get(index).copied().unwrap_or(false);
        if let Some(parent) = parent.filter(|_| made).and_then(|p| builds.get_mut(p as usize)) {
            *parent = true;
        }
    }
    for (index, parent) in parents.iter().enumerate() {
        let outer = parent.and_then(|parent| builds.get(parent as usize).copied());
        if let Some(here) = builds.get_mut(index).filter(|_| outer == Some(true)) {
            *here = true;
        }
    }
    builds
}

/// Returns for each stack whether the training loop is on its `for` line. Calls from there belong
/// to the loader, even if it is the user's own generator, which no hook of PyTorch's loader
/// detects.
fn fetches(stacks: &Stacks, manifest: Option<&Manifest>) -> Vec<bool> {
    let mut fetches = vec![false; stacks.len()];
    let Some((manifest, place)) = manifest.and_then(|m| Some((m, m.training_loop?))) else {
        return fetches;
    };
    // The loop of a provider is Ridgeline's; its place is a placeholder and fetches nothing.
    if manifest.iterations.found_by.as_deref() == Some("provider") {
        return fetches;
    }
    for (stack, frame) in stacks.iter() {
        let file = manifest.codes.get(frame.code as usize).map(|code| code.file);
        let here = file == Some(place.file) && frame.line == place.line;
        let called = fetches.get(frame.caller.0 as usize).copied().unwrap_or(false);
        if let Some(fetch) = fetches.get_mut(stack.0 as usize) {
            *fetch = here || called;
        }
    }
    fetches
}

/// Returns the phase of each marker. The innermost phase or module counts, because frameworks run
/// forward passes within `optimizer.step(closure)`. The exception is loading: the loader's
/// transforms may be modules, which does not make loading a forward pass.
fn phases(markers: &Markers) -> Vec<Option<Phase>> {
    let mut phases: Vec<Option<Phase>> = vec![None];
    for (outer, marker) in markers.iter() {
        let outer = phases.get(outer.0 as usize).copied().flatten();
        let here = match (outer, marker) {
            (Some(Phase::Data), _) | (_, Marker::Phase(0)) => Some(Phase::Data),
            (_, Marker::Module(_) | Marker::Phase(1)) => Some(Phase::Forward),
            (_, Marker::Phase(2)) => Some(Phase::Backward),
            (_, Marker::Phase(3)) => Some(Phase::Optimizer),
            (outer, Marker::Phase(_)) => outer,
        };
        phases.push(here);
    }
    phases
}
