//! Walks over a file once to fill a [`Module`], without recursion: a file may be nested deeply.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::arena::Arena;
use super::module::{Assignment, Branch, Call, Class, Function, Loop, Module, Parameter, Span};

/// The maximum depth of branches; deeper ones are not distinguished.
const MAX_BRANCH_DEPTH: usize = 16;
/// The maximum length of a target or a callee, in bytes.
const MAX_NAME_BYTES: usize = 120;

pub(super) fn gather(module: &mut Module) {
    let index = module.index.clone();
    let Some(tree) = index.tree() else { return };
    let mut cursor = tree.walk();
    let mut branches: Vec<(Span, Branch)> = Vec::new();
    loop {
        let node = cursor.node();
        while branches.last().is_some_and(|(span, _)| span.end <= node.start_byte()) {
            branches.pop();
        }
        visit(module, node, &mut branches);
        if !module.is_full() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

fn visit(module: &mut Module, node: Node<'_>, branches: &mut Vec<(Span, Branch)>) {
    match Kind::of(&node) {
        Kind::FunctionDefinition => function(module, node),
        Kind::ClassDefinition => {
            let name = field_text(module, node, "name");
            let bases = node.field(Field::Superclasses).map_or(Vec::new(), |bases| {
                named_children(bases).iter().map(Node::byte_range).collect()
            });
            module.classes.push(Class { name, span: node.byte_range(), bases });
        }
        Kind::IfStatement | Kind::ElifClause => {
            let Some(condition) = node.field(Field::Condition) else { return };
            let branch = |holds| Branch { condition: condition.byte_range(), holds };
            let mut walk = node.walk();
            let others: Vec<Node<'_>> =
                node.children_by_field_name("alternative", &mut walk).collect();
            // All alternatives form one byte range. The walk visits the parts in order, so the last
            // part is pushed first.
            let otherwise = others.first().zip(others.last());
            let otherwise = otherwise.map(|(first, last)| first.start_byte()..last.end_byte());
            let then = node.field(Field::Consequence).map(|part| part.byte_range());
            for (part, holds) in [(otherwise, false), (then, true)] {
                if let Some(part) = part.filter(|_| branches.len() < MAX_BRANCH_DEPTH) {
                    branches.push((part, branch(holds)));
                }
            }
        }
        Kind::Assignment => {
            let value = node.field(Field::Right);
            let annotation = node.field(Field::Type).map(|one| one.byte_range());
            if let (Some(target), Some(value)) = (node.field(Field::Left), value) {
                assign(module, target, value, annotation, &current(branches, node));
            } else if let (Some(target), Some(_)) = (node.field(Field::Left), &annotation) {
                // `batch_size: int`, without a value.
                let at = target.byte_range();
                let branches_here = current(branches, node);
                push(module, target, at.end..at.end, None, annotation, &branches_here);
            }
        }
        Kind::AugmentedAssignment => {
            if let (Some(target), Some(value)) = (node.field(Field::Left), node.field(Field::Right))
            {
                let branches_here = current(branches, node);
                push(module, target, value.byte_range(), None, None, &branches_here);
                if let Some(last) = module.assignments.last_mut() {
                    last.is_augmented = true;
                }
            }
        }
        Kind::NamedExpression => {
            if let (Some(target), Some(value)) = (node.field(Field::Name), node.field(Field::Value))
            {
                let branches_here = current(branches, node);
                push(module, target, value.byte_range(), None, None, &branches_here);
            }
        }
        Kind::AsPattern => {
            let alias = node.field(Field::Alias).and_then(|alias| alias.named_child(0));
            if let (Some(value), Some(target)) = (node.named_child(0), alias) {
                let branches_here = current(branches, node);
                push(module, target, value.byte_range(), None, None, &branches_here);
            }
        }
        Kind::Call => {
            let callee = node.field(Field::Function).map(|callee| callee.byte_range());
            let callee = callee.filter(|callee| callee.len() <= MAX_NAME_BYTES);
            if let Some(callee) = callee {
                let callee: String =
                    module.text(&callee).chars().filter(|c| !c.is_whitespace()).collect();
                let function = module.function_at(node.start_byte());
                let branches = current(branches, node);
                module.calls.push(Call { span: node.byte_range(), callee, function, branches });
            }
        }
        Kind::ForStatement | Kind::WhileStatement => {
            let iterable =
                (node.is(Kind::ForStatement)).then(|| node.field(Field::Right)).flatten();
            let function = module.function_at(node.start_byte());
            module.loops.push(Loop {
                span: node.byte_range(),
                iterable: iterable.map(|iterable| iterable.byte_range()),
                function,
            });
        }
        Kind::ReturnStatement => {
            let at = module.function_at(node.start_byte());
            if let (Some(at), Some(value)) = (at, node.named_child(0)) {
                module.functions[at].returns.push(value.byte_range());
            }
        }
        Kind::Yield => {
            if let Some(at) = module.function_at(node.start_byte()) {
                module.functions[at].yields = true;
            }
        }
        Kind::ImportStatement | Kind::ImportFromStatement => import(module, node),
        _ => {}
    }
}

/// The branches whose byte range contains a node; ranges that come later do not count yet.
fn current(branches: &[(Span, Branch)], node: Node<'_>) -> Vec<Branch> {
    let inside = branches.iter().filter(|(span, _)| span.contains(&node.start_byte()));
    inside.map(|(_, branch)| branch.clone()).collect()
}

fn function(module: &mut Module, node: Node<'_>) {
    let outer = module.function_at(node.start_byte());
    let class = module
        .class_at(node.start_byte())
        // A function nested in a method does not belong to the class.
        .filter(|class| {
            outer.is_none_or(|outer| {
                module.functions[outer].span.start < module.classes[*class].span.start
            })
        });
    let mut by_name = false;
    let mut parameters = Arena::default();
    let children = node.field(Field::Parameters).map_or(Vec::new(), named_children);
    for child in children.into_iter().take(256) {
        let (name, is_rest) = match Kind::of(&child) {
            Kind::Identifier => (Some(child), false),
            Kind::DefaultParameter | Kind::TypedDefaultParameter => {
                (child.field(Field::Name), false)
            }
            Kind::TypedParameter => {
                let inner = child.named_child(0);
                let rest = inner.is_some_and(|inner| inner.kind().ends_with("splat_pattern"));
                (inner, rest)
            }
            Kind::ListSplatPattern | Kind::DictionarySplatPattern => (Some(child), true),
            Kind::KeywordSeparator => {
                by_name = true;
                continue;
            }
            _ => continue,
        };
        let Some(name) = name else { continue };
        let range = |field: Field| child.field(field).map(|part| part.byte_range());
        let text = module.text(&name.byte_range()).trim_start_matches('*').to_owned();
        parameters.push(Parameter {
            name: text,
            default: range(Field::Value),
            annotation: range(Field::Type),
            is_rest,
            by_name,
        });
        by_name |= is_rest;
    }
    let decorators = node.parent().filter(|parent| parent.is(Kind::DecoratedDefinition));
    let decorators = decorators.map_or(Vec::new(), |parent| {
        let children = named_children(parent).into_iter();
        let only = children.filter(|child| child.is(Kind::Decorator));
        only.filter_map(|child| child.named_child(0)).map(|child| child.byte_range()).collect()
    });
    let body = node.field(Field::Body).map_or(node.byte_range(), |body| body.byte_range());
    module.functions.push(Function {
        name: field_text(module, node, "name"),
        span: node.byte_range(),
        body,
        class,
        outer,
        parameters,
        decorators,
        returns: Vec::new(),
        yields: false,
    });
}

fn assign(
    module: &mut Module,
    target: Node<'_>,
    value: Node<'_>,
    annotation: Option<Span>,
    branches_here: &[Branch],
) {
    // `a = b = 32`: the value is an assignment, which the walk visits separately.
    let mut last = value;
    while last.is(Kind::Assignment)
        && let Some(right) = last.field(Field::Right)
    {
        last = right;
    }
    let value = last;
    if !matches!(Kind::of(&target), Kind::PatternList | Kind::TuplePattern | Kind::ListPattern) {
        return push(module, target, value.byte_range(), None, annotation, branches_here);
    }
    let targets = named_children(target);
    let values = match Kind::of(&value) {
        Kind::ExpressionList | Kind::Tuple | Kind::List => named_children(value),
        _ => Vec::new(),
    };
    for (at, target) in targets.iter().enumerate().take(64) {
        match values.get(at) {
            Some(value) if values.len() == targets.len() => {
                push(module, *target, value.byte_range(), None, None, branches_here);
            }
            _ => push(module, *target, value.byte_range(), Some(at), None, branches_here),
        }
    }
}

fn push(
    module: &mut Module,
    target: Node<'_>,
    value: Span,
    element: Option<usize>,
    annotation: Option<Span>,
    branches_here: &[Branch],
) {
    let at = target.byte_range();
    if at.len() > MAX_NAME_BYTES {
        return;
    }
    let written: String =
        module.text(&at).chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let function = module.function_at(at.start);
    let class = module.class_at(at.start).filter(|class| {
        function.is_none_or(|function| {
            module.functions[function].span.start < module.classes[*class].span.start
        })
    });
    module.assignments.push(Assignment {
        target: written.replace('\'', "\""),
        at,
        value,
        element,
        is_augmented: false,
        annotation,
        function: if class.is_some() { None } else { function },
        class,
        branches: branches_here.to_vec(),
    });
}

fn import(module: &mut Module, node: Node<'_>) {
    let from = node.field(Field::ModuleName).map(|from| compact(module, from));
    let mut walk = node.walk();
    let children: Vec<Node<'_>> =
        node.children_by_field_name("name", &mut walk).take(512).collect();
    for child in children {
        let name = child.field(Field::Name).unwrap_or(child);
        let name = compact(module, name);
        let alias = child.field(Field::Alias).map(|alias| compact(module, alias));
        match &from {
            Some(from) => {
                let here = alias.unwrap_or_else(|| name.clone());
                module.names.push((here, from.clone(), name));
            }
            None => {
                // `import a.b` binds `a`, but uses are written `a.b`.
                module.names.push((alias.unwrap_or_else(|| name.clone()), name, String::new()));
            }
        }
    }
    let has_star = named_children(node).iter().any(|child| child.is(Kind::WildcardImport));
    if let (true, Some(from)) = (has_star, from) {
        module.names.push(("*".to_owned(), from, "*".to_owned()));
    }
}

fn compact(module: &Module, node: Node<'_>) -> String {
    module.text(&node.byte_range()).chars().filter(|c| !c.is_whitespace()).collect()
}

fn field_text(module: &Module, node: Node<'_>, field: &str) -> String {
    let part = node.child_by_field_name(field);
    part.map(|part| module.text(&part.byte_range()).to_owned()).unwrap_or_default()
}

/// The named children except comments, at most a few thousand.
pub fn named_children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut walk = node.walk();
    let children = node.named_children(&mut walk).take(4096);
    children.filter(|child| !child.is(Kind::Comment)).collect()
}
