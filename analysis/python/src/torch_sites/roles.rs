//! The role of a call in training, by the names of what it calls.

use std::collections::HashSet;

use tree_sitter::Node;

use crate::syntax::kind::{Field, Kind, TypedNode as _};

/// Names of optimizers that scripts import directly. Anything from a module named `optim` also
/// counts.
const OPTIMIZERS: [&str; 16] = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ASGD",
    "DeepSpeedCPUAdam",
    "FusedAdam",
    "LAMB",
    "LBFGS",
    "Lion",
    "NAdam",
    "RAdam",
    "RMSprop",
    "SGD",
];

/// The role of a call in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Backward,
    Step,
    Fit,
    MakesOptimizer,
    MakesLoader,
    ParsesArguments,
    /// Takes an optimizer and is named after training.
    Delegates,
}

/// The maximum length of an expression in front of a call, in bytes.
const MAX_NAME: usize = 80;
/// Variables that hold an optimizer or a trainer.
#[derive(Default)]
pub(super) struct KnownVariables<'a> {
    pub(super) optimizers: HashSet<&'a str>,
    trainers: HashSet<&'a str>,
}

impl<'a> KnownVariables<'a> {
    pub(super) fn assigned(&mut self, node: Node<'_>, text: &'a str) {
        let name = node.field(Field::Left).map(|left| read(left, text));
        let called = node
            .field(Field::Right)
            .filter(|right| right.is(Kind::Call))
            .and_then(|right| right.field(Field::Function))
            .map(|function| read(function, text));
        let (Some(name), Some(called)) = (name, called) else { return };
        if makes_optimizer(called) {
            self.optimizers.insert(name);
        } else if makes_trainer(called) {
            self.trainers.insert(name);
        }
    }

    pub(super) fn is_trainer(&self, object: &str) -> bool {
        let name = last(object.split('(').next().unwrap_or_default());
        let lower = name.to_lowercase();
        self.trainers.contains(object)
            || lower.ends_with("trainer")
            || matches!(lower.as_str(), "learn" | "learner")
    }
}

/// `Trainer`, `Seq2SeqTrainer`, `Learner`, `vision_learner`.
fn makes_trainer(called: &str) -> bool {
    let name = last(called);
    name.ends_with("Trainer") || name.ends_with("Learner") || name.ends_with("_learner")
}

/// Whether a method with a library's name trains. `model.train()` usually sets training mode, and
/// `scaler.fit(x)` does not fit a network.
pub(super) fn trains(object: &str, name: &str, node: Node<'_>, text: &str) -> bool {
    let lower = last(object).to_lowercase();
    let has_arguments = node
        .field(Field::Arguments)
        .is_some_and(|list| list.named_child_count() > 0 && read(list, text) != "(True)");
    match name {
        "train" => has_arguments || lower.ends_with("trainer") || lower.ends_with("runner"),
        "fit" => !["scaler", "encoder", "tokenizer", "vectorizer", "pca"]
            .iter()
            .any(|other| lower.contains(other)),
        _ => true,
    }
}

/// `torch.optim.SGD`, `optim.AdamW`, `AdamW`.
pub(super) fn makes_optimizer(called: &str) -> bool {
    let mut parts = called.rsplit('.');
    let name = parts.next().unwrap_or_default();
    let module = parts.next();
    let starts_upper = name.starts_with(|c: char| c.is_ascii_uppercase());
    (module == Some("optim") && starts_upper) || OPTIMIZERS.contains(&name)
}

/// Whether an object with a `step()` is an optimizer, rather than a scheduler or a game.
pub(super) fn steps(object: &str, is_optimizer: impl Fn(&str) -> bool) -> bool {
    let name = last(object).to_lowercase();
    if name.contains("sched") || name.contains("env") {
        return false;
    }
    is_optimizer(object)
        || name.starts_with("opt")
        || name.ends_with("opt")
        || name.starts_with("opt_")
        || matches!(
            name.as_str(),
            "scaler" | "grad_scaler" | "engine" | "model_engine" | "sgd" | "adam"
        )
}

/// `c` for `a.b.c`.
pub(super) fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// The text of a node; empty if it is too long.
pub(super) fn read<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    let range = node.byte_range();
    let limit = if node.kind().starts_with("import") { 10 * MAX_NAME } else { MAX_NAME };
    if range.len() > limit { "" } else { text.get(range).unwrap_or_default() }
}
