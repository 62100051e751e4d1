//! Images in channels_last, the memory format of tensor cores and oneDNN (PyTorch, "Channels Last
//! Memory Format").

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use tree_sitter::Node;

use super::Refusal;
use super::compile::{ModelCall, model_calls, model_origins};
use super::edits::Edits;
use super::imports;
use super::origins::Origin;
use super::program::Program;
use super::syntax::{callee, calls_in, mentions, object_of, written};

/// Packages whose models have convolutions over images.
const VISION: [&str; 4] = ["torchvision", "timm", "segmentation_models_pytorch", "monai"];

/// Adds `memory_format=torch.channels_last` to the model and its input.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    for (module, text) in program.modules().iter().enumerate() {
        if let Some(at) = text.index.text().find(".channels_last") {
            let at = program.at(module, at);
            return Err(Refusal::done(format!("{at} already uses channels_last")));
        }
    }
    let has_images = program.modules().iter().any(|text| {
        ["Conv2d", "ConvTranspose2d", "LazyConv2d"]
            .iter()
            .any(|name| mentions(text.index.text(), name))
            || text
                .imports
                .iter()
                .any(|import| VISION.contains(&import.module.split('.').next().unwrap_or_default()))
    });
    if !has_images {
        let why = "no 2D convolution (Conv2d) was found in the program";
        return Err(Refusal::not_understood(why));
    }
    for origin in model_origins(program)? {
        let (Origin::Assigned { module, value, .. } | Origin::Expression { module, value }) =
            origin;
        let argument = format(program, edits, module);
        match move_call(program, module, value) {
            Some(call) => edits.add_arguments(program, module, call, &[&argument])?,
            None => edits.insert(module, value.end_byte(), format!(".to({argument})")),
        }
    }
    let mut known: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
    for call in model_calls(program)? {
        input(program, edits, &call, &mut known)?;
    }
    Ok(())
}

fn format(program: &Program<'_>, edits: &mut Edits<'_>, module: usize) -> String {
    let torch = imports::torch(edits, module, program.module(module));
    format!("memory_format={torch}.channels_last")
}

/// Returns the call that moves a value to a device, in a chain that ends with it or with
/// `.train()`.
fn move_call<'a>(program: &Program<'a>, module: usize, value: Node<'a>) -> Option<Node<'a>> {
    let text = program.module(module);
    let mut call = Some(value).filter(|value| value.is(Kind::Call))?;
    for _ in 0..8 {
        if object_of(text, call, "to").is_some() {
            let arguments = program.arguments(module, call)?;
            let is_plain = arguments.splats.is_empty()
                && !arguments.has_star
                && arguments.named("memory_format").is_none();
            return Some(call).filter(|_| is_plain);
        }
        call = ["train", "eval", "requires_grad_"]
            .iter()
            .find_map(|method| object_of(text, call, method))
            .filter(|object| object.is(Kind::Call))?;
    }
    None
}

/// Converts the first argument of a model where it is moved to the device, or else where it is
/// passed.
fn input(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    call: &ModelCall<'_>,
    known: &mut Vec<(usize, std::ops::Range<usize>)>,
) -> Result<(), Refusal> {
    let (module, function) = call.scope;
    let text = program.module(module);
    let Some(arguments) = program.arguments(module, call.call) else { return Ok(()) };
    let Some(first) = arguments.positional.first().copied() else {
        return Ok(());
    };
    let mut add = |range: std::ops::Range<usize>| {
        let is_new = !known.contains(&(module, range.clone()));
        known.push((module, range));
        is_new
    };
    if let Some(move_call) = move_call(program, module, first) {
        if add(move_call.byte_range()) {
            let argument = format(program, edits, module);
            edits.add_arguments(program, module, move_call, &[&argument])?;
        }
        return Ok(());
    }
    let name = written(text, first);
    if !first.is(Kind::Identifier) {
        return Ok(());
    }
    // Generated noise does not need a conversion.
    let is_noise = |value: Node<'_>| {
        calls_in(value).into_iter().any(|call| {
            let qualified = program.absolute(module, &callee(text, call));
            qualified.starts_with("torch.rand")
                || qualified == "torch.zeros"
                || qualified == "torch.normal"
        })
    };
    let set = text.assignments.iter().rfind(|one| {
        one.target == name && one.function == function && one.value.end <= call.call.start_byte()
    });
    let value = set.and_then(|set| text.node(&set.value));
    if value.is_some_and(is_noise) {
        return Ok(());
    }
    if let Some(move_call) = value.and_then(|value| move_call(program, module, value)) {
        if add(move_call.byte_range()) {
            let argument = format(program, edits, module);
            edits.add_arguments(program, module, move_call, &[&argument])?;
        }
        return Ok(());
    }
    // The output of another model already has the right format.
    let is_computed = set.is_some_and(|set| {
        text.node(&set.value).is_some_and(|one| one.is(Kind::Call))
            && !text.text(&set.value).contains(".cuda(")
    });
    if !is_computed && add(first.byte_range()) {
        let argument = format(program, edits, module);
        edits.insert(module, first.end_byte(), format!(".to({argument})"));
    }
    Ok(())
}
