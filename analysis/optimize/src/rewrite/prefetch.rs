//! Batches copied to the GPU on a stream of their own while it computes (PyTorch, "CUDA streams").

use tree_sitter::Node;

use super::Refusal;
use super::argument;
use super::edits::Edits;
use super::forward::backwards;
use super::imports;
use super::layout::Layout;
use super::loader::{Loader, loaders};
use super::origins::{Origin, origins};
use super::pinned_memory::names_a_device;
use super::program::{Program, Scope};
use super::syntax::{callee, mentions, object_of, reads, writes, written};
use ridgeline_python::semantics::functions::{Callable, callable};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;
use ridgeline_python::semantics::trace::Place;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};

/// The name of the generator.
const GENERATOR: &str = "prefetched";

/// A training loop over a loader, and what changes in it.
struct BatchLoop<'a> {
    scope: Scope,
    node: Node<'a>,
    /// The expression that is iterated: `loader`, also in `enumerate(loader)`.
    loader: Node<'a>,
    /// The statements that copy the batch, which the generator replaces.
    copies: Vec<Node<'a>>,
    /// The device, as an expression.
    device: String,
}

/// Puts a generator around the loader of each training loop, and pins the loader.
pub(super) fn rewrite<'a>(program: &Program<'a>, edits: &mut Edits<'a>) -> Result<(), Refusal> {
    check_streams(program)?;
    let known = loaders(program)?;
    let mut loops: Vec<BatchLoop<'a>> = Vec::new();
    let mut pinned: Vec<(usize, usize)> = Vec::new();
    for backward in backwards(program)? {
        let scope = backward.scope;
        let Some(node) = innermost_for(backward.call) else {
            let why = "is not in a `for` loop over the DataLoader in the same function";
            return Err(program.refuse(scope.0, backward.call.start_byte(), why));
        };
        if !loops.iter().any(|one| one.node.id() == node.id()) {
            let found = batch_loop(program, scope, node)?;
            for loader in sources(program, &found, &known)? {
                if !pinned.contains(&(loader.module, loader.call.id())) {
                    pinned.push((loader.module, loader.call.id()));
                    pin(program, edits, loader)?;
                }
            }
            loops.push(found);
        }
    }
    loops.sort_by_key(|one| (one.scope.0, one.node.start_byte()));
    let mut defined: Option<usize> = None;
    for one in &loops {
        replace(program, edits, one)?;
        if defined != Some(one.scope.0) {
            define(program, edits, one);
        }
        defined = Some(one.scope.0);
    }
    edits.note("on a GPU, the loader is read one batch ahead, and up to two more batches are in GPU memory");
    Ok(())
}

