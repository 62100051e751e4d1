//! The share of the samples that each process trains on: `DistributedSampler`.

use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::module::Module;
use ridgeline_python::semantics::trace::Place;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::imports;
use super::super::layout::Layout;
use super::super::loader::{Loader, loaders};
use super::super::origins::Origin;
use super::super::program::Program;
use super::super::syntax::{callee, mentions, statement_of, written};
use super::loops::{EpochLoop, Loops, counts, first_statement};
use super::{check_own_line, is_launched, name_is_taken};

/// The loader whose samples are divided.
pub(super) struct Sharded<'a> {
    loader: Loader<'a>,
    /// The statement that creates it.
    pub statement: Node<'a>,
}

impl<'a> Sharded<'a> {
    /// Finds the only loader used for training.
    pub(super) fn find(program: &Program<'a>) -> Result<Sharded<'a>, Refusal> {
        let mut found = loaders(program)?;
        let Some(loader) = found.pop().filter(|_| found.is_empty()) else {
            return Err(Refusal::not_understood(
                "the program has several DataLoaders for training",
            ));
        };
        let (module, call) = (loader.module, loader.call);
        let parent = call.parent();
        let is_plain = parent.is_some_and(|parent| match Kind::of(&parent) {
            Kind::Assignment => {
                let left = parent.field(Field::Left);
                left.is_some_and(|left| {
                    matches!(Kind::of(&left), Kind::Identifier | Kind::Attribute)
                })
            }
            Kind::ReturnStatement => true,
            _ => false,
        });
        let Some(statement) = statement_of(call).filter(|_| is_plain) else {
            let what =
                "creates the DataLoader inside a larger expression: assign it to a variable first";
            return Err(program.refuse(module, call.start_byte(), what));
        };
        Ok(Sharded { loader, statement })
    }

    /// The module that creates it.
    pub(super) fn module(&self) -> usize {
        self.loader.module
    }

    /// Whether a variable's value is this loader.
    pub(super) fn is_made_by(&self, program: &Program<'_>, origin: &Origin<'_>) -> bool {
        let (module, value) = match origin {
            Origin::Assigned { module, value, .. } | Origin::Expression { module, value } => {
                (*module, *value)
            }
        };
        let (there, own) = (self.module(), self.loader.call);
        if module == there && value.byte_range() == own.byte_range() {
            return true;
        }
        let name = callee(program.module(module), value);
        let place = Place { module, span: value.byte_range() };
        let function = program.module(there).function_at(own.start_byte());
        match callable(&program.tracer, &place, &name) {
            Some(Callable::Function(inner, at)) => (inner, Some(at)) == (there, function),
            _ => false,
        }
    }
}

/// Gives each process its own share of the samples.
pub(super) fn add<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    sharded: &Sharded<'a>,
    loops: &Loops<'a>,
) -> Result<(), Refusal> {
    let (module, call) = (sharded.loader.module, sharded.loader.call);
    let text = program.module(module);
    let refuse = |what: &str| Err(program.refuse(module, call.start_byte(), what));
    let Some(arguments) = program.arguments(module, call) else {
        return refuse("calls the DataLoader in an unsupported form");
    };
    if arguments.has_star || !arguments.splats.is_empty() || arguments.positional.len() > 2 {
        return refuse("passes the arguments of the DataLoader in an unsupported form");
    }
    if ["sampler", "batch_sampler"].iter().any(|name| arguments.named(name).is_some()) {
        return refuse("has a sampler of its own");
    }
    let Some(dataset) = arguments.named("dataset").or(arguments.positional.first().copied()) else {
        return refuse("passes no dataset to the DataLoader");
    };
    let shuffle = arguments.named("shuffle");
    let is_shuffled = match shuffle.map(|given| written(text, given)).as_deref() {
        Some("True") => true,
        None | Some("False") => false,
        Some(_) => return refuse("decides elsewhere whether it shuffles"),
    };
    check_own_line(program, module, sharded.statement)?;
    let class = "DistributedSampler";
    let Some(sampler_class) = imports::imported(edits, module, text, "torch.utils.data", class)
    else {
        return Err(name_is_taken(program, module, class));
    };
    let Some(sampler) = ["sampler", "train_sampler"].into_iter().find(|name| is_free(text, name))
    else {
        return Err(name_is_taken(program, module, "sampler"));
    };
    let launched = is_launched(edits, program, module);
    let (dataset, mut lines) = variable_of(program, edits, module, dataset)?;
    let order = if is_shuffled { "" } else { ", shuffle=False" };
    lines.push(format!("{sampler} = {sampler_class}({dataset}{order}) if {launched} else None"));
    edits.before(module, sharded.statement, &lines);
    if let Some(shuffle) = shuffle.filter(|_| is_shuffled) {
        edits.replace(module, shuffle.byte_range(), format!("{sampler} is None"));
    }
    edits.add_arguments(program, module, call, &[&format!("sampler={sampler}")])?;
    match &loops.epochs {
        Some(epochs) if is_shuffled => set_epoch(program, edits, sharded, epochs),
        _ => Ok(()),
    }
}

