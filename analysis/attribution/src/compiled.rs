//! Compiled functions: their measured total, divided among their lines by the shares of an eager
//! pass.
//!
//! `torch.compile` runs a function's operators without its frames, so their cost is on the line
//! that calls the function. The same program without compilation (`TORCHDYNAMO_DISABLE=1`) has the
//! frames; for each calling line, it shows how the time below divides. The total remains the
//! measured one, and the lines within are marked as estimated.

use std::collections::{HashMap, HashSet};

use super::Sums;
use super::contexts::{ContextId, Contexts};
use super::join::Join;
use super::lines::{LineIndex, Lines, Sources};
use super::modules::Modules;
use ridgeline_profile::{FileFacts, Phase, Provenance};
use ridgeline_recording::line_log::{Marker, MarkerId, StackId};
use ridgeline_recording::manifest::{Manifest, Region};

/// A line of the eager pass: file path and line number.
type Place = (String, u32);

/// The shares of lines, in an eager pass, of the time below each line that calls a compiled
/// function.
#[derive(Debug, Default)]
pub(super) struct EagerShares {
    by_call: HashMap<(Place, Phase), Vec<Share>>,
    /// The files of the eager pass.
    files: Vec<FileFacts>,
}

/// A part of the time below a call.
#[derive(Debug)]
struct Share {
    /// Share of all time below the call, 0 to 1.
    share: f64,
    /// The lines from the innermost to that of the compiled function, with their functions.
    lines: Vec<(Place, String)>,
    /// Paths of the enclosing modules, starting with the one of the innermost line.
    modules: Vec<String>,
}

impl EagerShares {
    /// Computes the shares of an eager pass. `regions` are the functions that the other run
    /// compiled, with file paths instead of indices.
    pub(crate) fn new(
        join: &Join<'_>,
        contexts: &Contexts<'_>,
        sums: &Sums,
        manifest: &Manifest,
        sources: &Sources,
        regions: &[(String, Region)],
    ) -> EagerShares {
        let compiled: HashSet<u32> = (0_u32..)
            .zip(&manifest.codes)
            .filter(|(_, code)| {
                let path = manifest.files.get(code.file as usize).map(|file| file.path.as_str());
                regions.iter().any(|(file, region)| {
                    path == Some(file.as_str())
                        && (code.first_line == region.line || code.name == region.name)
                })
            })
            .map(|(index, _)| index)
            .collect();
        let place = |code: u32, line: u32| {
            let (file, scope) = sources.codes.get(code as usize)?;
            Some(((sources.files.get(*file as usize)?.path.clone(), line), scope.clone()))
        };
        let mut by_call: HashMap<(Place, Phase), Vec<Share>> = HashMap::new();
        for (_, context, cost, factor) in sums.by_context(contexts) {
            let frames: Vec<_> =
                join.places.log.stacks.walk(context.line).map(|(_, frame)| frame).collect();
            // The outermost compiled frame is the one called from outside.
            let outermost = frames.iter().rposition(|frame| compiled.contains(&frame.code));
            let Some((within, caller)) =
                outermost.and_then(|index| Some((frames.get(..=index)?, frames.get(index + 1)?)))
            else {
                continue;
            };
            let Some((call, _)) = place(caller.code, caller.line) else { continue };
            let modules = context
                .markers()
                .into_iter()
                .flat_map(|marker| join.places.log.markers.walk(marker))
                .filter_map(|marker| match marker {
                    Marker::Module(module) => {
                        Some(manifest.modules.get(module as usize)?.path.clone())
                    }
                    Marker::Phase(_) => None,
                })
                .collect();
            by_call.entry((call, context.phase)).or_default().push(Share {
                share: cost.time_ns * factor,
                lines: within.iter().filter_map(|f| place(f.code, f.line)).collect(),
                modules,
            });
        }
        for shares in by_call.values_mut() {
            let sum: f64 = shares.iter().map(|share| share.share).sum();
            shares.retain_mut(|share| {
                share.share /= sum;
                share.share > 0.0 && !share.lines.is_empty()
            });
        }
        EagerShares { by_call, files: sources.files.clone() }
    }

    /// Adds the files that only the eager pass has: a compiled run never enters them.
    pub(crate) fn add_files(&self, sources: &mut Sources) {
        for file in &self.files {
            if !sources.files.iter().any(|known| known.path == file.path) {
                sources.files.push(file.clone());
            }
        }
    }

    /// Converts the shares to indices of this recording's files and modules. Unknown ones are
    /// omitted.
    pub(crate) fn resolve(&self, sources: &Sources, modules: &Modules) -> Shares {
        let file_of: HashMap<&str, u32> = (0_u32..)
            .zip(&sources.files)
            .map(|(index, file)| (file.path.as_str(), index))
            .collect();
        let module_of: HashMap<&str, u32> = (0_u32..)
            .zip(&modules.costs)
            .map(|(index, module)| (module.path.as_str(), index))
            .collect();
        let line_of = |(path, line): &Place| Some((*file_of.get(path.as_str())?, *line));
        let share_of = |share: &Share| ResolvedShare {
            share: share.share,
            lines: share
                .lines
                .iter()
                .filter_map(|(place, scope)| Some((line_of(place)?, scope.clone())))
                .collect(),
            modules: share
                .modules
                .iter()
                .filter_map(|path| module_of.get(path.as_str()).copied())
                .collect(),
        };
        let shares = self.by_call.iter().filter_map(|((call, phase), shares)| {
            Some(((line_of(call)?, *phase), shares.iter().map(share_of).collect()))
        });
        Shares(shares.collect())
    }
}

