//! Activations that can write over their input.
//!
//! In place PyTorch makes the gradients of the activations known here of their output. Of others (ReLU6,
//! Hardtanh, SiLU, Mish, Hardswish, …) it saves a copy of the input then, so that nothing is gained
//! (looked at in torch 2.15, by what `torch.autograd.graph.saved_tensors_hooks` is handed).

use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::callee;
use super::layers::layer;

/// An activation that can write over its input.
pub(super) struct Activation {
    layer: &'static str,
    pub function: &'static str,
    /// Its first argument: a slope below zero. Where that is negative, the output does not tell the
    /// gradient, and PyTorch refuses.
    pub slope: Option<&'static str>,
    /// The place of `inplace` among the arguments of the layer.
    pub place: usize,
}

const fn activation(
    layer: &'static str,
    function: &'static str,
    slope: Option<&'static str>,
    place: usize,
) -> Activation {
    Activation { layer, function, slope, place }
}

const ACTIVATIONS: [Activation; 5] = [
    activation("ReLU", "relu", None, 0),
    activation("SELU", "selu", None, 0),
    activation("LeakyReLU", "leaky_relu", Some("negative_slope"), 1),
    activation("ELU", "elu", Some("alpha"), 1),
    activation("CELU", "celu", Some("alpha"), 1),
];

/// Activations that take `inplace`, and save nothing by it.
pub(super) const KEEP_A_COPY: [&str; 7] =
    ["Hardtanh", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Threshold"];

/// The activation that a call makes or computes.
pub(super) fn kind_of(
    program: &Program<'_>,
    module: usize,
    call: Node<'_>,
) -> Option<&'static Activation> {
    if let Some(layer) = layer(program, module, call) {
        return ACTIVATIONS.iter().find(|one| one.layer == layer);
    }
    let whole = program.absolute(module, &callee(program.module(module), call));
    let name = whole.strip_prefix("torch.nn.functional.")?;
    ACTIVATIONS.iter().find(|one| one.function == name)
}