/// Returns a name for the dataset, and the statement that assigns it if it had none.
fn variable_of(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    module: usize,
    dataset: Node<'_>,
) -> Result<(String, Vec<String>), Refusal> {
    let text = program.module(module);
    if matches!(Kind::of(&dataset), Kind::Identifier | Kind::Attribute) {
        return Ok((written(text, dataset), Vec::new()));
    }
    let source = text.text(&dataset.byte_range());
    let free = ["dataset", "train_dataset"].into_iter().find(|name| is_free(text, name));
    let Some(name) = free.filter(|_| !source.contains(['\n', '\r'])) else {
        let what =
            "creates the dataset in the call of the DataLoader: assign it to a variable first";
        return Err(program.refuse(module, dataset.start_byte(), what));
    };
    edits.replace(module, dataset.byte_range(), name);
    Ok((name.to_owned(), vec![format!("{name} = {source}")]))
}

/// Whether a text uses a name for nothing yet, except for keywords.
fn is_free(text: &Module, name: &str) -> bool {
    let is_parameter = |one: &ridgeline_python::semantics::module::Parameter| one.name == name;
    !(text.assignments.iter().any(|one| one.target == name)
        || text.names.iter().any(|(here, ..)| here == name)
        || text
            .functions
            .iter()
            .any(|one| one.name == name || one.parameters.iter().any(is_parameter)))
}

/// Shuffles differently in each epoch.
fn set_epoch<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    sharded: &Sharded<'a>,
    epochs: &EpochLoop<'a>,
) -> Result<(), Refusal> {
    let EpochLoop { module, node, loader } = epochs;
    let text = program.module(*module);
    let refuse = |what: &str| Err(program.refuse(*module, node.start_byte(), what));
    let right = node.field(Field::Right).map(|right| written(text, right));
    let counts = right.is_some_and(|right| counts(&right));
    let left = node.field(Field::Left).filter(|left| left.is(Kind::Identifier));
    let first = node.field(Field::Body).and_then(first_statement);
    let (Some(left), Some(first)) = (left.filter(|_| counts), first) else {
        return refuse(
            "goes through the DataLoader several times, in a loop that counts no epochs",
        );
    };
    if sharded.loader.module == *module
        && node.byte_range().contains(&sharded.statement.start_byte())
    {
        return refuse("creates the DataLoader in each epoch: create it before the loop");
    }
    check_own_line(program, *module, first)?;
    let mut epoch = text.text(&left.byte_range()).to_owned();
    if epoch == "_" {
        if mentions(text.text(&node.byte_range()), "epoch") || !is_free(text, "epoch") {
            return refuse("counts no epochs: name its variable");
        }
        "epoch".clone_into(&mut epoch);
        edits.replace(*module, left.byte_range(), epoch.clone());
    }
    let launched = is_launched(edits, program, *module);
    let unit = Layout::of(text).unit();
    let lines = [format!("if {launched}:"), format!("{unit}{loader}.sampler.set_epoch({epoch})")];
    edits.before(*module, first, &lines);
    Ok(())
}
