//! DataLoader workers that are kept between epochs (PyTorch `DataLoader`).

use super::super::Refusal;
use super::super::argument::{self, Argument};
use super::super::edits::Edits;
use super::super::loader::loaders;
use super::super::program::Program;
use super::super::syntax::written;
use super::TargetLines;

/// Adds `persistent_workers=True`.
pub(super) fn rewrite(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let mut done = None;
    for loader in loaders(program)? {
        let (module, call) = (loader.module, loader.call);
        if !at.includes(program, module, call) {
            continue;
        }
        let text = program.module(module);
        let start = call.start_byte();
        let Some(arguments) = program.arguments(module, call) else { continue };
        if arguments.has_star || !arguments.splats.is_empty() {
            let why = "passes starred arguments to the DataLoader, which may already set \
                persistent_workers";
            return Err(program.refuse(module, start, why));
        }
        let workers = arguments.named("num_workers").map(|given| written(text, given));
        let Some(workers) = workers.filter(|workers| workers != "0") else {
            return Err(program.refuse(module, start, "has no workers to keep"));
        };
        // Without workers, the loader would raise an error.
        let value = match workers.parse::<u32>() {
            Ok(_) => "True".to_owned(),
            Err(_) => format!("{workers} > 0"),
        };
        let given = arguments.named("persistent_workers");
        let wanted = ("persistent_workers", value.as_str());
        if argument::set(program, edits, (module, call), wanted, given)? != Argument::Set {
            done.get_or_insert(program.at(module, start));
        }
    }
    match done {
        _ if !edits.is_empty() => Ok(()),
        Some(at) => Err(Refusal::done(format!("{at} already keeps its workers"))),
        None => Err(Refusal::not_understood("no DataLoader used for training was found here")),
    }
}