/// Rejects programs that order streams themselves.
fn check_streams(program: &Program<'_>) -> Result<(), Refusal> {
    for (module, call) in program.calls() {
        let at = call.span.start;
        match call.name() {
            "record_stream" | "wait_stream" => {
                let at = program.at(module, at);
                return Err(Refusal::done(format!(
                    "{at} already waits for copies on another stream"
                )));
            }
            "CUDAGraph" | "make_graphed_callables" => {
                let why = "captures a CUDA graph, which reads its input at a fixed address";
                return Err(program.refuse(module, at, why));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the innermost loop around a node in its function if it is a `for` loop.
fn innermost_for(node: Node<'_>) -> Option<Node<'_>> {
    let mut at = node.parent();
    while let Some(node) = at {
        match Kind::of(&node) {
            Kind::ForStatement => return Some(node),
            Kind::WhileStatement | Kind::FunctionDefinition | Kind::Lambda => return None,
            _ => at = node.parent(),
        }
    }
    None
}

/// Reads a loop of the form `for x, y in loader:` with `x, y = x.to(device), y.to(device)` in it.
fn batch_loop<'a>(
    program: &Program<'a>,
    scope: Scope,
    node: Node<'a>,
) -> Result<BatchLoop<'a>, Refusal> {
    let (module, _) = scope;
    let text = program.module(module);
    let refuse = |at: Node<'_>, what: &str| Err(program.refuse(module, at.start_byte(), what));
    let parts = (node.field(Field::Left), node.field(Field::Right), node.field(Field::Body));
    let (Some(mut target), Some(mut loader), Some(body)) = parts else {
        return refuse(node, "is not a complete loop");
    };
    if node.child(0).is_some_and(|first| first.kind() == "async") {
        return refuse(node, "is an asynchronous loop");
    }
    if loader.is(Kind::Call) && callee(text, loader) == "enumerate" {
        let first =
            program.arguments(module, loader).and_then(|one| one.positional.first().copied());
        let inner = named_children(target).get(1).copied();
        let (Some(first), Some(inner)) = (first, inner) else {
            return refuse(node, "takes the result of enumerate as one value");
        };
        (loader, target) = (first, inner);
    }
    if !matches!(Kind::of(&loader), Kind::Identifier | Kind::Attribute) {
        let what = written(text, loader);
        return refuse(node, &format!("iterates over `{what}`, which is not a plain DataLoader"));
    }
    let values = if is_sequence(target) { named_children(target) } else { Vec::new() };
    if values.is_empty() || !values.iter().all(|value| value.is(Kind::Identifier)) {
        return refuse(node, "does not take the batch apart into variables, such as `x, y`");
    }
    let names: Vec<String> = values.iter().map(|value| written(text, *value)).collect();
    let (copies, device) = copies(program, module, body, &names)?;
    if object_of(text, device, "cuda").is_some() {
        let device = Layout::of(text).quoted("cuda");
        return Ok(BatchLoop { scope, node, loader, copies, device });
    }
    let changed = writes(text, node);
    if let Some(name) = reads(text, device).into_iter().find(|name| changed.contains(name)) {
        return refuse(device, &format!("copies to a device that the loop assigns (`{name}`)"));
    }
    let device = text.text(&device.byte_range()).to_owned();
    Ok(BatchLoop { scope, node, loader, copies, device })
}

fn is_sequence(node: Node<'_>) -> bool {
    matches!(
        Kind::of(&node),
        Kind::PatternList
            | Kind::TuplePattern
            | Kind::ListPattern
            | Kind::ExpressionList
            | Kind::Tuple
    )
}

/// Returns the statements of a loop that copy all variables of the batch, each before its first use, and the
/// expression of the device: an argument, or a call of `cuda()`.
fn copies<'a>(
    program: &Program<'a>,
    module: usize,
    body: Node<'a>,
    names: &[String],
) -> Result<(Vec<Node<'a>>, Node<'a>), Refusal> {
    let text = program.module(module);
    let refuse = |at: Node<'_>, what: &str| Err(program.refuse(module, at.start_byte(), what));
    let mut waiting: Vec<&String> = names.iter().collect();
    let mut found: Vec<Node<'a>> = Vec::new();
    let mut device: Option<Node<'a>> = None;
    for statement in named_children(body).into_iter().filter(|one| !one.is(Kind::Comment)) {
        if waiting.is_empty() {
            break;
        }
        let copied = copied_by(program, module, statement).unwrap_or_default();
        let is_copy = !copied.is_empty() && copied.iter().all(|(name, _)| waiting.contains(&name));
        if !is_copy {
            let source = text.text(&statement.byte_range());
            if let Some(name) = waiting.iter().find(|name| mentions(source, name)) {
                let what = format!(
                    "uses `{name}` before a statement `{name} = {name}.to(device)` copies it"
                );
                return refuse(statement, &what);
            }
            continue;
        }
        let layout = Layout::of(text);
        if layout.indentation(statement.start_byte()).is_none()
            || !layout.ends_line(statement.end_byte())
        {
            return refuse(
                statement,
                "has several statements on one line: put each on its own line",
            );
        }
        for (name, to) in copied {
            waiting.retain(|one| **one != name);
            let same = |one: Node<'_>| target_of(text, one) == target_of(text, to);
            if device.is_some_and(|device| !same(device)) {
                return refuse(statement, "copies a part of the batch to another device");
            }
            device.get_or_insert(to);
        }
        found.push(statement);
    }
    if let Some(name) = waiting.first() {
        return refuse(body, &format!("does not copy `{name}` to the GPU in the loop"));
    }
    match device {
        Some(device) => Ok((found, device)),
        None => refuse(body, "does not copy the batch to the GPU in the loop"),
    }
}

/// Returns the device of a copy as text.
fn target_of(text: &Module, device: Node<'_>) -> String {
    match object_of(text, device, "cuda") {
        Some(_) => "cuda".to_owned(),
        None => written(text, device).trim_matches(['"', '\'']).to_owned(),
    }
}

/// Returns the variables that a statement copies and does nothing else with, each with its device.
fn copied_by<'a>(
    program: &Program<'a>,
    module: usize,
    statement: Node<'a>,
) -> Option<Vec<(String, Node<'a>)>> {
    let text = program.module(module);
    let assignment =
        statement.named_child(0).filter(|_| statement.is(Kind::ExpressionStatement))?;
    let assignment = assignment.is(Kind::Assignment).then_some(assignment)?;
    let (left, right) = (assignment.field(Field::Left)?, assignment.field(Field::Right)?);
    let all = |node: Node<'a>| if is_sequence(node) { named_children(node) } else { vec![node] };
    let (targets, values) = (all(left), all(right));
    if targets.len() != values.len() || is_sequence(left) != is_sequence(right) {
        return None;
    }
    let mut found = Vec::new();
    for (target, value) in targets.into_iter().zip(values) {
        let name = written(text, target);
        found.push((name.clone(), device_of(program, module, value, &name)?));
    }
    Some(found)
}

/// Returns the device if a value is `name.to(device)`, or the value if it is `name.cuda()`.
fn device_of<'a>(
    program: &Program<'a>,
    module: usize,
    value: Node<'a>,
    name: &str,
) -> Option<Node<'a>> {
    let text = program.module(module);
    let is_own = |object: Node<'_>| object.is(Kind::Identifier) && written(text, object) == name;
    let arguments = program.arguments(module, value.is(Kind::Call).then_some(value)?)?;
    let only_copies = arguments.by_name.iter().all(|(name, _)| name == "non_blocking")
        && !arguments.has_star
        && arguments.splats.is_empty();
    if !only_copies {
        return None;
    }
    if object_of(text, value, "cuda").is_some_and(is_own) {
        return arguments.positional.is_empty().then_some(value);
    }
    object_of(text, value, "to").filter(|object| is_own(*object))?;
    let [device] = arguments.positional[..] else { return None };
    let is_plain = matches!(Kind::of(&device), Kind::Identifier | Kind::Attribute | Kind::String);
    (is_plain && names_a_device(&written(text, device))).then_some(device)
}

