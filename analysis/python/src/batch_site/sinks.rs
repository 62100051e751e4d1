//! Finds where a program consumes its batch size, which is where tracing starts.

use crate::semantics::batch_names::{is_batch_name, is_for_validation, may_be_batch_name};
use crate::semantics::call_sites::Arguments;
use crate::semantics::module::{Call, Loop, Module};
use crate::semantics::synthetic;
use crate::semantics::trace::{Number, Place, PossibleValues, Step, Tracer};
use crate::semantics::{Refusal, arguments};
use crate::syntax::kind::{Kind, TypedNode as _};

/// What consumes the batch size, and the numbers that it may come from.
pub(super) struct Sink {
    pub found: PossibleValues,
    /// The file and line of the consumer.
    pub at: Option<(String, u32)>,
}

/// Trainer arguments that are a batch size.
const TRAINER_KEYS: [&str; 5] = [
    "per_device_train_batch_size",
    "per_gpu_train_batch_size",
    "train_micro_batch_size_per_gpu",
    "train_batch_size",
    "batch_size",
];

/// Finds what consumes the batch size.
///
/// # Errors Returns the reason if nothing does, or if the configuration sets it.
pub(super) fn sink(tracer: &Tracer<'_>) -> Result<Sink, Refusal> {
    if tracer.entry.provider {
        return provider(tracer);
    }
    if let Some(refusal) = arguments::given_by_name(tracer) {
        return Err(refusal);
    }
    let mut doubts = Vec::new();
    let strategies: [fn(&Tracer<'_>) -> Vec<Sink>; 4] =
        [training_loops, trainers, synthetic_batches, loaders];
    for strategy in strategies {
        for sink in strategy(tracer) {
            if !sink.found.numbers.is_empty() {
                return Ok(sink);
            }
            doubts.extend(sink.found.doubts);
        }
    }
    let named = named_numbers(tracer);
    if !named.numbers.is_empty() && doubts.is_empty() {
        return Ok(Sink { found: named, at: None });
    }
    // A number with the right name that the last run confirms is accepted, even if something could
    // not be traced.
    let measured = tracer.entry.measured;
    let confirmed = named.numbers.iter().filter(|number| Some(number.value) == measured).count();
    if confirmed == 1 {
        return Ok(Sink { found: named, at: None });
    }
    let first = doubts.into_iter().next();
    Err(first.unwrap_or_else(|| {
        Refusal::new("no DataLoader or variable named like a batch size was found in the program")
    }))
}

fn provider(tracer: &Tracer<'_>) -> Result<Sink, Refusal> {
    if let Some(size) = tracer.entry.configured {
        let message = format!("the configuration sets batch_size to {size}: change it there");
        return Err(Refusal::new(message));
    }
    let module = &tracer.modules[0];
    let function = module.functions.iter().find(|function| {
        matches!(function.name.as_str(), "skyline_input_provider" | "deepview_input_provider")
    });
    let parameter = function
        .and_then(|function| function.parameters.iter().find(|one| one.name == "batch_size"));
    let Some(default) = parameter.and_then(|parameter| parameter.default.clone()) else {
        return Err(Refusal::new(format!("{} has no default for batch_size", module.path)));
    };
    let found = tracer.trace(&Place { module: 0, span: default }, &[]);
    Ok(Sink { found, at: None })
}

/// The training loops: around a `backward()`, or around a call of a function that contains one.
/// Loops of the entry come first, and inner loops before outer ones.
fn training_loops(tracer: &Tracer<'_>) -> Vec<Sink> {
    let mut sinks = Vec::new();
    for (at, module) in tracer.modules.iter().enumerate() {
        for one in loops_that_train(tracer, module) {
            let place = one.iterable.clone().map(|span| Place { module: at, span });
            let mut found = place
                .as_ref()
                .map_or(PossibleValues::default(), |place| tracer.trace(place, &[Step::Batch]));
            if found.numbers.is_empty() {
                let within = batches_within(tracer, at, one);
                found = within.or(found);
            }
            sinks.push(Sink { found, at: Some(module.place(one.span.start)) });
        }
    }
    sinks
}

/// The loops of a module around a training step.
pub(super) fn loops_that_train<'m>(tracer: &Tracer<'_>, module: &'m Module) -> Vec<&'m Loop> {
    let is_step = |call: &&Call| call.name() == "backward" || call.name() == "manual_backward";
    // The names of functions with a training step: a loop around a call of one trains.
    let mut names: Vec<&str> = Vec::new();
    for module in tracer.modules {
        for call in module.calls.iter().filter(is_step) {
            names.extend(call.function.map(|at| module.functions[at].name.as_str()));
        }
    }
    names.retain(|name| !matches!(*name, "forward" | "main"));
    let trains = |call: &&Call| is_step(call) || names.contains(&call.name());
    let calls: Vec<&Call> = module.calls.iter().filter(trains).take(256).collect();
    let mut loops: Vec<&Loop> = Vec::new();
    for direct in [true, false] {
        for call in calls.iter().filter(|call| is_step(call) == direct) {
            let around = |one: &&Loop| {
                one.span.contains(&call.span.start)
                    && (one.function == call.function
                        || call.function.is_some_and(|at| {
                            // A closure within the loop.
                            one.span.contains(&module.functions[at].span.start)
                        }))
            };
            let mut around: Vec<&Loop> = module.loops.iter().filter(around).collect();
            around.reverse();
            for one in around {
                if !loops.iter().any(|known| known.span == one.span) {
                    loops.push(one);
                }
            }
        }
    }
    loops
}

/// Traces where a loop over steps gets its batches: `next(iterator)`, `get_batch("train")`, tensors
/// that it creates.
fn batches_within(tracer: &Tracer<'_>, module: usize, one: &Loop) -> PossibleValues {
    let text = &tracer.modules[module];
    let mut found = PossibleValues::default();
    let inside = text.assignments.iter().filter(|assignment| {
        one.span.contains(&assignment.at.start) && assignment.function == one.function
    });
    for assignment in inside.take(64) {
        let is_call = text.node(&assignment.value).is_some_and(|node| node.is(Kind::Call));
        if is_call && !is_for_validation(text.text(&assignment.value)) {
            let place = Place { module, span: assignment.value.clone() };
            let callee = text.calls.iter().find(|call| call.span == assignment.value);
            let is_batch = callee.is_some_and(|call| returns_a_batch(tracer, &place, call));
            let given = if is_batch {
                tracer.trace(&place, &[Step::Batch])
            } else {
                PossibleValues::default()
            };
            if !given.numbers.is_empty() {
                return given;
            }
            if is_batch {
                found = found.or(given);
            }
        }
    }
    // nanoGPT fetches the first batch before its loop.
    let before = text.calls.iter().filter(|call| call.function == one.function);
    for call in before.filter(|call| call.name().contains("batch")).take(8) {
        let place = Place { module, span: call.span.clone() };
        if is_for_validation(text.text(&call.span)) {
            continue;
        }
        let given = tracer.trace(&place, &[Step::Batch]);
        if !given.numbers.is_empty() {
            return given;
        }
    }
    found
}

/// Whether the name or the arguments of a call show that it returns a batch: not every call with a
/// tensor does.
fn returns_a_batch(tracer: &Tracer<'_>, place: &Place, call: &Call) -> bool {
    let name = call.name().to_lowercase();
    ["batch", "next", "sample", "data", "fetch"].iter().any(|word| name.contains(word))
        || Arguments::of(tracer, place).is_some_and(|arguments| {
            arguments.by_name.iter().any(|(name, _)| may_be_batch_name(name))
        })
}

/// Trainers of libraries: `fit` of Lightning, the arguments of transformers, the loaders of fastai.
fn trainers(tracer: &Tracer<'_>) -> Vec<Sink> {
    let mut sinks = Vec::new();
    for (module, text) in tracer.modules.iter().enumerate() {
        for call in &text.calls {
            let place = Place { module, span: call.span.clone() };
            let name = call.name();
            let found = if name.ends_with("TrainingArguments")
                || name.ends_with("TrainArguments")
                || name.ends_with("Config")
                    && text.text(&call.span).contains("per_device_train_batch_size")
            {
                in_training_arguments(tracer, &place)
            } else if matches!(name, "fit" | "fit_loop") {
                in_fit(tracer, &place)
            } else {
                continue;
            };
            sinks.push(Sink { found, at: Some(text.place(call.span.start)) });
        }
    }
    sinks
}

fn in_training_arguments(tracer: &Tracer<'_>, place: &Place) -> PossibleValues {
    let Some(arguments) = Arguments::of(tracer, place) else { return PossibleValues::default() };
    for key in TRAINER_KEYS {
        if let Some(value) = arguments.named(key) {
            return tracer.part(place, value, &[]);
        }
        for splat in &arguments.splats {
            let found = tracer.member(place, *splat, Step::Key(key.to_owned()), &[]);
            if !found.numbers.is_empty() {
                return found;
            }
        }
    }
    tracer.doubt(place, "does not set per_device_train_batch_size, so the library default applies")
}

/// `trainer.fit(model, loader)`, `trainer.fit(model, datamodule=data)`, `trainer.fit(model)`.
fn in_fit(tracer: &Tracer<'_>, place: &Place) -> PossibleValues {
    let Some(arguments) = Arguments::of(tracer, place) else { return PossibleValues::default() };
    let keys = ["train_dataloaders", "train_dataloader", "datamodule", "train_loader"];
    let named = keys.iter().find_map(|key| arguments.named(key));
    let data = named.or(arguments.positional.get(1).copied());
    let given = data.into_iter().chain(arguments.positional.first().copied());
    let mut doubts = PossibleValues::default();
    for node in given {
        // A data module, or a model that creates its own loader.
        let inner =
            tracer.member(place, node, Step::Key("train_dataloader".to_owned()), &[Step::Batch]);
        if !inner.numbers.is_empty() {
            return inner;
        }
        let found = tracer.part(place, node, &[Step::Batch]);
        if !found.numbers.is_empty() {
            return found;
        }
        doubts = doubts.or(inner).or(found);
    }
    doubts
}

/// Tensors that are created before or in the training loop and used in it.
fn synthetic_batches(tracer: &Tracer<'_>) -> Vec<Sink> {
    let mut sinks = Vec::new();
    for (at, module) in tracer.modules.iter().enumerate() {
        let Some(one) = loops_that_train(tracer, module).into_iter().next() else { continue };
        let body = module.text(&one.span);
        let mut found = PossibleValues::default();
        let assignments = module
            .assignments
            .iter()
            .filter(|assignment| assignment.function == one.function && assignment.class.is_none());
        for assignment in assignments.take(256) {
            let maker = module.calls.iter().find(|call| {
                assignment.value.start == call.span.start && synthetic::is_maker(call)
            });
            let is_used = mentions(body, &assignment.target);
            if let Some(call) = maker.filter(|_| is_used) {
                found = found.or(synthetic::first_size(tracer, at, call));
            }
        }
        if let [first, _, ..] = &found.numbers[..] {
            let lines: Vec<String> = found.numbers.iter().map(|one| one.line.to_string()).collect();
            let message = format!(
                "{} writes the batch size {} times (lines {}): assign it to one variable",
                module.path,
                lines.len(),
                lines.join(", ")
            );
            let place = Some((first.file.clone(), first.line));
            found = PossibleValues::doubt(Refusal { message, at: place });
        }
        sinks.push(Sink { found, at: Some(module.place(one.span.start)) });
    }
    sinks
}

/// Whether a text contains a name as a whole word.
fn mentions(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// All loaders that are not for validation, if no loop leads to one.
fn loaders(tracer: &Tracer<'_>) -> Vec<Sink> {
    let mut found = PossibleValues::default();
    let mut at = None;
    for (module, text) in tracer.modules.iter().enumerate() {
        for call in text.calls.iter().filter(|call| call.name().ends_with("DataLoader")) {
            let target = text.assignments.iter().find(|one| one.value == call.span);
            if target.is_some_and(|one| is_for_validation(&one.target)) {
                continue;
            }
            let place = Place { module, span: call.span.clone() };
            found = found.or(tracer.trace(&place, &[Step::Batch]));
            at.get_or_insert(text.place(call.span.start));
        }
    }
    vec![Sink { found, at }]
}

/// Numbers with the name of a batch size: constants, defaults, options.
fn named_numbers(tracer: &Tracer<'_>) -> PossibleValues {
    let mut found = PossibleValues::default();
    for (module, text) in tracer.modules.iter().enumerate() {
        for one in &text.assignments {
            let last =
                one.target.rsplit(['.', '"', '[']).find(|part| !part.is_empty() && *part != "]");
            if last.is_some_and(is_batch_name) && !one.value.is_empty() && one.element.is_none() {
                let place = Place { module, span: one.value.clone() };
                found = found.or(only_numbers(tracer.trace(&place, &[])));
            }
        }
        for call in text.calls.iter().filter(|call| call.name() == "add_argument") {
            let place = Place { module, span: call.span.clone() };
            let Some(arguments) = Arguments::of(tracer, &place) else { continue };
            let is_batch = arguments.positional.iter().any(|node| {
                crate::semantics::literal::string(text, *node)
                    .is_some_and(|option| is_batch_name(&option))
            });
            if let (true, Some(default)) = (is_batch, arguments.named("default")) {
                found = found.or(only_numbers(tracer.part(&place, default, &[])));
            }
        }
    }
    found
}

fn only_numbers(found: PossibleValues) -> PossibleValues {
    PossibleValues { numbers: found.numbers, ..PossibleValues::default() }
}

/// Returns a note if a loader for validation uses the same number.
pub(super) fn also_taken_by(tracer: &Tracer<'_>, number: &Number) -> Option<String> {
    let mut others = Vec::new();
    for (module, text) in tracer.modules.iter().enumerate() {
        for call in text.calls.iter().filter(|call| call.name().ends_with("DataLoader")).take(16) {
            let target = text.assignments.iter().find(|one| one.value == call.span);
            let Some(target) = target.filter(|one| is_for_validation(&one.target)) else {
                continue;
            };
            let place = Place { module, span: call.span.clone() };
            let found = tracer.trace(&place, &[Step::Batch]);
            if found
                .numbers
                .iter()
                .any(|other| other.file == number.file && other.span == number.span)
            {
                others.push(target.target.clone());
            }
        }
    }
    let first = others.first()?;
    Some(format!("{first} uses the same number"))
}
