//! From where a line is reached: the lines that call its function, and the module instances that
//! run it. A layer's `forward` is one line of text, and runs for each of the layer's instances.

use std::collections::HashMap;

use super::Sums;
use super::contexts::{Context, Contexts};
use super::join::Join;
use super::lines::{LineIndex, Lines};
use ridgeline_profile::{CALLERS_PER_LINE, CallerCost, FileId, InstanceCost, ModuleId, Provenance};
use ridgeline_recording::line_log::{Marker, StackId};
use ridgeline_recording::manifest::Manifest;

/// Adds to each line its callers and module instances, if it has several.
pub(super) fn add_callers(
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    sums: &Sums,
    manifest: &Manifest,
    lines: &mut Lines,
) {
    let stacks = &join.places.log.stacks;
    let mut callers: HashMap<(LineIndex, LineIndex), f64> = HashMap::new();
    let mut instances: HashMap<(LineIndex, u32), f64> = HashMap::new();
    // A generator expression or a `lambda` is part of the line around it.
    let is_nested = |code: u32| {
        let name = manifest.codes.get(code as usize).map_or("", |code| code.name.as_str());
        name.ends_with('>') && name != "<module>"
    };
    let mut on: Vec<(LineIndex, StackId)> = Vec::new();
    for (_, context, cost, factor) in sums.by_context(contexts) {
        let time_ns = cost.time_ns * factor;
        on.clear();
        lines.each_frame_on(stacks, context.stacks(), |line, frame| {
            if !is_nested(frame.code) {
                on.push((line, frame.caller));
            }
        });
        for &(line, caller) in &on {
            if let Some(caller) = lines.innermost(stacks, caller) {
                *callers.entry((line, caller)).or_default() += time_ns;
            }
            let class = lines.cost_mut(line).and_then(|cost| class_of(&cost.scope));
            let instance = class.and_then(|class| instance(class, context, join, manifest));
            if let Some(instance) = instance {
                *instances.entry((line, instance)).or_default() += time_ns;
            }
        }
    }
    let mut of_line: HashMap<LineIndex, (Vec<CallerCost>, Vec<InstanceCost>)> = HashMap::new();
    for ((line, caller), time_ns) in callers {
        if let Some((file, number)) = lines.location(caller) {
            let caller = CallerCost { file: FileId(file), line: number, time_ns };
            of_line.entry(line).or_default().0.push(caller);
        }
    }
    for ((line, module), time_ns) in instances {
        let instance = InstanceCost { module: ModuleId(module), time_ns };
        of_line.entry(line).or_default().1.push(instance);
    }
    for (line, (mut callers, mut instances)) in of_line {
        let Some(cost) = lines.cost_mut(line) else { continue };
        if cost.provenance != Provenance::Measured {
            continue;
        }
        if callers.len() > 1 {
            callers.sort_by(|a, b| {
                b.time_ns.total_cmp(&a.time_ns).then((a.file, a.line).cmp(&(b.file, b.line)))
            });
            callers.truncate(CALLERS_PER_LINE);
            cost.callers = callers;
        }
        if instances.len() > 1 {
            instances.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns).then(a.module.cmp(&b.module)));
            instances.truncate(CALLERS_PER_LINE);
            cost.instances = instances;
        }
    }
}

/// Returns the class that a method belongs to: `Block` of `Block.forward`.
fn class_of(scope: &str) -> Option<&str> {
    let (class, _) = scope.rsplit_once('.')?;
    let class = class.rsplit('.').next()?;
    (class != "<locals>").then_some(class)
}

/// Returns the innermost module of a class around a context.
fn instance(class: &str, context: &Context, join: &Join<'_>, manifest: &Manifest) -> Option<u32> {
    let markers = &join.places.log.markers;
    context.markers().into_iter().flat_map(|marker| markers.walk(marker)).find_map(|marker| {
        let Marker::Module(module) = marker else { return None };
        let is_it = manifest.modules.get(module as usize).is_some_and(|it| it.type_name == class);
        is_it.then_some(module)
    })
}
