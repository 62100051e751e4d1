//! `attention-written-out`: attention as separate matmul, softmax and matmul, which stores the
//! scores of all pairs in memory (Dao et al., "FlashAttention", NeurIPS 2022;
//! `scaled_dot_product_attention`). `nn.MultiheadAttention` also computes it that way if it has to
//! return the weights.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::line_sums::{Line, work_of_line};
use crate::rule::Rule;
use crate::source_queries::place;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::Operator;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::fixes::attention_weights::unused_weights;
use ridgeline_optimize::rewrite::fused_attention::einsum::Equation;
use ridgeline_optimize::rewrite::fused_attention::softmax::Softmax;
use ridgeline_optimize::rewrite::fused_attention::{has_fused_call, is_replaceable};
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{callee, mentions, statement_of, within, written};
use ridgeline_profile::Phase;
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Call, Module, last_name};

/// The minimum share of the iteration time or of peak memory.
const MIN_SHARE: f64 = 0.02;
/// Matrix multiplications, by the last part of their names; `@` also is one, and `einsum` may be.
const MATMULS: [&str; 3] = ["matmul", "bmm", "baddbmm"];
/// Those that only take three dimensions.
const MATMULS_3D: [&str; 2] = ["bmm", "baddbmm"];
/// Operations on scores and weights that the fused kernel also supports.
const SUPPORTED: [&str; 14] = [
    "masked_fill",
    "masked_fill_",
    "where",
    "div",
    "div_",
    "mul",
    "mul_",
    "add",
    "to",
    "type_as",
    "float",
    "half",
    "dropout",
    "view",
];
/// The maximum number of names followed from one to the next.
const MAX_DEPTH: u32 = 12;

pub(super) struct AttentionWrittenOut;

impl Rule for AttentionWrittenOut {
    fn name(&self) -> &'static str {
        "attention-written-out"
    }

    fn title(&self) -> &'static str {
        "Unfused attention"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).unwrap_or_default()
    }

    fn unmeasured(&self, program: &Program<'_>) -> Vec<Finding> {
        let sites = sites(program).into_iter();
        // Next to a call of the fused operator this is the fallback for inputs that it does not
        // support: only a run shows which one is used.
        let is_fallback = |site: &Site| {
            let text = program.module(site.module);
            has_fused_call(program, site.module, text.index.lines().start_of(site.line))
        };
        let sites = sites.filter(|site| !is_fallback(site));
        sites
            .map(|site| finding(place(program, site.module, site.line), site.can_be_replaced))
            .collect()
    }
}

fn finding(at: SourceLine, can_be_replaced: bool) -> Finding {
    Finding {
        rule: "attention-written-out",
        at,
        message: "Unfused attention materializes the score matrix".to_owned(),
        why: "`torch.nn.functional.scaled_dot_product_attention(q, k, v, …)` computes the same \
            result, with mask, scale and dropout, in one fused kernel that does not store the \
            scores."
            .to_owned(),
        fix: can_be_replaced.then_some(EditKind::FusedAttention),
        ..Finding::default()
    }
}

