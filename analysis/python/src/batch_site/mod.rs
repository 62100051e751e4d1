//! Finds where the batch size of a training script is written.
//!
//! The value is traced back from the training loop: to the loader that the loop iterates over, to
//! its argument, and from there through names, attributes, parameters, objects and files to a
//! literal number. A value that cannot be traced is refused with the reason, because an edit at a
//! wrong place would change some other number.
//!
//! Nothing runs. Conditions are evaluated if they are constants or command-line switches. If two
//! numbers are still possible, the batch size of the last run decides.

mod sinks;

use std::ops::Range;

use crate::semantics::project::Modules;
use crate::semantics::trace::{self, Number, PossibleValues, Tracer};
pub use crate::semantics::{Choice, Entry, Project, Refusal};

/// The place of the batch size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSite {
    /// Relative to the root.
    pub file: String,
    /// The byte range of the number.
    pub span: Range<usize>,
    /// The 1-based line.
    pub line: u32,
    /// The current value.
    pub value: u64,
    /// A short excerpt of the code: `batch_size=32`.
    pub text: String,
    /// Which of the possible numbers it is.
    pub choice: Choice,
    /// A remark for the user: another loader also uses this number.
    pub note: Option<String>,
    /// The file and line of the loader or loop that uses it, if that is another line.
    pub taken_at: Option<(String, u32)>,
}

/// Finds where the batch size is written.
///
/// # Errors Returns the reason if there is no single such number.
pub fn batch_site(project: &dyn Project, entry: &Entry) -> Result<BatchSite, Refusal> {
    let modules = Modules::read(project, entry);
    if modules.is_empty() {
        return Err(Refusal::new(format!("{} does not exist", entry.path)));
    }
    let tracer = Tracer::new(&modules, project, entry);
    let sink = sinks::sink(&tracer)?;
    decide(&tracer, sink)
}

/// Selects the one number that remains.
fn decide(tracer: &Tracer<'_>, sink: sinks::Sink) -> Result<BatchSite, Refusal> {
    let PossibleValues { numbers: all, doubts, .. } = sink.found;
    let measured = tracer.entry.measured.filter(|measured| *measured > 0);
    let chosen = tracer.entry.chosen.filter(|chosen| chosen.count == all.len());
    if let Some(number) = chosen.and_then(|chosen| all.get(chosen.index)) {
        return Ok(site_at(tracer, number.clone(), chosen.unwrap_or_default(), sink.at));
    }
    let mut numbers = all.clone();
    if let Some(measured) = measured.filter(|_| numbers.len() > 1) {
        let exact = numbers.iter().any(|number| number.value == measured);
        numbers.retain(|number| {
            if exact { number.value == measured } else { is_consistent(number.value, measured) }
        });
    }
    let number = match &numbers[..] {
        [number] => number.clone(),
        [] => {
            return Err(doubts
                .into_iter()
                .next()
                .unwrap_or_else(|| Refusal::new("no batch size was found in the program")));
        }
        [first, rest @ ..] => {
            let places: Vec<String> = std::iter::once(first)
                .chain(rest)
                .take(3)
                .map(|number| format!("{} in {}:{}", number.value, number.file, number.line))
                .collect();
            let message = format!("the batch size could be any of {}", places.join(", "));
            return Err(Refusal { message, at: Some((first.file.clone(), first.line)) });
        }
    };
    if let Some(measured) = measured.filter(|measured| !is_consistent(number.value, *measured)) {
        let message = format!(
            "{}:{} sets {}, but the last run used batch size {measured}, so it may be set elsewhere",
            number.file, number.line, number.value
        );
        return Err(Refusal { message, at: Some((number.file, number.line)) });
    }
    // Something could not be traced, but a run with this batch size confirms the number.
    if let Some(doubt) = doubts.into_iter().next()
        && measured != Some(number.value)
        && !doubt.message.starts_with(trace::CHANGED_IN_A_BRANCH)
    {
        return Err(doubt);
    }
    if let Some(refusal) = number.refusal.as_ref().filter(|_| measured != Some(number.value)) {
        return Err(Refusal {
            message: refusal.clone(),
            at: Some((number.file.clone(), number.line)),
        });
    }
    let index = all.iter().position(|one| *one == number).unwrap_or_default();
    let choice = Choice { index, count: all.len() };
    Ok(site_at(tracer, number, choice, sink.at))
}

/// Whether two batch sizes are consistent: gradient accumulation multiplies the batch size, and
/// several processes divide it.
fn is_consistent(value: u64, measured: u64) -> bool {
    value > 0 && (measured.is_multiple_of(value) || value.is_multiple_of(measured))
}

fn site_at(
    tracer: &Tracer<'_>,
    number: Number,
    choice: Choice,
    taken_at: Option<(String, u32)>,
) -> BatchSite {
    BatchSite {
        note: sinks::also_taken_by(tracer, &number),
        taken_at: taken_at.filter(|at| *at != (number.file.clone(), number.line)),
        choice,
        file: number.file,
        span: number.span,
        line: number.line,
        value: number.value,
        text: number.text,
    }
}

#[cfg(test)]
mod tests;
