//! Batch loading, for the rules about data loaders.

use ridgeline_base::statistics;
use ridgeline_optimize::rewrite::loader::loaders;
use ridgeline_optimize::rewrite::program::Program;

use super::evidence::Evidence;
use super::finding::SourceLine;
use ridgeline_profile::FileId;
use ridgeline_recording::manifest::Loader;

/// Returns the loader that the loop waited for longest, if the recording has one.
pub(crate) fn loader<'a>(evidence: &Evidence<'a>) -> Option<&'a Loader> {
    let waited =
        |loader: &&Loader| loader.fetch_ns.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
    evidence
        .manifest()?
        .loaders
        .iter()
        .filter(|loader| !loader.fetch_ns.is_empty())
        .max_by_key(waited)
}

/// Where a loader is created: from the recording, or else the only loader in the text.
pub(crate) fn place(evidence: &Evidence<'_>, loader: &Loader) -> Option<SourceLine> {
    if let Some(at) = loader.at {
        let is_known = (at.file as usize) < evidence.profile().files.len() && at.line > 0;
        return is_known.then(|| evidence.place(FileId(at.file), at.line));
    }
    let (module, line) = only_loader(evidence.program)?;
    let (file, line) = evidence.recorded_line(module, line)?;
    Some(evidence.place(file, line))
}

/// The module and line of the only loader of a program that trains.
fn only_loader(program: &Program<'_>) -> Option<(usize, u32)> {
    let found = loaders(program).ok()?;
    let [one] = &found[..] else { return None };
    Some((one.module, program.module(one.module).line(one.call.start_byte())))
}

/// The number of batches that an iteration takes from a loader.
pub(crate) fn batches(evidence: &Evidence<'_>, loader: &Loader) -> f64 {
    let iterations = evidence.profile().iteration.timed_ns.len().max(1) as f64;
    (loader.fetch_ns.len() as f64 / iterations).round().max(1.0)
}

/// The median in nanoseconds, or `None` if there are no values.
pub(crate) fn median(ns: &[u64]) -> Option<f64> {
    statistics::median(&self::ns(ns))
}

pub(crate) fn ns(whole: &[u64]) -> Vec<f64> {
    whole.iter().map(|ns| *ns as f64).collect()
}
