//! Mixed precision: `torch.autocast` around the forward pass and the loss (Micikevicius et al.,
//! ICLR 2018; PyTorch, "Automatic Mixed Precision").

use super::edits::Edits;
use super::forward::{Forward, backwards, forward};
use super::models::Models;
use super::program::Program;
use super::syntax::{mentions, written};
use super::{Refusal, devices, imports, scaler};
use ridgeline_python::semantics::module::last_name;
use ridgeline_python::syntax::kind::{Kind, TypedNode as _};

/// Losses that are unsafe under autocast on a GPU: PyTorch raises an error.
const UNSAFE: [&str; 2] = ["BCELoss", "binary_cross_entropy"];

/// Uses bfloat16, which has the range of float32 and needs no scaler.
pub(super) fn bfloat16(program: &Program<'_>, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    check_applicable(program, "bfloat16")?;
    autocast(program, edits, "bfloat16", None)?;
    Ok(())
}

/// Uses float16, with a scaler that keeps small gradients from underflowing.
pub(super) fn float16<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    check_applicable(program, "float16")?;
    let scaler = scaler::rewrite(program, edits)?;
    autocast(program, edits, "float16", Some(&scaler))?;
    Ok(())
}

/// Rejects programs that already use lower precision, or that are unsafe under autocast.
fn check_applicable(program: &Program<'_>, wanted: &str) -> Result<(), Refusal> {
    for (module, text) in program.modules().iter().enumerate() {
        let calls = text.calls.iter().filter(|call| {
            matches!(call.name(), "autocast" | "GradScaler")
                && program.called(module, call).starts_with("torch")
        });
        for call in calls {
            let at = program.at(module, call.span.start);
            let dtype = program
                .node(module, call)
                .and_then(|node| program.arguments(module, node)?.named("dtype"))
                .map(|dtype| written(text, dtype));
            let kind = match dtype.as_deref().map(last_name) {
                Some("bfloat16") => "bfloat16",
                // The default on a GPU.
                Some("float16" | "half") | None => "float16",
                Some(_) => "a dtype that is set elsewhere",
            };
            if call.name() == "autocast" && kind == wanted {
                return Err(Refusal::done(format!("{at} already trains in {wanted}")));
            }
            if call.name() == "autocast" {
                let why = format!("{at} already uses autocast in {kind}: change its dtype there");
                return Err(Refusal::NotUnderstood(why));
            }
        }
        let lowered = text.calls.iter().find(|call| {
            let is_method = call.callee.contains('.');
            is_method
                && matches!(call.name(), "half" | "bfloat16")
                && program.is_reached((module, call.function))
        });
        if let Some(call) = lowered {
            let why = "already casts to lower precision by hand";
            return Err(program.refuse(module, call.span.start, why));
        }
    }
    for (module, call) in program.calls() {
        if UNSAFE.contains(&call.name()) {
            let what = format!(
                "uses {}, which is not safe under autocast: use the variant with logits and remove \
                the sigmoid",
                call.name()
            );
            return Err(program.refuse(module, call.span.start, &what));
        }
    }
    Ok(())
}

/// Wraps the forward pass and the loss in autocast. A loss without a name is scaled by `scaler`.
fn autocast(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    dtype: &str,
    scaler: Option<&str>,
) -> Result<(), Refusal> {
    let backwards = backwards(program)?;
    let models = Models::of(program);
    let Forward { runs, inline } = forward(program, &models, &backwards)?;
    for run in &runs {
        let (module, _) = run.scope;
        let header = header(program, edits, run.scope, run.first.start_byte(), dtype)?;
        check_numpy(program, run.scope, run.last.end_byte(), dtype)?;
        let statements = run.first.start_byte()..run.last.end_byte();
        edits.wrap(program, module, statements, &header)?;
    }
    for backward in &inline {
        // `model(x).sum().backward()` becomes two statements.
        let (module, function) = backward.scope;
        let text = program.module(module);
        let scope = function.map_or(text.index.text(), |at| text.text(&text.functions[at].span));
        let name = ["loss", "autocast_loss"].into_iter().find(|name| !mentions(scope, name));
        let statement = backward.statement;
        let is_alone = statement.byte_range() == backward.call.byte_range();
        let Some(name) = name.filter(|_| is_alone) else {
            let why = "computes the loss in the backward() expression: assign the loss to a \
                variable first";
            return Err(program.refuse(module, statement.start_byte(), why));
        };
        let header = header(program, edits, backward.scope, statement.start_byte(), dtype)?;
        let unit = super::layout::Layout::of(text).unit();
        let mut value = backward.loss;
        if value.is(Kind::ParenthesizedExpression) {
            value = value.named_child(0).unwrap_or(value);
        }
        let value = text.text(&value.byte_range());
        edits.before(module, statement, &[header, format!("{unit}{name} = {value}")]);
        let loss = scaler.map_or(name.to_owned(), |scaler| format!("{scaler}.scale({name})"));
        edits.replace(module, backward.loss.byte_range(), loss);
    }
    Ok(())
}

fn header(
    program: &Program<'_>,
    edits: &mut Edits<'_>,
    scope: super::program::Scope,
    at: usize,
    dtype: &str,
) -> Result<String, Refusal> {
    let device = devices::device_type(program, edits, scope, at)?;
    let torch = imports::torch(edits, scope.0, program.module(scope.0));
    Ok(format!("with {torch}.autocast(device_type={device}, dtype={torch}.{dtype}):"))
}

/// Rejects NumPy arrays of model outputs: NumPy does not support bfloat16.
fn check_numpy(
    program: &Program<'_>,
    scope: super::program::Scope,
    after: usize,
    dtype: &str,
) -> Result<(), Refusal> {
    let (module, _) = scope;
    let text = program.module(module);
    let arrays = text.calls.iter().filter(|call| call.name() == "numpy");
    let first = arrays.into_iter().find(|call| {
        let has_float = ["float()", "double()", "argmax", "item()", "max(", "to(torch.float"]
            .iter()
            .any(|word| text.text(&call.span).contains(word));
        call.function == scope.1 && call.span.start > after && !has_float
    });
    match first.filter(|_| dtype == "bfloat16") {
        Some(call) => {
            let why = "creates a NumPy array, which does not support bfloat16: call .float() first";
            Err(program.refuse(module, call.span.start, why))
        }
        None => Ok(()),
    }
}
