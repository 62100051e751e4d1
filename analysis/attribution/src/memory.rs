//! The memory at the peak, by kind and line.
//!
//! Allocations and frees of the measured iteration are replayed by address, starting from the
//! memory allocated before it. All sizes are integers, so the parts add up to the peak exactly.
//!
//! - A free of an unknown address frees a block whose allocation was not recorded; a CPU does not
//!   even record frees of blocks that are older than the profiler.
//! - An allocation at an address in use means that the free of the block there was not recorded.
//! - Events without an address (traces of 2021) are only added up.
//! - GPU events contain the allocator's total, so memory beyond the known blocks (workspaces,
//!   rounding) is known as well, and is counted as `other`.

use std::collections::{HashMap, HashSet};

use ridgeline_profile::MemoryCost;
use ridgeline_recording::manifest::{BlockKind, Manifest, Memory};
use ridgeline_recording::trace::{MemoryEvent, Trace};

/// The maximum number of points of the curve.
const CURVE_POINTS: usize = 400;

/// Allocation granularity of CUDA's caching allocator (`kMinBlockSize`), in bytes.
const CUDA_BLOCK_BYTES: u64 = 512;

/// The maximum size of a block, 256 TiB, which no machine has. Larger values of a damaged recording
/// are clamped, so sums stay exact: 65,536 such blocks would be needed to overflow 64 bits.
const MAX_BLOCK_BYTES: u64 = 1 << 48;

/// The lifetime of a block within the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub address: Option<u64>,
    pub bytes: u64,
    /// Index of the event that allocated it; `None` if it was allocated before.
    pub allocated: Option<usize>,
    /// Index of the event that freed it.
    pub freed: Option<usize>,
    /// The kind recorded by the agent, if it was allocated before.
    pub kind: Option<BlockKind>,
    /// The module that owns it.
    pub module: Option<u32>,
}

/// The measured iteration's memory, replayed.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// When the iteration began.
    pub start_ns: i64,
    /// The relevant events, in order of time.
    pub events: Vec<MemoryEvent>,
    /// Every block that was alive at some time.
    pub blocks: Vec<Block>,
    /// Indices of the blocks that are alive at the peak.
    pub alive: Vec<usize>,
    /// Bytes at the peak that no block explains.
    pub unknown_bytes: u64,
    /// The peak and the curve; the kinds are filled in later.
    pub cost: MemoryCost,
}

/// Replays the events of the measured iteration.
pub(super) fn replay(
    trace: &Trace,
    manifest: Option<&Manifest>,
    window: Option<(i64, i64)>,
) -> Replay {
    let Some((start_ns, end_ns)) = window else { return Replay::default() };
    let recorded = manifest.and_then(|manifest| manifest.memory.as_ref());
    let events = events_of(trace, recorded, start_ns, end_ns);
    if events.is_empty() && recorded.is_some_and(is_uncounted) {
        return Replay::default();
    }
    let on_device = events.iter().any(|event| event.device_type.is_some_and(|kind| kind != 0));
    let blocks = recorded.map_or_else(Vec::new, |memory| baseline(memory, on_device));
    let known = blocks.iter().fold(0_u64, |sum, block| sum.saturating_add(block.bytes));
    let given_out = recorded
        .and_then(|memory| memory.allocated_bytes)
        .or_else(|| on_device.then(|| bytes_before_first_event(&events))?);
    let mut state = State {
        alive: blocks
            .iter()
            .enumerate()
            .filter_map(|(index, block)| Some((block.address?, index)))
            .collect(),
        blocks,
        now: known,
        unknown: given_out.map_or(0, |given_out| given_out.saturating_sub(known)),
    };
    state.now = state.now.saturating_add(state.unknown);
    let mut curve = vec![(start_ns, state.now)];
    let (mut peak, mut peak_at, mut peak_event) = (state.now, start_ns, None);
    for (index, event) in events.iter().enumerate() {
        state.apply(index, event);
        if on_device {
            state.settle(event);
        }
        curve.push((event.time_ns, state.now));
        if state.now > peak {
            (peak, peak_at, peak_event) = (state.now, event.time_ns, Some(index));
        }
    }
    if events.is_empty() {
        // An allocator that counts bytes but records no blocks, such as cudaMallocAsync.
        peak = peak.max(recorded.and_then(|memory| memory.max_allocated_bytes).unwrap_or_default());
    }
    let blocks = state.blocks;
    let alive: Vec<usize> = blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| block.bytes > 0 && is_alive_after(block, peak_event))
        .map(|(index, _)| index)
        .collect();
    let explained = alive
        .iter()
        .filter_map(|&index| blocks.get(index))
        .fold(0_u64, |sum, block| sum.saturating_add(block.bytes));
    Replay {
        start_ns,
        alive,
        unknown_bytes: peak.saturating_sub(explained),
        cost: MemoryCost {
            peak_bytes: peak,
            capacity_bytes: recorded
                .and_then(|memory| memory.capacity_bytes)
                .or_else(|| manifest?.device.capacity_bytes),
            curve: thinned(&curve, peak_at, start_ns),
            peak_at_ns: since(start_ns, peak_at),
            recorded_ns: since(start_ns, end_ns),
            ..MemoryCost::default()
        },
        events,
        blocks,
    }
}