/// Returns the loaders that a loop iterates over.
fn sources<'a, 'l>(
    program: &Program<'a>,
    one: &BatchLoop<'a>,
    known: &'l [Loader<'a>],
) -> Result<Vec<&'l Loader<'a>>, Refusal> {
    let (module, _) = one.scope;
    let name = written(program.module(module), one.loader);
    let at = one.loader.start_byte();
    let other = || {
        let what = format!("iterates over `{name}`, which is not known to be a DataLoader");
        program.refuse(module, at, &what)
    };
    let found = origins(program, one.scope, &name, at).map_err(|_| other())?;
    found.iter().map(|origin| made_by(program, origin, known).ok_or_else(other)).collect()
}

/// Returns the loader that an expression creates, itself or in a function that it calls.
fn made_by<'a, 'l>(
    program: &Program<'a>,
    origin: &Origin<'a>,
    known: &'l [Loader<'a>],
) -> Option<&'l Loader<'a>> {
    let (Origin::Assigned { module, value, .. } | Origin::Expression { module, value }) = origin;
    let is_itself = |one: &&Loader<'_>| one.module == *module && one.call.id() == value.id();
    if let Some(one) = known.iter().find(is_itself) {
        return Some(one);
    }
    let name = callee(program.module(*module), *value);
    let place = Place { module: *module, span: value.byte_range() };
    let Some(Callable::Function(inner, at)) = callable(&program.tracer, &place, &name) else {
        return None;
    };
    let function = program.module(inner).functions.lookup(at)?;
    let [returned] = &function.returns[..] else { return None };
    known.iter().find(|one| one.module == inner && one.call.byte_range() == *returned)
}

/// Sets `pin_memory=True`, because a copy from pageable memory waits for the GPU.
fn pin<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    loader: &Loader<'a>,
) -> Result<(), Refusal> {
    let (module, call) = (loader.module, loader.call);
    let Some(arguments) = program.arguments(module, call) else { return Ok(()) };
    if arguments.has_star || !arguments.splats.is_empty() {
        let why = "passes starred arguments to the DataLoader, which may already set pin_memory";
        return Err(program.refuse(module, call.start_byte(), why));
    }
    let given = arguments.named("pin_memory");
    argument::set(program, edits, (module, call), ("pin_memory", "True"), given)?;
    Ok(())
}