/// [`EagerShares`] by index: below each line, given as file and number, and in each phase.
#[derive(Debug)]
pub(super) struct Shares(HashMap<((u32, u32), Phase), Vec<ResolvedShare>>);

#[derive(Debug)]
struct ResolvedShare {
    share: f64,
    lines: Vec<((u32, u32), String)>,
    modules: Vec<u32>,
}

impl Shares {
    /// Moves the time of compiled operators from the lines that call them to the lines within,
    /// whose samples are discarded because the spread of the iterations is no longer known.
    pub(crate) fn split(
        &self,
        join: &Join<'_>,
        contexts: &Contexts<'_>,
        of_shown: &[Option<ContextId>],
        sums: &Sums,
        lines: &mut Lines,
        modules: &mut Modules,
    ) {
        let log = join.places.log;
        for (compiled, time_ns) in compiled_time(join, contexts, of_shown, sums) {
            let phase = compiled.phase;
            let Some(call) = lines.innermost(&log.stacks, compiled.line) else { continue };
            let shares = lines.location(call).and_then(|place| self.0.get(&(place, phase)));
            for share in shares.into_iter().flatten() {
                let part_ns = time_ns * share.share;
                let within: Vec<LineIndex> = share
                    .lines
                    .iter()
                    .filter_map(|((file, line), scope)| lines.at(*file, *line, scope))
                    .collect();
                let Some(&own) = within.first() else { continue };
                if let Some(cost) = lines.cost_mut(call) {
                    cost.samples.clear();
                    let own_ns = cost.self_time.get_mut(phase);
                    // All shares together remove the whole time, up to rounding.
                    *own_ns = (*own_ns - part_ns).max(0.0);
                }
                if let Some(cost) = lines.cost_mut(own) {
                    *cost.self_time.get_mut(phase) += part_ns;
                }
                lines.each_of(within, |_, cost| {
                    *cost.total_time.get_mut(phase) += part_ns;
                    cost.samples.clear();
                    cost.provenance = Provenance::Estimated;
                });
                let inner = share.modules.iter().copied();
                modules.each_within(&log.markers, compiled.markers, inner, |cost| {
                    *cost.total_time.get_mut(phase) += part_ns;
                    cost.samples.clear();
                    cost.provenance = Provenance::Estimated;
                });
                let Some(&inner) = share.modules.first().filter(|_| phase != Phase::Optimizer)
                else {
                    continue;
                };
                let mut moved_ns = part_ns;
                if let Some(outer) = modules.innermost(&log.markers, compiled.markers) {
                    outer.samples.clear();
                    let own_ns = outer.self_time.get_mut(phase);
                    moved_ns = moved_ns.min(*own_ns);
                    *own_ns -= moved_ns;
                }
                if let Some(cost) = modules.costs.get_mut(inner as usize) {
                    *cost.self_time.get_mut(phase) += moved_ns;
                }
            }
        }
    }
}

/// The place of compiled operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CompiledPlace {
    /// The stack whose innermost line calls the compiled function.
    line: StackId,
    phase: Phase,
    /// The enclosing modules, in the order of [`super::contexts::Context::markers`].
    markers: [MarkerId; 2],
}

/// Returns the nanoseconds per iteration of compiled operators, by place.
fn compiled_time(
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    of_shown: &[Option<ContextId>],
    sums: &Sums,
) -> Vec<(CompiledPlace, f64)> {
    let compiled = compiled_operators(join);
    let mut times: HashMap<CompiledPlace, f64> = HashMap::new();
    for (index, id) in of_shown.iter().enumerate() {
        let Some(id) = id.filter(|_| compiled.get(index) == Some(&true)) else { continue };
        if let Some(context) = contexts.get(id) {
            let place = CompiledPlace {
                line: context.line,
                phase: context.phase,
                markers: context.markers(),
            };
            *times.entry(place).or_default() += sums.shown_operator_ns(index, id);
        }
    }
    let mut times: Vec<(CompiledPlace, f64)> = times.into_iter().collect();
    times.sort_by_key(|(place, _)| *place);
    times
}

/// Returns whether each operator runs within a compiled function, or is the derivative of one that
/// does.
fn compiled_operators(join: &Join<'_>) -> Vec<bool> {
    let operators = &join.trace.operators;
    let mut compiled = vec![false; operators.len()];
    for (index, operator) in (0_u32..).zip(operators) {
        let name = join.trace.text(operator.name);
        let by_name = ["Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        let around = join
            .parent_of(index)
            .is_some_and(|parent| compiled.get(parent as usize) == Some(&true));
        if let Some(entry) = compiled.get_mut(index as usize) {
            *entry = by_name || around;
        }
    }
    for index in 0..operators.len() {
        let forward = join.nodes.of(index as u32).and_then(|node| node.forward);
        let of_compiled =
            forward.is_some_and(|forward| compiled.get(forward as usize) == Some(&true));
        if let Some(entry) = compiled.get_mut(index).filter(|_| of_compiled) {
            *entry = true;
        }
    }
    compiled
}