/// Whether the GPU's allocator neither records blocks nor counts bytes, like a pluggable one: the
/// known tensors are less than the allocated memory.
fn is_uncounted(memory: &Memory) -> bool {
    let on_device = memory.device.as_deref().is_some_and(|name| !name.starts_with("cpu"));
    on_device && memory.max_allocated_bytes.is_none()
}

/// Whether a block is alive after an event; `None` is the time before the first.
fn is_alive_after(block: &Block, event: Option<usize>) -> bool {
    block.allocated <= event && block.freed.is_none_or(|freed| Some(freed) > event)
}

/// The state of the replay.
struct State {
    blocks: Vec<Block>,
    /// Index of the block by address.
    alive: HashMap<u64, usize>,
    /// Current bytes.
    now: u64,
    /// The part of `now` that no block explains.
    unknown: u64,
}

impl State {
    fn apply(&mut self, index: usize, event: &MemoryEvent) {
        let bytes = event.bytes.unsigned_abs().min(MAX_BLOCK_BYTES);
        if event.address.get().is_none() {
            self.count(event.bytes >= 0, bytes);
            return;
        }
        if event.bytes >= 0 {
            let number = self.blocks.len();
            self.blocks.push(Block {
                address: event.address.get(),
                bytes,
                allocated: Some(index),
                freed: None,
                kind: None,
                module: None,
            });
            self.now = self.now.saturating_add(bytes);
            let before = event.address.get().and_then(|address| self.alive.insert(address, number));
            if let Some(before) = before {
                self.end(before, index);
            }
            return;
        }
        let block = event.address.get().and_then(|address| self.alive.remove(&address));
        let freed = block.map_or(0, |block| self.end(block, index));
        // Rounding of the allocator beyond the block's size, or an unknown block.
        let beyond = bytes.saturating_sub(freed).min(self.unknown);
        self.unknown -= beyond;
        self.now = self.now.saturating_sub(beyond);
    }

    /// Counts an event without an address, whose block cannot be matched to its free.
    fn count(&mut self, is_allocation: bool, bytes: u64) {
        if is_allocation {
            self.now = self.now.saturating_add(bytes);
            self.unknown = self.unknown.saturating_add(bytes);
        } else {
            // The rest was allocated before the first event.
            let freed = bytes.min(self.unknown);
            self.now = self.now.saturating_sub(freed);
            self.unknown -= freed;
        }
    }

    /// Updates the state to the allocator's total after an event, which includes unrecorded blocks:
    /// the profiler does not record allocations of the program's own threads.
    fn settle(&mut self, event: &MemoryEvent) {
        let given_out = event.total_allocated.get().and_then(|total| u64::try_from(total).ok());
        if let Some(given_out) = given_out.filter(|&total| total <= MAX_BLOCK_BYTES) {
            let known = self.now.saturating_sub(self.unknown);
            self.unknown = given_out.saturating_sub(known);
            self.now = known.saturating_add(self.unknown);
        }
    }

    /// Ends the lifetime of a block and returns its size.
    fn end(&mut self, block: usize, event: usize) -> u64 {
        let bytes = self.blocks.get_mut(block).map_or(0, |block| {
            block.freed = Some(event);
            block.bytes
        });
        self.now = self.now.saturating_sub(bytes);
        bytes
    }
}

/// Returns the events of the device in the window, in order of time.
fn events_of(
    trace: &Trace,
    memory: Option<&Memory>,
    start_ns: i64,
    end_ns: i64,
) -> Vec<MemoryEvent> {
    let wanted = memory.and_then(|memory| memory.device.as_deref()).map(device_of_name);
    let (device_type, number) = wanted.unwrap_or_else(|| device_with_most(trace));
    trace
        .memory
        .iter()
        .filter(|event| (start_ns..=end_ns).contains(&event.time_ns))
        .filter(|event| {
            let on_device = event.device_type.unwrap_or(0) != 0;
            // There is one CPU, whatever its number.
            on_device == (device_type != 0)
                && (!on_device || event.device.is_none_or(|device| i64::from(device) == number))
        })
        .copied()
        .collect()
}