/// Iterates over the generator, and removes the copies in the loop.
fn replace<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    one: &BatchLoop<'a>,
) -> Result<(), Refusal> {
    let (module, _) = one.scope;
    let text = program.module(module);
    if mentions(text.index.text(), GENERATOR) {
        let what =
            format!("would be in a file that uses the name `{GENERATOR}` for something else");
        return Err(program.refuse(module, one.node.start_byte(), &what));
    }
    let loader = text.text(&one.loader.byte_range());
    let iterable = format!("{GENERATOR}({loader}, {})", one.device);
    edits.replace(module, one.loader.byte_range(), iterable);
    for copy in &one.copies {
        let lines = text.index.lines();
        let is_first = copy.prev_named_sibling().is_none();
        let mut next = text.line(copy.end_byte()) + 1;
        // No empty line at the start of the loop.
        if is_first && lines.trimmed(text.index.text(), next).is_empty() {
            next += 1;
        }
        let start = lines.start_of(text.line(copy.start_byte()));
        edits.replace(module, start..lines.start_of(next), "");
    }
    Ok(())
}

/// Defines the generator before the statement of the file that contains the loop.
fn define<'a>(program: &Program<'a>, edits: &mut Edits<'a>, one: &BatchLoop<'a>) {
    let (module, _) = one.scope;
    let text = program.module(module);
    let mut first = one.node;
    while let Some(parent) = first.parent().filter(|parent| !parent.is(Kind::Module)) {
        first = parent;
    }
    // Comments above belong to the statement.
    while let Some(above) = first.prev_named_sibling().filter(|above| {
        above.is(Kind::Comment)
            && text.line(above.end_byte()) + 1 == text.line(first.start_byte())
            && text.part_at(above.start_byte()) == text.part_at(first.start_byte())
            && Layout::of(text).indentation(above.start_byte()).is_some()
    }) {
        first = above;
    }
    let torch = imports::torch(edits, module, text);
    let itertools = imports::standard(edits, module, text, "itertools");
    let layout = Layout::of(text);
    let cuda = layout.quoted("cuda");
    let lines = [
        format!("def {GENERATOR}(loader, device):"),
        "\t\"\"\"Yields batches on the device. A GPU copies the next one while it computes.\"\"\""
            .to_owned(),
        format!("\tdevice = {torch}.device(device)"),
        format!("\tif device.type != {cuda}:"),
        "\t\tfor batch in loader:".to_owned(),
        "\t\t\tyield [value.to(device) for value in batch]".to_owned(),
        "\t\treturn".to_owned(),
        format!("\tstream = {torch}.cuda.Stream(device)"),
        "\tupcoming = None".to_owned(),
        format!("\tfor batch in {itertools}.chain(loader, [None]):"),
        "\t\tcopied, upcoming = upcoming, None".to_owned(),
        "\t\tif copied is not None:".to_owned(),
        format!("\t\t\tcurrent = {torch}.cuda.current_stream(device)"),
        "\t\t\tcurrent.wait_stream(stream)".to_owned(),
        "\t\t\tfor value in copied:".to_owned(),
        "\t\t\t\tvalue.record_stream(current)".to_owned(),
        "\t\tif batch is not None:".to_owned(),
        format!("\t\t\twith {torch}.cuda.stream(stream):"),
        "\t\t\t\tupcoming = [value.to(device, non_blocking=True) for value in batch]".to_owned(),
        "\t\tif copied is not None:".to_owned(),
        "\t\t\tyield copied".to_owned(),
        String::new(),
        String::new(),
    ];
    let unit = layout.unit();
    let lines = lines.map(|line| line.replace('\t', &unit) + layout.line_end);
    let start = text.index.lines().start_of(text.line(first.start_byte()));
    let part = text.part_at(start).map_or(0, |part| part.span.start);
    let before = text.index.text().get(part..start).unwrap_or_default();
    let code = before.trim_end_matches(['\n', '\r', ' ', '\t']);
    let empty = before[code.len()..].matches('\n').count().saturating_sub(1);
    let gap = if code.is_empty() { 0 } else { 2_usize.saturating_sub(empty) };
    edits.insert(module, start, layout.line_end.repeat(gap) + &lines.concat());
}
