//! Arguments of calls, and the calls of a function.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::gather::named_children;
use super::module::{Call, last_name};
use super::trace::{Place, Step, Tracer};

/// The arguments of a call, as written.
pub struct Arguments<'t> {
    pub positional: Vec<Node<'t>>,
    pub by_name: Vec<(String, Node<'t>)>,
    /// The expressions after `**`.
    pub splats: Vec<Node<'t>>,
    /// Whether there is a `*args` among the positional arguments: the position of those after it is
    /// unknown.
    pub has_star: bool,
}

impl<'t> Arguments<'t> {
    /// Returns `None` if there is no call at this place.
    pub fn of(tracer: &Tracer<'t>, call: &Place) -> Option<Arguments<'t>> {
        let module = &tracer.modules[call.module];
        let node = module.node(&call.span).filter(|node| node.is(Kind::Call))?;
        let list = node.field(Field::Arguments)?;
        let mut arguments = Arguments {
            positional: Vec::new(),
            by_name: Vec::new(),
            splats: Vec::new(),
            has_star: false,
        };
        if !list.is(Kind::ArgumentList) {
            arguments.positional.push(list);
            return Some(arguments);
        }
        for child in named_children(list) {
            match Kind::of(&child) {
                Kind::KeywordArgument => {
                    if let (Some(name), Some(value)) =
                        (child.field(Field::Name), child.field(Field::Value))
                    {
                        let name = module.text(&name.byte_range()).to_owned();
                        arguments.by_name.push((name, value));
                    }
                }
                Kind::DictionarySplat => arguments.splats.extend(named_children(child).first()),
                Kind::ListSplat => arguments.has_star = true,
                _ if !arguments.has_star => arguments.positional.push(child),
                _ => {}
            }
        }
        Some(arguments)
    }

    pub fn named(&self, name: &str) -> Option<Node<'t>> {
        self.by_name.iter().find(|(one, _)| one == name).map(|(_, value)| *value)
    }
}

/// A call of a function.
#[derive(Clone, Debug)]
pub struct CallSite {
    pub place: Place,
    /// `Some` if the function is passed to a launcher, as in `spawn(main, args=(a, b))`: the
    /// elements of the tuple are the arguments from the parameter with this index on.
    pub handed: Option<usize>,
}

/// The calls of a function with this name, in the modules that can refer to it.
pub fn calls_of(tracer: &Tracer<'_>, module: usize, name: &str) -> Vec<CallSite> {
    let mut sites = Vec::new();
    for (at, text) in tracer.modules.iter().enumerate() {
        let knows = at == module
            || text.names.iter().any(|(_, from, there)| {
                let separator = if from.ends_with('.') { "" } else { "." };
                let inner = format!("{from}{separator}{there}");
                [tracer.files.imported(&text.path, from), tracer.files.imported(&text.path, &inner)]
                    .contains(&Some(module))
            });
        if !knows {
            continue;
        }
        let alias = text.names.iter().find(|(_, _, there)| there == name);
        let alias = alias.map_or(name, |(here, ..)| here.as_str());
        for call in text.calls.iter().take(20_000) {
            let place = Place { module: at, span: call.span.clone() };
            if last_name(&call.callee) == alias || last_name(&call.callee) == name {
                if may_be_reached(tracer, at, call) {
                    sites.push(CallSite { place, handed: None });
                }
            } else if let Some(handed) = passed_to_launcher(tracer, &place, call, alias) {
                sites.push(CallSite { place, handed: Some(handed) });
            }
        }
    }
    sites
}

/// Whether a call may be reached: no condition around it is known to be false.
fn may_be_reached(tracer: &Tracer<'_>, module: usize, call: &Call) -> bool {
    call.branches.iter().all(|branch| tracer.branch_holds(module, branch) != Some(false))
}

/// `spawn(name, args=(…))`, `Process(target=name, args=(…))`, `launch(name, n, args=(…))`: the
/// index of the parameter that the first of `args` is for.
fn passed_to_launcher(
    tracer: &Tracer<'_>,
    place: &Place,
    call: &Call,
    name: &str,
) -> Option<usize> {
    let text = &tracer.modules[place.module];
    // Most calls have no `args`, and parsing all of them would take long.
    if !text.text(&call.span).contains("args") {
        return None;
    }
    let arguments = Arguments::of(tracer, place)?;
    arguments.named("args")?;
    let is_it = |node: Node<'_>| text.text(&node.byte_range()) == name;
    let given = arguments.positional.first().copied().into_iter().chain(arguments.named("target"));
    let first = usize::from(call.name() == "spawn" || call.name() == "start_processes");
    given.into_iter().any(is_it).then_some(first)
}

/// Traces what a call passes for a parameter. Returns `None` if the call omits it.
pub fn argument(
    tracer: &Tracer<'_>,
    site: &CallSite,
    parameter: &str,
    position: Option<usize>,
    path: &[Step],
) -> Option<super::trace::PossibleValues> {
    let arguments = Arguments::of(tracer, &site.place)?;
    if let Some(first) = site.handed {
        let tuple = arguments.named("args")?;
        let at = position?.checked_sub(first)?;
        return Some(tracer.member(&site.place, tuple, Step::Element(at), path));
    }
    if let Some(value) = arguments.named(parameter) {
        return Some(tracer.part(&site.place, value, path));
    }
    if let Some(value) = position.and_then(|at| arguments.positional.get(at)) {
        return Some(tracer.part(&site.place, *value, path));
    }
    for splat in &arguments.splats {
        let found = tracer.member(&site.place, *splat, Step::Key(parameter.to_owned()), path);
        if !found.is_empty() {
            return Some(found);
        }
    }
    None
}
