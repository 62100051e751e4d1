//! A layer's bias that the following batch norm cancels (PyTorch, "Performance Tuning Guide").

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::models::{Models, keeps_states};
use super::super::program::Program;
use super::super::syntax::{everything, written};
use super::TargetLines;
use super::attributes::{
    LayerAttribute, calls_of, has_other_uses, is_replaced, layer_attributes, layer_before,
    only_argument,
};
use super::layers::{Candidate, change_all, is_batch_norm, layer, plain_name, refuse_all, switch};
use super::modes::{left_in_evaluation, part_in_evaluation};
use super::sequences::sequences;
use super::taken_apart::taken_apart;
use ridgeline_python::semantics::call_sites::Arguments;
use ridgeline_python::semantics::module::{Module, last_name};

/// Adds `bias=False` to layers that are followed only by a batch norm.
pub fn rewrite<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    at: &TargetLines<'_>,
) -> Result<(), Refusal> {
    let all = layer_attributes(program);
    let found = candidates(program, &all);
    let change = |edits: &mut Edits<'a>, one: &Candidate<'a>| {
        let (name, given) = bias_of(program, one)?;
        if let Some((module, offset)) = used_bias(program, &all, &name, one.creation) {
            let what = "uses a bias, possibly the one that would be removed";
            return Err(program.refuse(module, offset, what));
        }
        switch(program, edits, (one.module, one.creation), ("bias", "False"), given)
    };
    let nothing = "no layer here is followed only by batch norm";
    change_all(program, edits, at, &found, change, ("already has no bias", nothing))?;
    if keeps_states(program) {
        edits.note(
            "existing checkpoints contain these biases: load them with `strict=False`, and \
            subtract each from the running mean of its batch norm",
        );
    }
    Ok(())
}

/// Returns the layers with a bias that a batch norm certainly cancels: module and the call that
/// creates the layer.
pub fn redundant_biases<'a>(program: &Program<'a>) -> Vec<(usize, Node<'a>)> {
    let found = candidates(program, &layer_attributes(program)).into_iter();
    let is_on = |one: &Candidate<'a>| {
        let given = bias_of(program, one).map(|(_, given)| given);
        let text = program.module(one.module);
        one.refusal.is_none()
            && given.is_ok_and(|given| given.is_none_or(|given| written(text, given) == "True"))
    };
    found.filter(is_on).map(|one| (one.module, one.creation)).collect()
}

/// Returns the layers that are followed only by a batch norm.
fn candidates<'a>(program: &Program<'a>, all: &[LayerAttribute<'a>]) -> Vec<Candidate<'a>> {
    let mut found = in_sequences(program);
    if !found.is_empty()
        && let Some((module, offset)) = taken_apart(program)
    {
        let why = "accesses single layers of a Sequential, possibly the output of one before its batch \
            norm";
        refuse_all(&mut found, &program.refuse(module, offset, why));
    }
    found.extend(in_methods(program, all));
    if !found.is_empty()
        && let Some((module, offset)) = part_in_evaluation(program, &Models::of(program))
            .or_else(|| left_in_evaluation(program))
    {
        let why = "puts part of the model that may be training into evaluation mode, where batch norm \
            keeps the bias";
        refuse_all(&mut found, &program.refuse(module, offset, why));
    }
    found
}

/// Returns the layers before a batch norm in an `nn.Sequential`.
fn in_sequences<'a>(program: &Program<'a>) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for (module, layers) in sequences(program) {
        for pair in layers.windows(2) {
            if let [one, norm] = pair
                && is_redundant(program, module, (&one.layer, one.made), (&norm.layer, norm.made))
            {
                found.push(Candidate::new(module, one.made, vec![norm.made]));
            }
        }
    }
    found
}

/// Returns the layers that a method calls only for a batch norm.
fn in_methods<'a>(program: &Program<'a>, all: &[LayerAttribute<'a>]) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for norm in all.iter().filter(|one| is_batch_norm(&one.layer)) {
        let module = norm.module;
        for call in calls_of(program, norm) {
            let before = only_argument(call)
                .and_then(|given| layer_before(program, all, (module, norm.class), given));
            let Some((one, by)) = before else { continue };
            let pair = ((one.layer.as_str(), one.creation), (norm.layer.as_str(), norm.creation));
            // Other uses may need its bias.
            let is_only_use = calls_of(program, one).len() == 1
                && !has_other_uses(program, one)
                && !is_replaced(program, one)
                && !is_replaced(program, norm);
            if is_only_use && is_redundant(program, module, pair.0, pair.1) {
                found.push(Candidate::new(module, one.creation, vec![by, norm.creation]));
            }
        }
    }
    found
}

/// Returns the position of `bias` in the arguments of a layer.
fn bias_position(layer: &str) -> Option<usize> {
    let place = match plain_name(layer) {
        "Linear" => 2,
        "Conv1d" | "Conv2d" | "Conv3d" => 7,
        "ConvTranspose1d" | "ConvTranspose2d" | "ConvTranspose3d" => 7,
        _ => return None,
    };
    // Lazy layers have no input size argument.
    Some(if layer.starts_with("Lazy") { place - 1 } else { place })
}

