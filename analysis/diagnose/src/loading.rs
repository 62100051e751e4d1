//! How the program loads its batches, as the rules of loaders look at it.

use ridgeline_base::statistics;
use ridgeline_optimize::rewrite::loader::loaders;
use ridgeline_optimize::rewrite::program::Program;

use super::evidence::Evidence;
use super::finding::Place;
use ridgeline_profile::FileId;
use ridgeline_recording::manifest::Loader;

/// The loader that the loop waited for longest, where the recording has one.
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

/// Where a loader is made: as the recording tells, else where the text makes its only one.
pub(crate) fn place(evidence: &Evidence<'_>, loader: &Loader) -> Option<Place> {
    if let Some(at) = loader.at {
        let is_known = (at.file as usize) < evidence.profile().files.len() && at.line > 0;
        return is_known.then(|| evidence.place(FileId(at.file), at.line));
    }
    let (module, line) = only_loader(evidence.program)?;
    let (file, line) = evidence.ran(module, line)?;
    Some(evidence.place(file, line))
}

/// The text and line of the only loader of a program that trains.
fn only_loader(program: &Program<'_>) -> Option<(usize, u32)> {
    let found = loaders(program).ok()?;
    let [one] = &found[..] else { return None };
    Some((one.module, program.module(one.module).line(one.call.start_byte())))
}

/// Batches of a loader that an iteration takes.
pub(crate) fn batches(evidence: &Evidence<'_>, loader: &Loader) -> f64 {
    let iterations = evidence.profile().iteration.timed_ns.len().max(1) as f64;
    (loader.fetch_ns.len() as f64 / iterations).round().max(1.0)
}

/// The median of some nanoseconds; nothing of none.
pub(crate) fn median(ns: &[u64]) -> Option<f64> {
    statistics::median(&self::ns(ns))
}

/// Whole nanoseconds as floating-point numbers.
pub(crate) fn ns(whole: &[u64]) -> Vec<f64> {
    whole.iter().map(|ns| *ns as f64).collect()
}
