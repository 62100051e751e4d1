//! How the total time of a line divides: by the expressions on it, by the lines that reach it, and by
//! the layers that run it.

use ridgeline_profile::{FileId, LineCost, Profile, Provenance};
use serde::Serialize;

use super::code::Code;
use super::{Place, name, whole};

/// A part of a line's total time. Parts of different kinds overlap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// `expression`, `caller` or `layer`.
    pub kind: &'static str,
    /// `self.conv(…)`, `train.py:12`, `layers.3`.
    pub name: String,
    /// Nanoseconds per iteration.
    pub time_ns: u64,
    /// The line of the expression or the caller, or the definition of the layer.
    pub place: Option<Place>,
}

/// Returns the parts of a measured line, most expensive first within each kind. A kind with a single
/// part is left out.
pub(super) fn of_line(
    profile: &Profile,
    file: FileId,
    line: &LineCost,
    code: &Code<'_>,
) -> Vec<Part> {
    if line.provenance != Provenance::Measured {
        return Vec::new();
    }
    let expressions = line.expressions.iter().filter_map(|one| {
        Some(Part {
            kind: "expression",
            name: name(&code.label(file, one.range)?),
            time_ns: whole(one.total_time.total()),
            place: Place::of(profile, file, one.range.line),
        })
    });
    let callers = line.callers.iter().filter_map(|one| {
        let path = &profile.files.get(one.file.0 as usize)?.path;
        Some(Part {
            kind: "caller",
            name: name(&format!("{path}:{}", one.line)),
            time_ns: whole(one.time_ns),
            place: Place::of(profile, one.file, one.line),
        })
    });
    let layers = line.instances.iter().filter_map(|one| {
        let module = profile.modules.get(one.module.0 as usize)?;
        let path = if module.path.is_empty() { "the model" } else { &module.path };
        let place = module.definition.first();
        Some(Part {
            kind: "layer",
            name: name(path),
            time_ns: whole(one.time_ns),
            place: place.and_then(|&(file, line)| Place::of(profile, file, line)),
        })
    });
    let mut parts = Vec::new();
    for kind in [expressions.collect::<Vec<Part>>(), callers.collect(), layers.collect()] {
        let mut kind: Vec<Part> = kind.into_iter().filter(|part| part.time_ns > 0).collect();
        if kind.len() > 1 {
            kind.sort_by_key(|part| std::cmp::Reverse(part.time_ns));
            parts.append(&mut kind);
        }
    }
    parts
}