/// Parses `cpu`, `cuda` or `cuda:1` to PyTorch's device type and number.
fn device_of_name(name: &str) -> (i64, i64) {
    match name.split_once(':') {
        _ if name.starts_with("cpu") => (0, -1),
        Some((_, number)) => (1, number.parse().unwrap_or(0)),
        None => (1, 0),
    }
}

/// Returns the device whose memory to show for a trace recorded elsewhere: the GPU that allocated
/// most, else the CPU.
fn device_with_most(trace: &Trace) -> (i64, i64) {
    let mut most: HashMap<i64, u64> = HashMap::new();
    let of_devices = trace.memory.iter().filter(|event| event.device_type.unwrap_or(0) != 0);
    for event in of_devices {
        let sum = most.entry(event.device.unwrap_or(0).into()).or_default();
        *sum = sum.saturating_add(event.bytes.max(0).unsigned_abs());
    }
    most.into_iter()
        .max_by_key(|&(device, bytes)| (bytes, std::cmp::Reverse(device)))
        .map_or((0, -1), |(device, _)| (1, device))
}

fn baseline(memory: &Memory, on_device: bool) -> Vec<Block> {
    let mut seen = HashSet::with_capacity(memory.baseline.len());
    memory
        .baseline
        .iter()
        // Views share a storage, so each address counts once.
        .filter(|block| seen.insert(block.ptr))
        .map(|block| (block, block.bytes.min(MAX_BLOCK_BYTES)))
        .map(|(block, bytes)| Block {
            address: Some(block.ptr),
            bytes: if on_device { bytes.next_multiple_of(CUDA_BLOCK_BYTES) } else { bytes },
            allocated: None,
            freed: None,
            kind: Some(block.kind),
            module: block.module,
        })
        .collect()
}

/// Returns the allocator's total before the first event.
fn bytes_before_first_event(events: &[MemoryEvent]) -> Option<u64> {
    let first = events.first()?;
    u64::try_from(first.total_allocated.get()?.checked_sub(first.bytes)?).ok()
}

fn since(start_ns: i64, time_ns: i64) -> u64 {
    u64::try_from(time_ns.saturating_sub(start_ns)).unwrap_or(0)
}

