//! Data loading in worker processes (PyTorch `DataLoader`).

use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::program::Program;
use super::syntax::{callee, mentions, written};
use ridgeline_python::semantics::batch_names::is_for_validation;
use ridgeline_python::semantics::module::last_name;
use ridgeline_python::semantics::project::file;
use ridgeline_python::semantics::trace::Place;

/// The default number of workers.
const DEFAULT_WORKERS: u32 = 4;

/// Random generators with their own state.
const GENERATORS: [&str; 4] =
    ["numpy.random.default_rng", "numpy.random.RandomState", "random.Random", "torch.Generator"];

/// A `DataLoader` used for training.
pub struct Loader<'a> {
    pub module: usize,
    pub call: Node<'a>,
}

/// Returns the loaders of the program except those for validation.
///
/// # Errors
/// Fails if there are none.
pub fn loaders<'a>(program: &Program<'a>) -> Result<Vec<Loader<'a>>, Refusal> {
    let mut found = Vec::new();
    for (module, call) in program.calls() {
        let qualified = program.called(module, call);
        let is_loader = last_name(&qualified) == "DataLoader"
            && ["torch", "DataLoader", "utils", "data"]
                .iter()
                .any(|from| qualified.starts_with(from));
        let text = program.module(module);
        let target = text.assignments.iter().find(|one| one.value == call.span);
        let is_for_evaluation = target.is_some_and(|one| is_for_validation(&one.target))
            || call.function.is_some_and(|at| is_for_validation(&text.functions[at].name));
        if let (true, false, Some(call)) =
            (is_loader, is_for_evaluation, program.node(module, call))
        {
            found.push(Loader { module, call });
        }
    }
    match found.is_empty() {
        true => Err(Refusal::not_understood("no DataLoader was found in the program")),
        false => Ok(found),
    }
}

/// Adds `num_workers=N, persistent_workers=True`.
pub fn rewrite(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    count: Option<u32>,
) -> Result<(), Refusal> {
    check_iterable_datasets(program)?;
    check_random_generators(program)?;
    let wanted = count.unwrap_or(DEFAULT_WORKERS);
    let mut done = None;
    for loader in loaders(program)? {
        if !workers(program, edits, &loader, wanted, count.is_some())? {
            done.get_or_insert(program.at(loader.module, loader.call.start_byte()));
        }
    }
    if let Some(at) = done.filter(|_| edits.is_empty()) {
        return Err(Refusal::done(format!("{at} already uses workers")));
    }
    let script = program.module(0);
    if !script.index.text().contains("__main__") && !program.tracer.entry.provider {
        edits.note(
            "without `if __name__ == \"__main__\"`, workers cannot start on Windows, macOS, or \
            Python 3.14 and later",
        );
    }
    Ok(())
}

/// Rejects an iterable dataset that does not check which worker it is in: it would yield each
/// sample several times.
fn check_iterable_datasets(program: &Program<'_>) -> Result<(), Refusal> {
    for (module, text) in program.modules().iter().enumerate() {
        let class = text.classes.iter().find(|class| {
            class.bases.iter().any(|base| last_name(text.text(base)) == "IterableDataset")
        });
        if let Some(class) = class.filter(|_| !mentions(text.index.text(), "get_worker_info")) {
            let why = "is an IterableDataset: every worker would yield every sample";
            return Err(program.refuse(module, class.span.start, why));
        }
    }
    Ok(())
}

/// Rejects a dataset with its own random generator: each worker has a copy of it, and all draw the
/// same numbers. NumPy's and PyTorch's global generators are seeded per worker.
fn check_random_generators(program: &Program<'_>) -> Result<(), Refusal> {
    for (module, text) in program.modules().iter().enumerate() {
        for one in &text.assignments {
            let class = program.class_of((module, one.function));
            let Some(class) = class.filter(|_| one.target.starts_with("self.")) else { continue };
            let made = text.node(&one.value).map(|value| callee(text, value));
            let is_generator = made
                .is_some_and(|name| GENERATORS.contains(&program.absolute(module, &name).as_str()));
            let own = || text.functions.iter().filter(|it| it.class == Some(class));
            let draws = || {
                let later = own().filter(|it| it.name != "__init__");
                later.into_iter().any(|it| mentions(text.text(&it.span), &one.target))
            };
            if is_generator && own().any(|it| it.name == "__getitem__") && draws() {
                let why = "is a random generator in the dataset: every worker would draw the same \
                    numbers";
                return Err(program.refuse(module, one.at.start, why));
            }
        }
    }
    Ok(())
}

/// Adds workers to one loader. Returns false if it already has them.
fn workers(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    loader: &Loader<'_>,
    wanted: u32,
    is_asked: bool,
) -> Result<bool, Refusal> {
    let (module, call) = (loader.module, loader.call);
    let text = program.module(module);
    let start = call.start_byte();
    let Some(arguments) = program.arguments(module, call) else { return Ok(false) };
    if arguments.has_star || !arguments.splats.is_empty() {
        let why = "passes starred arguments to the DataLoader, which may already set num_workers";
        return Err(program.refuse(module, start, why));
    }
    let persistent = arguments.named("persistent_workers");
    let stays = match persistent {
        Some(given) if written(text, given) == "False" => Some(given.byte_range()),
        Some(_) => None,
        None => Some(0..0),
    };
    let keep = |edits: &mut Edits<'_>, value: &str| match &stays {
        Some(range) if range.end > 0 => {
            edits.replace(module, range.clone(), value);
            Ok(())
        }
        Some(_) => {
            edits.add_arguments(program, module, call, &[&format!("persistent_workers={value}")])
        }
        None => Ok(()),
    };
    let Some(given) = arguments.named("num_workers") else {
        let workers = format!("num_workers={wanted}");
        let both = [workers.as_str(), "persistent_workers=True"];
        let is_new = persistent.is_none();
        edits.add_arguments(program, module, call, if is_new { &both } else { &both[..1] })?;
        if !is_new {
            keep(edits, "True")?;
        }
        return Ok(true);
    };
    let value = written(text, given);
    if let Ok(now) = value.parse::<u32>() {
        if now >= wanted || (now > 0 && !is_asked) {
            return Ok(false);
        }
        edits.replace(module, given.byte_range(), wanted.to_string());
        keep(edits, "True")?;
        return Ok(true);
    }
    // The number is elsewhere: the default of an option, a constant.
    let found = program.tracer.trace(&Place { module, span: given.byte_range() }, &[]);
    let [number] = &found.numbers[..] else {
        let what = format!("takes num_workers from `{value}`: set it there");
        return Err(program.refuse(module, start, &what));
    };
    if number.value >= u64::from(wanted) || (number.value > 0 && !is_asked) {
        return Ok(false);
    }
    let there = file(program.modules(), &number.file);
    let Some((there, part)) = there.filter(|_| number.refusal.is_none()) else {
        let what = format!("takes num_workers from `{value}`: set it there");
        return Err(program.refuse(module, start, &what));
    };
    let start = part.span.start;
    edits.replace(there, start + number.span.start..start + number.span.end, wanted.to_string());
    keep(edits, &format!("{value} > 0"))?;
    Ok(true)
}