/// `nn.MultiheadAttention` returns weights that nothing uses.
fn unused_weights_finding(at: SourceLine) -> Finding {
    Finding {
        message: "Attention weights are computed and not used".to_owned(),
        why: "`nn.MultiheadAttention` returns its weights by default, and so cannot use the fused \
            kernel, which does not store them. With `need_weights=False` it does; same results up \
            to rounding."
            .to_owned(),
        fix: Some(EditKind::WithoutAttentionWeights),
        ..finding(at, false)
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Vec<Finding>> {
    let layers: Vec<Line> = unused_weights(evidence.program)
        .into_iter()
        .filter_map(|(module, call)| {
            let line = evidence.program.module(module).line(call.start_byte());
            evidence.recorded_line(module, line)
        })
        .collect();
    let written_out: Vec<(Line, bool)> = sites(evidence.program)
        .into_iter()
        .filter_map(|site| {
            let line = evidence.recorded_line(site.module, site.line)?;
            Some((line, site.can_be_replaced))
        })
        .collect();
    let can_be_replaced =
        |line: Line| written_out.iter().any(|(written_out, can)| *written_out == line && *can);
    // Only a softmax over three or more dimensions on such a line can be attention.
    let sites: Vec<_> = written_out
        .iter()
        .map(|(line, _)| *line)
        .chain(layers.iter().copied())
        .filter_map(|line| {
            let softmax = work_of_line(evidence, line).filter(|(key, _)| {
                let operator = evidence.operator(key);
                let family = operator.and_then(work).map(|work| work.family);
                let dimensions = operator.and_then(|it| it.shape(0)).map_or(0, <[u64]>::len);
                family == Some(Family::Softmax) && dimensions >= 3
            });
            let time_ns: f64 = softmax.map(|(_, work)| work.time_ns()).sum();
            (time_ns > 0.0).then_some((line, time_ns))
        })
        .collect();
    let whole: f64 = sites.iter().map(|(_, time_ns)| time_ns).sum();
    if sites.is_empty() {
        return None;
    }
    let mut saved = evidence.what_if("fused-attention")?;
    let mut probed = evidence.probes.stand_ins.iter().map(|(operator, _)| operator);
    let is_probed = probed.any(|operator| operator.name.contains("scaled_dot_product"));
    if !evidence.on_gpu() && !is_probed {
        // The cost model knows little about fused attention on a CPU. Assume that its matrix
        // multiplications take as long as before, and that the other operators on the scores are
        // gone.
        saved.time_ns = other_score_ops_ns(evidence, &sites);
    }
    let peak = evidence.profile().memory.peak_bytes as f64;
    let found = sites.into_iter().filter_map(|((file, line), time_ns)| {
        let share = time_ns / whole;
        let cost = Cost {
            time_ns: share * saved.time_ns.max(0.0),
            bytes: share * saved.bytes.unwrap_or(0.0).max(0.0),
            is_predicted: true,
        };
        let is_large = peak > 0.0 && cost.bytes >= MIN_SHARE * peak;
        let make = || match layers.contains(&(file, line)) {
            true => unused_weights_finding(evidence.place(file, line)),
            false => finding(evidence.place(file, line), can_be_replaced((file, line))),
        };
        (evidence.share(cost.time_ns) >= MIN_SHARE || is_large)
            .then(|| Finding { cost: Some(cost), ..make() })
    });
    Some(found.collect())
}

/// The time of the other operators (neither matrix multiplications nor views) on tensors as large
/// as the scores, in the forward and the backward pass, in nanoseconds.
fn other_score_ops_ns(evidence: &Evidence<'_>, sites: &[(Line, f64)]) -> f64 {
    let site_work = sites.iter().flat_map(|(line, _)| work_of_line(evidence, *line));
    let softmaxes = site_work.filter_map(|(key, _)| {
        let operator = evidence.operator(key)?;
        let is_softmax = work(operator)?.family == Family::Softmax;
        is_softmax.then(|| operator.shape(0)).flatten()
    });
    let scores: Vec<&[u64]> = softmaxes.collect();
    let goes_over = |operator: &Operator| {
        let family = work(operator).map(|work| work.family);
        !matches!(family, None | Some(Family::Gemm | Family::View))
            && operator.input_tensors().any(|tensor| scores.contains(&tensor.shape.as_slice()))
    };
    let all = evidence.work.iter().filter(|(key, _)| {
        matches!(key.2, Phase::Forward | Phase::Backward)
            && evidence.operator(key).is_some_and(goes_over)
    });
    all.map(|(_, work)| work.time_ns()).sum()
}

/// A softmax that is part of an attention.
struct Site {
    module: usize,
    line: u32,
    /// Whether an edit replaces the attention.
    can_be_replaced: bool,
}

/// The softmax calls that are part of an attention, at most one on a line.
fn sites(program: &Program<'_>) -> Vec<Site> {
    let attentions = program.calls().filter(|(module, call)| {
        let Some(softmax) = Softmax::of(program, *module, call) else { return false };
        let products: &[&str] = if softmax.has_three_dimensions { &MATMULS_3D } else { &MATMULS };
        let source = ScoreSource { program, module: *module, function: call.function, products };
        source.comes_from_product(softmax.scores, softmax.scores.start_byte(), 0)
            && goes_to_product(program, *module, call) == Some(true)
    });
    let sites = attentions.map(|(module, call)| Site {
        module,
        line: program.module(module).line(call.span.start),
        can_be_replaced: is_replaceable(program, module, call),
    });
    let mut sites: Vec<Site> = sites.collect();
    sites.dedup_by_key(|site| (site.module, site.line));
    sites
}

/// Follows the scores of a softmax back to the matrix multiplication that computes them.
struct ScoreSource<'a, 'p> {
    program: &'p Program<'a>,
    module: usize,
    function: Option<usize>,
    /// Accepted matrix multiplications, by the last part of their names.
    products: &'static [&'static str],
}

impl<'a> ScoreSource<'a, '_> {
    /// Whether scores are one matrix product, at most scaled, shifted and masked: the fused
    /// operator also does that.
    fn comes_from_product(&self, node: Node<'a>, before: usize, depth: u32) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        let text = self.program.module(self.module);
        let follow = |node: Node<'a>| self.comes_from_product(node, before, depth + 1);
        let field = |name: Field| node.field(name);
        match Kind::of(&node) {
            Kind::ParenthesizedExpression => node.named_child(0).is_some_and(follow),
            Kind::BinaryOperator => {
                let (left, right) =
                    (field(Field::Left).map(follow), field(Field::Right).map(follow));
                match (field(Field::Operator).map(|one| one.kind()), left, right) {
                    (Some("@"), ..) => self.products.contains(&"matmul"),
                    (Some("+" | "*"), Some(left), Some(right)) => left != right,
                    (Some("-" | "/"), Some(left), Some(right)) => left && !right,
                    _ => false,
                }
            }
            Kind::Call => {
                let name = callee(text, node);
                let last = last_name(&name);
                if last == "einsum" {
                    return self.products.contains(&"matmul") && gives_scores(text, node);
                }
                if self.products.contains(&last) {
                    return true;
                }
                let object = field(Field::Function).and_then(|it| it.field(Field::Object));
                let list = field(Field::Arguments).map(named_children).into_iter().flatten();
                SUPPORTED.contains(&last) && object.into_iter().chain(list).any(follow)
            }
            Kind::ConditionalExpression => named_children(node).into_iter().any(follow),
            Kind::Identifier => self.was_product(&written(text, node), before, depth),
            _ => false,
        }
    }

    /// Whether a name held the product before it was scaled in place, and before a mask in a
    /// branch.
    fn was_product(&self, name: &str, before: usize, depth: u32) -> bool {
        let text = self.program.module(self.module);
        let assignments = text.assignments.iter().rev().filter(|one| {
            one.function == self.function && one.target == name && one.value.end <= before
        });
        for one in assignments {
            let Some(value) = text.node(&one.value) else { return false };
            if !one.is_augmented {
                return one.element.is_none()
                    && self.comes_from_product(value, one.at.start, depth + 1);
            }
            let operator = value.parent().and_then(|it| it.field(Field::Operator));
            let operator_kind = operator.map(|it| it.kind());
            if !matches!(operator_kind, Some("+=" | "-=" | "*=" | "/=")) {
                return false;
            }
        }
        false
    }
}

