//! Activations that can overwrite their input.
//!
//! For the activations listed here, PyTorch computes the gradient of the in-place variant from its
//! output. For others (ReLU6, Hardtanh, SiLU, Mish, Hardswish, …) it saves a copy of the input, and
//! nothing is gained (checked in torch 2.15 with `torch.autograd.graph.saved_tensors_hooks`).

use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::callee;
use super::layers::layer;

/// An activation that can overwrite its input.
pub(super) struct Activation {
    layer: &'static str,
    pub function: &'static str,
    /// Its first argument: the slope below zero. If it is negative, the gradient does not follow
    /// from the output, and PyTorch raises an error.
    pub slope: Option<&'static str>,
    /// Position of `inplace` in the arguments of the layer.
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

/// Activations that support `inplace` but save no memory with it.
pub(super) const KEEP_A_COPY: [&str; 7] =
    ["Hardtanh", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Threshold"];

/// Returns the activation that a call creates or computes.
pub(super) fn kind_of(
    program: &Program<'_>,
    module: usize,
    call: Node<'_>,
) -> Option<&'static Activation> {
    if let Some(layer) = layer(program, module, call) {
        return ACTIVATIONS.iter().find(|one| one.layer == layer);
    }
    let qualified = program.absolute(module, &callee(program.module(module), call));
    let name = qualified.strip_prefix("torch.nn.functional.")?;
    ACTIVATIONS.iter().find(|one| one.function == name)
}
