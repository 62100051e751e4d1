//! Programs that cannot run in several processes at once.

use ridgeline_python::semantics::module::{Call, last_name};
use ridgeline_python::semantics::parts::notebook_of;

use super::super::Refusal;
use super::super::compile;
use super::super::frameworks;
use super::super::optimizers::makes_optimizer;
use super::super::program::Program;
use super::super::syntax::{mentions, written};

/// Calls of programs that already train with several processes.
const PARALLEL: [&str; 7] = [
    "init_process_group",
    "DistributedDataParallel",
    "DDP",
    "FullyShardedDataParallel",
    "FSDP",
    "fully_shard",
    "spawn",
];

/// Calls that every process would make, and why that is wrong.
const NOT_IN_EACH: [(&str, &str); 14] = [
    ("SummaryWriter", "writes a log, which every process would do"),
    ("FileHandler", "writes a log, which every process would do"),
    ("rmtree", "removes files, which every process would do"),
    ("remove", "removes files, which every process would do"),
    ("unlink", "removes files, which every process would do"),
    ("rename", "moves files, which every process would do"),
    ("mkdir", "creates a folder, which every process would do"),
    ("set_device", "chooses a GPU, and each process needs its own"),
    ("ReduceLROnPlateau", "changes the learning rate by a value that may differ between processes"),
    ("LBFGS", "calls the model several times in one optimizer step"),
    ("deepcopy", "copies an object, which may be the model"),
    ("AveragedModel", "copies the model"),
    ("write_text", "writes a file, which every process would do"),
    ("dump", "writes a file, which every process would do"),
];

/// Packages whose logs every process would write.
const LOGGERS: [&str; 5] = ["wandb", "mlflow", "comet_ml", "neptune", "aim"];

/// Rejects programs that cannot run in several processes at once.
pub(super) fn check(program: &Program<'_>) -> Result<(), Refusal> {
    check_not_parallel(program)?;
    for (module, call) in program.calls() {
        check_call(program, module, call)?;
    }
    if let Some(refusal) = frameworks::of_several_gpus(program) {
        return Err(refusal);
    }
    check_texts(program)?;
    if let Some((module, at)) = compile::first_compiled(program) {
        let what = "compiles the model, which has to be wrapped first: edit it by hand";
        return Err(program.refuse(module, at, what));
    }
    let made = program.calls().filter(|(at, call)| makes_optimizer(program, *at, &call.callee));
    match made.count() > 1 {
        true => Err(Refusal::not_understood("the program has several optimizers")),
        false => Ok(()),
    }
}

/// Rejects programs that train with several processes already.
fn check_not_parallel(program: &Program<'_>) -> Result<(), Refusal> {
    let mut parallel = program.calls().filter(|(module, call)| {
        let qualified = program.called(*module, call);
        PARALLEL.contains(&last_name(&qualified)) || qualified.starts_with("horovod.")
    });
    parallel.next().map_or(Ok(()), |(module, call)| {
        let at = program.at(module, call.span.start);
        Err(Refusal::done(format!("{at} already trains with several processes")))
    })
}

fn check_call(program: &Program<'_>, module: usize, call: &Call) -> Result<(), Refusal> {
    let qualified = program.called(module, call);
    let name = last_name(&qualified);
    let at = call.span.start;
    let refuse = |what: &str| Err(program.refuse(module, at, what));
    if name == "DataParallel" {
        return refuse("uses DataParallel: remove it first");
    }
    if qualified == "torch.autograd.grad" {
        return refuse("calls torch.autograd.grad, which DistributedDataParallel does not support");
    }
    if qualified.starts_with("torch.nn.Lazy") {
        return refuse("creates a lazy layer, which has no parameters until its first call");
    }
    let package = qualified.split('.').next().unwrap_or_default();
    if LOGGERS.contains(&package) && matches!(name, "init" | "start_run" | "Experiment" | "Run") {
        return refuse("writes a log, which every process would do");
    }
    if let Some((_, why)) = NOT_IN_EACH.iter().find(|(known, _)| *known == name) {
        // `json.dump` and `os.remove`, but not a list's `remove`.
        let is_of_list = matches!(name, "remove" | "rename" | "dump")
            && !["os", "shutil", "json", "pickle", "yaml"].contains(&package);
        let is_repeatable = name == "mkdir" && has_true(program, module, call, "exist_ok");
        if !is_of_list && !is_repeatable {
            return refuse(why);
        }
    }
    if name == "makedirs" && !has_true(program, module, call, "exist_ok") {
        return refuse("creates a folder, which every process would do: pass exist_ok=True");
    }
    check_arguments(program, module, call, name)
}