/// Whether a batch norm cancels a layer's bias: it normalizes the channels of the layer's output.
fn is_redundant<'a>(
    program: &Program<'a>,
    module: usize,
    (one, made): (&str, Node<'a>),
    (norm, norm_made): (&str, Node<'a>),
) -> bool {
    if bias_position(one).is_none() || !is_batch_norm(norm) {
        return false;
    }
    let text = program.module(module);
    let given = |call, place: usize, name: &str| {
        let arguments: Arguments<'a> = program.arguments(module, call)?;
        let value = arguments.positional.get(place).copied().or_else(|| arguments.named(name))?;
        Some(written(text, value))
    };
    let place = usize::from(!one.starts_with("Lazy"));
    if plain_name(one) == "Linear" {
        // For inputs with several positions, `BatchNorm1d` normalizes the positions, and
        // `BatchNorm2d` the dimension before them.
        let channels = given(made, place, "out_features");
        return plain_name(norm) == "BatchNorm1d"
            && channels.is_some()
            && channels == given(norm_made, 0, "num_features");
    }
    // For a single image without a batch dimension, a norm uses another dimension.
    let number = |value: Option<String>| value.and_then(|value| value.parse::<u64>().ok());
    let channels = number(given(made, place, "out_channels"));
    let normed = number(given(norm_made, 0, "num_features"));
    channels.zip(normed).is_none_or(|(one, other)| one == other)
}

/// Returns the class of a layer and its `bias` argument.
fn bias_of<'a>(
    program: &Program<'a>,
    one: &Candidate<'a>,
) -> Result<(String, Option<Node<'a>>), Refusal> {
    let (module, made) = (one.module, one.creation);
    let start = made.start_byte();
    let name = layer(program, module, made).unwrap_or_default();
    let arguments = program.arguments(module, made);
    let (Some(arguments), Some(place)) = (arguments, bias_position(&name)) else {
        return Err(program.refuse(module, start, "creates the layer in an unsupported form"));
    };
    if arguments.has_star || !arguments.splats.is_empty() {
        let why = "passes starred arguments to the layer, which may set its bias";
        return Err(program.refuse(module, start, why));
    }
    Ok((name, arguments.named("bias").or(arguments.positional.get(place).copied())))
}

/// Returns where the program uses the bias of what may be this layer without checking that it
/// exists: `nn.init.zeros_(m.bias)`.
fn used_bias(
    program: &Program<'_>,
    all: &[LayerAttribute<'_>],
    layer: &str,
    made: Node<'_>,
) -> Option<(usize, usize)> {
    for (module, text) in program.modules().iter().enumerate() {
        if !text.index.text().contains("bias") {
            continue;
        }
        let Some(tree) = text.index.tree() else { continue };
        let used = everything(tree.root_node()).into_iter().find(|node| {
            let name = node.field(Field::Attribute).filter(|_| node.is(Kind::Attribute));
            let is_bias = name.is_some_and(|name| text.text(&name.byte_range()) == "bias");
            let object = node.field(Field::Object).filter(|_| is_bias);
            let Some(owner) = object.map(|object| written(text, object)) else { return false };
            let last = last_name(&owner).to_lowercase();
            // The bias of the norm itself, or of a custom layer.
            if last.contains("norm") || last.starts_with("bn") || last == "self" {
                return false;
            }
            let class = program.class_of((module, text.function_at(node.start_byte())));
            let known = all
                .iter()
                .find(|one| one.module == module && Some(one.class) == class && one.name == owner);
            match known {
                Some(known) => known.creation.id() == made.id(),
                None => !is_compared(*node) && !is_guarded(text, *node, layer),
            }
        });
        if let Some(node) = used {
            return Some((module, node.start_byte()));
        }
    }
    None
}

/// Whether a bias is compared: `m.bias is not None`.
fn is_compared(bias: Node<'_>) -> bool {
    bias.parent().is_some_and(|parent| parent.is(Kind::ComparisonOperator))
}

/// Whether the use is inside a condition that the bias exists, or that the layer has another type.
fn is_guarded(text: &Module, bias: Node<'_>, layer: &str) -> bool {
    let own = if layer.contains("Conv") { "Conv" } else { "Linear" };
    let types = ["Conv", "Linear", "Norm", "Embedding", "LSTM", "GRU", "RNN", "Attention"];
    enclosing_conditions(bias).into_iter().any(|condition| {
        let condition = written(text, condition);
        let is_guard = condition.contains(".bias")
            || (condition.contains("bias") && condition.contains("None"));
        let names = |kind: &&str| condition.contains(*kind);
        is_guard || (types.iter().any(names) && !names(&own))
    })
}

/// Returns the conditions of the `if`s whose branch contains a node.
fn enclosing_conditions(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut at = node;
    while let Some(parent) = at.parent() {
        let field = |name: Field| parent.field(name);
        match Kind::of(&parent) {
            Kind::FunctionDefinition | Kind::ClassDefinition => break,
            Kind::IfStatement | Kind::ElifClause
                if field(Field::Consequence).is_some_and(|it| it.id() == at.id()) =>
            {
                found.extend(field(Field::Condition));
            }
            _ => {}
        }
        at = parent;
    }
    found
}