/// Returns at most [`CURVE_POINTS`] points of the curve: the maximum of each interval, so no spike
/// is lost, and the peak itself.
fn thinned(curve: &[(i64, u64)], peak_at_ns: i64, start_ns: i64) -> Vec<(u64, u64)> {
    let chunk_len = curve.len().div_ceil(CURVE_POINTS).max(1);
    let highest = |points: &[(i64, u64)]| {
        // Keeps the first maximum, which is the peak if the interval contains it.
        points.iter().copied().reduce(|best, point| if point.1 > best.1 { point } else { best })
    };
    let points = curve.chunks(chunk_len).filter_map(highest);
    debug_assert!(curve.iter().any(|point| point.0 == peak_at_ns));
    points.map(|(time_ns, bytes)| (since(start_ns, time_ns), bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TraceBuilder;
    use proptest::prelude::*;
    use ridgeline_recording::manifest;

    fn manifest(baseline: &[(u64, u64)]) -> Manifest {
        let block = |&(ptr, bytes): &(u64, u64)| manifest::Block {
            ptr,
            bytes,
            ..manifest::Block::default()
        };
        let memory = Memory {
            device: Some("cpu".to_owned()),
            baseline: baseline.iter().map(block).collect(),
            ..Memory::default()
        };
        Manifest { memory: Some(memory), ..Manifest::default() }
    }

    /// Replays events as `(address, bytes)`, one per nanosecond.
    fn replayed(baseline: &[(u64, u64)], events: &[(u64, i64)]) -> Replay {
        let mut trace = TraceBuilder::new();
        for (time_ns, &(address, bytes)) in (1..).zip(events) {
            trace.memory(time_ns, address, bytes);
        }
        replay(&trace.trace(), Some(&manifest(baseline)), Some((0, 1_000_000)))
    }

    fn without_events(max_allocated_bytes: Option<u64>) -> Replay {
        let mut manifest = manifest(&[(1, 1024)]);
        if let Some(memory) = &mut manifest.memory {
            memory.device = Some("cuda:0".to_owned());
            memory.max_allocated_bytes = max_allocated_bytes;
        }
        replay(&TraceBuilder::new().trace(), Some(&manifest), Some((0, 1_000_000)))
    }

    #[test]
    fn events_without_addresses_are_added_up() {
        let mut trace = TraceBuilder::new();
        for (time_ns, bytes) in [(1, 1_000), (2, -1_000), (3, 700), (4, 500), (5, -700)] {
            trace.memory(time_ns, 0, bytes);
        }
        let mut trace = trace.trace();
        for event in &mut trace.memory {
            event.address = None.into();
        }
        let replay = replay(&trace, None, Some((0, 1_000)));
        assert_eq!((replay.cost.peak_bytes, replay.unknown_bytes), (1_200, 1_200));
    }

    #[test]
    fn without_blocks_the_peak_is_the_allocators() {
        let replay = without_events(Some(5_000));
        assert_eq!((replay.cost.peak_bytes, replay.unknown_bytes), (5_000, 5_000 - 1024));
    }

    #[test]
    fn allocations_of_other_threads_count_in_the_allocators_total() {
        // (address, bytes, total after it): 4096 bytes are allocated without an event, and freed at
        // an unknown address.
        let events = [(7, 1024, 1024), (8, 1024, 6144), (9, -4096, 2048), (8, -1024, 1024)];
        let mut trace = TraceBuilder::new();
        for (time_ns, &(address, bytes, _)) in (1..).zip(&events) {
            trace.memory(time_ns, address, bytes);
        }
        let mut trace = trace.trace();
        for (event, &(_, _, total)) in trace.memory.iter_mut().zip(&events) {
            (event.device_type, event.device) = (Some(1), Some(0));
            event.total_allocated = Some(total).into();
        }
        let mut manifest = manifest(&[]);
        if let Some(memory) = &mut manifest.memory {
            memory.device = Some("cuda:0".to_owned());
            memory.allocated_bytes = Some(0);
        }
        let replay = replay(&trace, Some(&manifest), Some((0, 1_000_000)));
        assert_eq!((replay.cost.peak_bytes, replay.unknown_bytes), (6144, 4096));
        assert_eq!(replay.cost.curve.last(), Some(&(4, 1024)));
    }

    #[test]
    fn uncounted_memory_is_unknown() {
        assert_eq!(without_events(None).cost, MemoryCost::default());
    }

    #[track_caller]
    fn check(baseline: &[(u64, u64)], events: &[(u64, i64)], peak: u64, alive: &[u64]) {
        let replay = replayed(baseline, events);
        let bytes: Vec<u64> =
            replay.alive.iter().map(|&index| replay.blocks[index].bytes).collect();
        assert_eq!((replay.cost.peak_bytes, bytes.as_slice()), (peak, alive));
    }

    #[test]
    fn allocations_add_to_the_baseline() {
        check(&[(1, 100)], &[(2, 10), (3, 20), (2, -10), (4, 5)], 130, &[100, 10, 20]);
    }

    #[test]
    fn without_events_the_baseline_is_the_peak() {
        check(&[(1, 100), (2, 50)], &[], 150, &[100, 50]);
    }

    #[test]
    fn addresses_are_reused() {
        check(&[], &[(1, 10), (1, -10), (1, 30), (2, 5)], 35, &[30, 5]);
    }

    #[test]
    fn frees_of_unknown_blocks_are_ignored() {
        check(&[(1, 100)], &[(9, -5000), (2, 10)], 110, &[100, 10]);
    }

    #[test]
    fn an_allocation_at_an_address_in_use_implies_a_free() {
        check(&[(1, 100)], &[(1, 30), (2, 80)], 110, &[30, 80]);
        check(&[(1, 100)], &[(1, 30), (2, 40)], 100, &[100]);
    }

    #[test]
    fn shared_storages_count_once() {
        check(&[(1, 100), (1, 100)], &[(2, 10)], 110, &[100, 10]);
    }

    #[test]
    fn the_curve_keeps_the_peak() {
        let mut events: Vec<(u64, i64)> = (1..5000).map(|address| (address, 1)).collect();
        events.extend([(7000, 1_000_000), (7000, -1_000_000)]);
        let cost = replayed(&[], &events).cost;
        assert!(cost.curve.len() <= CURVE_POINTS);
        assert!(cost.curve.contains(&(cost.peak_at_ns, cost.peak_bytes)));
        assert_eq!(cost.peak_bytes, 1_004_999);
    }

    proptest! {
        #[test]
        fn blocks_sum_to_the_peak(
            baseline in prop::collection::vec((0u64..20, any::<u64>()), 0..5),
            events in prop::collection::vec((0u64..20, any::<i64>()), 0..200),
        ) {
            let replay = replayed(&baseline, &events);
            let sum = replay.alive.iter().fold(replay.unknown_bytes, |sum, &index| {
                sum.saturating_add(replay.blocks[index].bytes)
            });
            prop_assert_eq!(sum, replay.cost.peak_bytes);
        }
    }
}
