//! Finds an expression for the type of the device that a program trains on.

use ridgeline_python::syntax::kind::Kind;
use tree_sitter::Node;

use super::Refusal;
use super::edits::Edits;
use super::imports;
use super::layout::Layout;
use super::program::{Program, Scope};
use super::syntax::{object_of, written};
use ridgeline_python::semantics::module::Module;

/// An expression for the device.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DeviceExpression {
    /// A variable: `device`, `self.device`, `args.device`.
    Variable(String),
    /// A literal device type.
    Literal(String),
}

/// Returns an expression for the device type (`device.type`, `"cuda"`) that is valid in a scope.
///
/// # Errors
/// Fails if the program's device is not available there.
pub(super) fn device_type(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    scope: Scope,
    until: usize,
) -> Result<String, Refusal> {
    let text = program.module(scope.0);
    let mut said = Vec::new();
    for (module, call) in program.calls() {
        let Some(node) = program.node(module, call) else { continue };
        let is_own = (module, call.function) == scope;
        said.extend(device_of_call(program, module, node).map(|said| (!is_own, said)));
    }
    // Expressions in the same function take precedence.
    said.sort_by_key(|(is_other, _)| *is_other);
    let mut hidden = None;
    for (_, one) in &said {
        match one {
            DeviceExpression::Literal(literal) => return Ok(Layout::of(text).quoted(literal)),
            DeviceExpression::Variable(name) if is_known(program, scope, name, until) => {
                return Ok(type_of(program, edits, scope.0, name));
            }
            DeviceExpression::Variable(name) => hidden = Some(name.clone()),
        }
    }
    let usual = ["device", "DEVICE", "self.device", "args.device"];
    let usual = usual.iter().filter(|_| hidden.is_some());
    if let Some(name) = usual.into_iter().find(|name| is_known(program, scope, name, until)) {
        return Ok(type_of(program, edits, scope.0, name));
    }
    match hidden {
        None => Ok(Layout::of(text).quoted("cpu")),
        Some(name) => {
            let what = format!("needs the device, but `{name}` is not available there");
            Err(program.refuse(scope.0, until, &what))
        }
    }
}

/// Whether a variable is set at an offset.
fn is_known(program: &Program<'_>, scope: Scope, name: &str, until: usize) -> bool {
    let (module, function) = scope;
    let text = program.module(module);
    if !program.is_visible(scope, name) {
        return false;
    }
    // In its own function, it has to be set before the offset.
    let own: Vec<_> = text
        .assignments
        .iter()
        .filter(|one| one.function == function && one.class.is_none() && one.target == name)
        .collect();
    let is_parameter = function.is_some_and(|at| {
        text.functions[at].parameters.iter().any(|parameter| parameter.name == name)
    });
    own.is_empty() || is_parameter || own.iter().any(|one| one.value.end <= until)
}

/// Returns the device in a call: `.to(device)`, `.cuda()`, `torch.zeros(…, device=device)`.
fn device_of_call(
    program: &Program<'_>,
    module: usize,
    call: Node<'_>,
) -> Option<DeviceExpression> {
    let text = program.module(module);
    if object_of(text, call, "cuda").is_some() {
        return Some(DeviceExpression::Literal("cuda".to_owned()));
    }
    let arguments = program.arguments(module, call)?;
    let named = arguments.named("device");
    let moved = object_of(text, call, "to").and_then(|_| arguments.positional.first().copied());
    said(program, module, text, named.or(moved)?)
}

fn said(
    program: &Program<'_>,
    module: usize,
    text: &Module,
    node: Node<'_>,
) -> Option<DeviceExpression> {
    match Kind::of(&node) {
        Kind::Identifier | Kind::Attribute => {
            let name = written(text, node);
            // A dtype, or the device of another tensor.
            let is_constant = program.absolute(module, &name).starts_with("torch.");
            let lower = name.to_lowercase();
            if is_constant
                || lower.contains("dtype")
                || lower.ends_with(".device") && lower != "self.device" && lower != "args.device"
            {
                return None;
            }
            if ["device", "dev", "cuda", "gpu", "rank"].iter().any(|word| lower.contains(word)) {
                let is_number = lower.contains("rank") || lower.contains("gpu");
                return Some(match is_number && !lower.contains("dev") {
                    true => DeviceExpression::Literal("cuda".to_owned()),
                    false => DeviceExpression::Variable(name),
                });
            }
            None
        }
        Kind::String => {
            let content = text.text(&node.byte_range());
            let content = content.trim_matches(['"', '\'']);
            let kind = content.split(':').next().unwrap_or(content);
            let known = ["cuda", "cpu", "mps", "xpu"];
            known.contains(&kind).then(|| DeviceExpression::Literal(kind.to_owned()))
        }
        Kind::Integer => Some(DeviceExpression::Literal("cuda".to_owned())),
        Kind::Call => {
            let name = super::syntax::callee(text, node);
            if program.absolute(module, &name) != "torch.device" {
                return None;
            }
            said(
                program,
                module,
                text,
                program.arguments(module, node)?.positional.first().copied()?,
            )
        }
        _ => None,
    }
}

/// Returns an expression for the type of the device in a variable.
fn type_of(program: &Program<'_>, edits: &mut Edits<'_>, module: usize, name: &str) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    let mut is_device = false;
    for text in program.modules() {
        let with_this_name = text
            .assignments
            .iter()
            .filter(|one| one.target == name || one.target.rsplit('.').next() == Some(last));
        for one in with_this_name {
            let value = text.text(&one.value);
            let annotation =
                one.annotation.as_ref().map(|span| text.text(span)).unwrap_or_default();
            is_device |= value.contains("torch.device(")
                || value.contains(" device(")
                || value.starts_with("device(")
                || annotation.ends_with("device")
                || value.ends_with(".device");
        }
        is_device |= text.functions.iter().flat_map(|one| &one.parameters).any(|parameter| {
            parameter.name == last
                && parameter
                    .annotation
                    .as_ref()
                    .is_some_and(|one| text.text(one).ends_with("device"))
        });
    }
    if is_device {
        return format!("{name}.type");
    }
    let torch = imports::torch(edits, module, program.module(module));
    format!("{torch}.device({name}).type")
}
