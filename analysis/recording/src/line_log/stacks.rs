//! The call stacks and module nestings of a line log, as trees.

use std::collections::HashMap;

/// Maximum stack depth. Deeper frames are counted as the frame at this depth: no training loop
/// nests its own functions deeper, and work per stack stays bounded.
pub const MAX_DEPTH: u16 = 512;

/// Index into [`Stacks`]. [`StackId::EMPTY`] means that no user code was on the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// The stack without user frames.
    pub const EMPTY: StackId = StackId(0);
}

/// Index into [`Markers`]. [`MarkerId::NONE`] means outside of every module and phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkerId(pub u32);

impl MarkerId {
    /// Outside of every module and phase.
    pub const NONE: MarkerId = MarkerId(0);
}

/// A stack frame: a function, its current line, and the expression in progress there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The caller's stack.
    pub caller: StackId,
    /// Index into the manifest's codes.
    pub code: u32,
    /// Line number, counted from 1.
    pub line: u32,
    /// Index into the manifest's expressions; `None` where the line has only one, and before the
    /// first.
    pub expression: Option<u32>,
}

/// Something besides a function that a program can be inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// A call of a module instance, by index into the manifest's modules.
    Module(u32),
    /// A phase by its number in the line log: 0 data, 1 forward, 2 backward, 3 optimizer.
    Phase(u32),
}

/// All stacks that occurred, as a tree: each is its innermost frame and the caller's stack.
#[derive(Clone, Debug)]
pub struct Stacks {
    frames: Vec<StackFrame>,
    depths: Vec<u16>,
    ids: HashMap<StackFrame, StackId>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        Stacks { frames: vec![StackFrame::default()], depths: vec![0], ids: HashMap::new() }
    }
}

impl Stacks {
    /// Returns the number of stacks, including the empty one.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is only the empty stack.
    pub fn is_empty(&self) -> bool {
        self.frames.len() == 1
    }

    /// Returns the innermost frame, or `None` for the empty stack.
    pub fn top(&self, stack: StackId) -> Option<StackFrame> {
        if stack == StackId::EMPTY { None } else { self.frames.get(stack.0 as usize).copied() }
    }

    /// Returns the number of frames, at most [`MAX_DEPTH`].
    pub fn depth(&self, stack: StackId) -> u16 {
        self.depths.get(stack.0 as usize).copied().unwrap_or(0)
    }

    /// Iterates over the frames with their stacks, innermost first: the stack itself, its caller's,
    /// and so on.
    pub fn walk(&self, stack: StackId) -> impl Iterator<Item = (StackId, StackFrame)> + '_ {
        let mut next = stack;
        std::iter::from_fn(move || {
            let frame = self.top(next)?;
            let here = next;
            next = frame.caller;
            Some((here, frame))
        })
    }

    /// Iterates over every stack with its innermost frame, callers before callees.
    pub fn iter(&self) -> impl Iterator<Item = (StackId, StackFrame)> + '_ {
        (1u32..).zip(self.frames.iter().skip(1)).map(|(id, frame)| (StackId(id), *frame))
    }

    pub(super) fn intern(&mut self, frame: StackFrame) -> StackId {
        if let Some(&known) = self.ids.get(&frame) {
            return known;
        }
        // Ids cannot overflow: each takes a record of 24 bytes, or an event of a trace.
        let id = StackId(self.frames.len() as u32);
        self.frames.push(frame);
        self.depths.push(self.depth(frame.caller).saturating_add(1));
        self.ids.insert(frame, id);
        id
    }
}

/// All nestings of modules and phases that occurred, as a tree.
#[derive(Clone, Debug)]
pub struct Markers {
    markers: Vec<(MarkerId, Marker)>,
    depths: Vec<u16>,
    ids: HashMap<(MarkerId, Marker), MarkerId>,
}

impl Default for Markers {
    fn default() -> Markers {
        let nothing = (MarkerId::NONE, Marker::Phase(u32::MAX));
        Markers { markers: vec![nothing], depths: vec![0], ids: HashMap::new() }
    }
}

impl Markers {
    /// Returns the number of nestings, including the empty one.
    pub fn len(&self) -> usize {
        self.markers.len()
    }

    /// Whether there is only the empty nesting.
    pub fn is_empty(&self) -> bool {
        self.markers.len() == 1
    }

    /// Returns the innermost marker and the nesting around it, or `None` outside of all markers.
    pub fn top(&self, id: MarkerId) -> Option<(MarkerId, Marker)> {
        if id == MarkerId::NONE { None } else { self.markers.get(id.0 as usize).copied() }
    }

    /// Iterates over every nesting as its innermost marker and the nesting around it, outer ones
    /// first.
    pub fn iter(&self) -> impl Iterator<Item = (MarkerId, Marker)> + '_ {
        self.markers.iter().skip(1).copied()
    }

    /// Iterates over the markers of a nesting, innermost first.
    pub fn walk(&self, id: MarkerId) -> impl Iterator<Item = Marker> + '_ {
        let mut next = id;
        std::iter::from_fn(move || {
            let (outer, marker) = self.top(next)?;
            next = outer;
            Some(marker)
        })
    }

    pub(super) fn intern(&mut self, outer: MarkerId, marker: Marker) -> MarkerId {
        if let Some(&known) = self.ids.get(&(outer, marker)) {
            return known;
        }
        let depth = self.depths.get(outer.0 as usize).copied().unwrap_or(0);
        if depth >= MAX_DEPTH {
            return outer;
        }
        let id = MarkerId(self.markers.len() as u32);
        self.markers.push((outer, marker));
        self.depths.push(depth.saturating_add(1));
        self.ids.insert((outer, marker), id);
        id
    }
}
