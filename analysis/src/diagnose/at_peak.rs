//! What is alive when the memory of an iteration is at its peak.

use crate::whatif::graph::Graph;
use crate::whatif::memory::Moment;
use crate::whatif::simulate::Schedule;

/// By place in [`Memory::blocks`](crate::whatif::memory::Memory::blocks): whether a block is alive at
/// the peak. The order of events is that of [`peak`](crate::whatif::memory::peak).
pub(crate) fn alive_at_peak(graph: &Graph, schedule: &Schedule) -> Vec<bool> {
    let blocks = &graph.memory.blocks;
    let at = |moment: Moment| {
        let start_ns = schedule.start_ns.get(moment.task.index()).copied().unwrap_or(0.0);
        (start_ns, moment.event)
    };
    let mut changes: Vec<(f64, u32, f64, usize, bool)> = Vec::with_capacity(2 * blocks.len());
    for (index, block) in blocks.iter().enumerate() {
        if let Some((time_ns, event)) = block.allocated.map(at) {
            changes.push((time_ns, event, block.bytes, index, true));
        }
        if let Some((time_ns, event)) = block.freed.map(at) {
            changes.push((time_ns, event, -block.bytes, index, false));
        }
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(b.2.total_cmp(&a.2)));
    let (mut now, mut highest, mut until) = (0.0, 0.0, 0);
    for (place, change) in changes.iter().enumerate() {
        now += change.2;
        if now > highest {
            (highest, until) = (now, place + 1);
        }
    }
    let mut alive: Vec<bool> = blocks.iter().map(|block| block.allocated.is_none()).collect();
    for (_, _, _, index, is_made) in changes.into_iter().take(until) {
        if let Some(one) = alive.get_mut(index) {
            *one = is_made;
        }
    }
    alive
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::fixture;

    #[test]
    fn what_is_alive_at_the_peak_adds_up_to_it() {
        for layers in [1, 4] {
            let step = fixture::step(layers, true);
            let (graph, schedule) = (&step.recorded.graph, &step.recorded.schedule);
            let alive = alive_at_peak(graph, schedule);
            let blocks = graph.memory.blocks.iter().zip(&alive);
            let sum: f64 = blocks.filter(|(_, alive)| **alive).map(|(block, _)| block.bytes).sum();
            assert_eq!(Some(sum), crate::whatif::memory::peak(graph, schedule));
        }
    }
}