/// Whether an `einsum` computes scores: each of the last two dimensions of its result comes from
/// one factor.
fn gives_scores(text: &Module, call: Node<'_>) -> bool {
    let Some(Equation { factors, result }) = Equation::of(text, call) else { return false };
    let ([one, other], [.., row, column]) = (&factors[..], &result[..]) else { return false };
    let factors_of = |label: &String| (one.contains(label), other.contains(label));
    matches!(
        (factors_of(row), factors_of(column)),
        ((true, false), (false, true)) | ((false, true), (true, false))
    )
}

/// Whether an `einsum` applies weights: it sums over their last dimension.
fn applies_weights(text: &Module, call: Node<'_>, weights: Node<'_>) -> bool {
    let Some(Equation { factors, result }) = Equation::of(text, call) else { return false };
    let list = call.field(Field::Arguments).map(named_children).unwrap_or_default();
    let tensors = list.into_iter().filter(|one| !one.is(Kind::String));
    let mut factors = tensors.zip(factors);
    let mine = factors.find(|(one, _)| one.byte_range().contains(&weights.start_byte()));
    let last = mine.and_then(|(_, labels)| labels.last().cloned());
    last.is_some_and(|last| !result.contains(&last))
}

/// Whether the result of a softmax only goes through dropout and into a matrix multiplication: code
/// that needs the weights has to write attention out. Returns `None` if it cannot be followed.
fn goes_to_product(program: &Program<'_>, module: usize, call: &Call) -> Option<bool> {
    let text = program.module(module);
    let node = program.node(module, call)?;
    let statement = statement_of(node)?;
    if is_factor(text, node, statement) {
        return Some(true);
    }
    // `weights = softmax(…)`, followed by the statements of the same block that read `weights`.
    let mut name = target(text, statement)?;
    if !is_assigned(text, node, statement) {
        return Some(false);
    }
    let mut is_multiplied = false;
    let mut next = statement.next_named_sibling();
    while let Some(one) = next {
        next = one.next_named_sibling();
        let readers: Vec<Node<'_>> = within(one)
            .into_iter()
            .filter(|it| it.is(Kind::Identifier) && written(text, *it) == name)
            .collect();
        // An assignment target is not a read.
        let read: Vec<Node<'_>> = readers.into_iter().filter(|it| !is_target(*it)).collect();
        if read.is_empty() {
            continue;
        }
        let all = |test: &dyn Fn(Node<'_>) -> bool| read.iter().all(|it| test(*it));
        if all(&|it| is_factor(text, it, one)) {
            is_multiplied = true;
        } else if all(&|it| is_assigned(text, it, one)) && !is_multiplied {
            name = target(text, one)?;
        } else {
            return Some(false);
        }
    }
    // A nested function may read it.
    let function = call.function.and_then(|at| text.functions.lookup(at));
    let is_seen = function.is_some_and(|it| {
        let inner = text
            .functions
            .iter()
            .filter(|one| one.outer.is_some() && it.span.contains(&one.span.start));
        inner.filter(|one| one.span != it.span).any(|one| mentions(text.text(&one.span), &name))
    });
    Some(is_multiplied && !is_seen)
}

/// The name that a statement assigns, if its target is a name.
fn target(text: &Module, statement: Node<'_>) -> Option<String> {
    let inner = statement.named_child(0).filter(|one| one.is(Kind::Assignment))?;
    let left = inner.field(Field::Left).filter(|left| left.is(Kind::Identifier))?;
    Some(written(text, left))
}

fn is_target(node: Node<'_>) -> bool {
    let parent = node.parent().filter(|parent| parent.is(Kind::Assignment));
    parent.and_then(|parent| parent.field(Field::Left)) == Some(node)
}

/// Whether an expression is a factor of a matrix multiplication, possibly after dropout.
fn is_factor(text: &Module, node: Node<'_>, statement: Node<'_>) -> bool {
    let mut at = node;
    while let Some(parent) = at.parent().filter(|_| at != statement) {
        match Kind::of(&parent) {
            Kind::BinaryOperator => {
                let operator = parent.field(Field::Operator);
                return operator.is_some_and(|operator| operator.kind() == "@");
            }
            Kind::Call => {
                let name = callee(text, parent);
                if last_name(&name) == "einsum" {
                    return applies_weights(text, parent, node);
                }
                if MATMULS.contains(&last_name(&name)) {
                    return true;
                }
                if !is_allowed(&name) {
                    return false;
                }
            }
            Kind::ArgumentList | Kind::ParenthesizedExpression | Kind::Attribute => {}
            _ => return false,
        }
        at = parent;
    }
    false
}

/// Whether a statement assigns the expression, possibly after dropout, and nothing else.
fn is_assigned(text: &Module, node: Node<'_>, statement: Node<'_>) -> bool {
    let mut at = node;
    while let Some(parent) = at.parent().filter(|_| at != statement) {
        let is_fine = match Kind::of(&parent) {
            Kind::Call => is_allowed(&callee(text, parent)),
            Kind::ArgumentList | Kind::ParenthesizedExpression | Kind::Attribute => true,
            Kind::Assignment => return target(text, statement).is_some(),
            _ => false,
        };
        if !is_fine {
            return false;
        }
        at = parent;
    }
    false
}

/// `F.dropout`, `self.attn_drop`, `.to`: operations that are allowed on weights.
fn is_allowed(name: &str) -> bool {
    let last = last_name(name);
    SUPPORTED.contains(&last) || (name.starts_with("self.") && last.contains("drop"))
}

#[cfg(test)]
mod tests;