/// Whether a call passes `name=True`.
fn has_true(program: &Program<'_>, module: usize, call: &Call, name: &str) -> bool {
    let arguments = program.node(module, call).and_then(|node| program.arguments(module, node));
    let given = arguments.and_then(|arguments| arguments.named(name));
    given.is_some_and(|given| written(program.module(module), given) == "True")
}

fn check_arguments(
    program: &Program<'_>,
    module: usize,
    call: &Call,
    name: &str,
) -> Result<(), Refusal> {
    let text = program.module(module);
    let refuse = |what: &str| Err(program.refuse(module, call.span.start, what));
    let arguments = program.node(module, call).and_then(|node| program.arguments(module, node));
    let Some(arguments) = arguments else { return Ok(()) };
    let given = |name: &str| arguments.named(name).map(|given| written(text, given));
    if given("download").is_some_and(|given| given != "False") {
        return refuse("downloads data, which every process would do");
    }
    if given("streaming").is_some_and(|given| given != "False") {
        return refuse("streams its data, which a DistributedSampler cannot divide");
    }
    if given("create_graph").is_some_and(|given| given != "False") {
        return refuse(
            "computes gradients of gradients, which DistributedDataParallel does not support",
        );
    }
    if given("filename").is_some() && name == "basicConfig" {
        return refuse("writes a log, which every process would do");
    }
    let first = arguments.positional.first().map(|first| written(text, *first));
    let mode = arguments.named("mode").or(arguments.positional.get(1).copied());
    let mode = match call.callee.as_str() {
        "open" => mode.map(|mode| written(text, mode)),
        _ if name == "open" => given("mode").or(first.clone()),
        _ => None,
    };
    if mode.is_some_and(|mode| mode.contains(['w', 'a', 'x', '+'])) {
        return refuse("opens a file for writing, which every process would do");
    }
    let is_number = first.is_some_and(|first| first.parse::<u32>().is_ok());
    if (name == "cuda" && !arguments.positional.is_empty()) || (name == "to" && is_number) {
        return refuse("names a GPU, and each process needs its own");
    }
    Ok(())
}

/// Rejects programs that choose a GPU by its number, notebooks, providers, and datasets without an order.
fn check_texts(program: &Program<'_>) -> Result<(), Refusal> {
    if program.tracer.entry.provider {
        return Err(Refusal::not_understood("a provider does not run its own training loop"));
    }
    for (module, text) in program.modules().iter().enumerate() {
        if text.parts.iter().any(|part| notebook_of(&part.path).is_some()) {
            return Err(Refusal::not_understood("torchrun does not start notebooks"));
        }
        let source = text.index.text();
        if let Some(name) =
            ["cuda:", "CUDA_VISIBLE_DEVICES"].into_iter().find(|one| source.contains(one))
        {
            let why =
                format!("{} names a GPU (`{name}`), and each process needs its own", text.path);
            return Err(Refusal::NotUnderstood(why));
        }
        // `getattr(model, "module", model)` would return it.
        if mentions(source, "self.module") {
            let why = format!("{} has an attribute `module`, as the wrapped model has", text.path);
            return Err(Refusal::NotUnderstood(why));
        }
        let is_iterable = |base: &std::ops::Range<usize>| {
            matches!(last_name(text.text(base)), "IterableDataset" | "IterDataPipe")
        };
        if let Some(class) = text.classes.iter().find(|class| class.bases.iter().any(is_iterable)) {
            let what = "is an IterableDataset, which a DistributedSampler cannot divide";
            return Err(program.refuse(module, class.span.start, what));
        }
    }
    Ok(())
}
