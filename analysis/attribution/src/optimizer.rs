//! Distributes the optimizer's time to the modules that own the parameters.
//!
//! `step()` does not record which module a parameter belongs to, but its operators record their
//! numbers of elements. So the time of each operator goes to the modules whose parameters have as
//! many elements. Operators that are ambiguous (one kernel for all, scalars) follow the others, and
//! if all are, time is proportional to the number of elements.

use std::collections::HashMap;

use serde_json::Value;

use super::Sums;
use super::contexts::{ContextId, Contexts};
use super::join::Join;
use super::modules::Modules;
use ridgeline_profile::Phase;
use ridgeline_recording::StringId;
use ridgeline_recording::line_log::StackId;
use ridgeline_recording::manifest::Manifest;

/// The time of one place that steps: `d_optimizer.step()` and `g_optimizer.step()` are two.
#[derive(Debug, Default)]
struct Step {
    time_ns: f64,
    /// Time by profiled iteration.
    samples: Vec<f64>,
    /// Scaled nanoseconds of operators, by the JSON of their input shapes.
    operators: HashMap<StringId, f64>,
}

/// Adds the time of each step to the modules that own its parameters.
pub(super) fn add_times(
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    of_shown: &[Option<ContextId>],
    sums: &Sums,
    manifest: &Manifest,
    modules: &mut Modules,
) {
    let mut steps: HashMap<StackId, Step> = HashMap::new();
    for (id, context, cost, factor) in sums.by_context(contexts) {
        if context.phase == Phase::Optimizer {
            let step = steps.entry(context.own).or_default();
            step.time_ns += cost.time_ns * factor;
            step.samples.resize(sums.samples().len(), 0.0);
            for (sum, time_ns) in step.samples.iter_mut().zip(sums.samples_of(id)) {
                *sum += time_ns;
            }
        }
    }
    for (index, id) in of_shown.iter().enumerate() {
        let Some((id, context)) = id.and_then(|id| Some((id, contexts.get(id)?))) else { continue };
        let dims = join.trace.operators.get(index).and_then(|operator| operator.input_dims);
        if let (Phase::Optimizer, Some(dims), Some(step)) =
            (context.phase, dims, steps.get_mut(&context.own))
        {
            *step.operators.entry(dims).or_default() += sums.shown_operator_ns(index, id);
        }
    }
    let owners: Vec<Owner> = owners(manifest);
    let mut steps: Vec<(StackId, Step)> = steps.into_iter().collect();
    steps.sort_by_key(|(stack, _)| *stack);
    for (_, step) in steps {
        let counts: Vec<(Vec<u64>, f64)> = step
            .operators
            .iter()
            .map(|(dims, time_ns)| (element_counts(join.trace.text(*dims)), *time_ns))
            .collect();
        for (module, share) in shares(&counts, &owners) {
            modules.each_holding(module, |cost| {
                cost.total_time.optimizer += step.time_ns * share;
                for (sample, time_ns) in cost.samples.iter_mut().zip(&step.samples) {
                    sample.total_ns += time_ns * share;
                }
            });
            if let Some(cost) = modules.costs.get_mut(module as usize) {
                cost.self_time.optimizer += step.time_ns * share;
                for (sample, time_ns) in cost.samples.iter_mut().zip(&step.samples) {
                    sample.own_ns += time_ns * share;
                }
            }
        }
    }
}

/// The parameters of one optimizer.
#[derive(Debug, Default)]
struct Owner {
    /// The parameters as `(module, elements)`.
    modules: Vec<(u32, u64)>,
    /// By number of elements: the modules with such a parameter, one entry per parameter.
    by_count: HashMap<u64, Vec<u32>>,
}

fn owners(manifest: &Manifest) -> Vec<Owner> {
    let owner = |modules: &[(u32, u64)]| {
        let mut owner = Owner { modules: modules.to_vec(), ..Owner::default() };
        for (module, _) in modules {
            let parameters = manifest.modules.get(*module as usize).map(|m| &m.parameters);
            for parameter in parameters.into_iter().flatten() {
                owner.by_count.entry(parameter.elements).or_default().push(*module);
            }
        }
        owner
    };
    manifest.optimizers.iter().map(|optimizer| owner(&optimizer.modules)).collect()
}

/// Returns the optimizers that step at one place: the one whose parameters explain most of its
/// operators, and if a line steps several (`for one in optimizers: one.step()`), those that explain
/// the rest.
fn stepping<'o>(operators: &[(Vec<u64>, f64)], owners: &'o [Owner]) -> Vec<&'o Owner> {
    let mut left: Vec<&[u64]> = operators.iter().map(|(counts, _)| counts.as_slice()).collect();
    let mut found: Vec<&Owner> = Vec::new();
    loop {
        let knows = |owner: &Owner, counts: &[u64]| {
            counts.iter().any(|count| owner.by_count.contains_key(count))
        };
        let explained = |owner: &&Owner| left.iter().filter(|counts| knows(owner, counts)).count();
        let most = owners.iter().map(|owner| explained(&owner)).max().unwrap_or(0);
        if most == 0 {
            break;
        }
        let best: Vec<&Owner> = owners.iter().filter(|owner| explained(owner) == most).collect();
        // A single element may belong to any optimizer, like a step count.
        left.retain(|counts| counts.iter().all(|count| *count > 1));
        left.retain(|counts| !best.iter().any(|owner| knows(owner, counts)));
        found.extend(best);
    }
    if found.is_empty() { owners.iter().collect() } else { found }
}

/// Returns the share of each module, 0 to 1, in a step, given the numbers of elements and times of
/// its operators. The shares add up to 1, or there are none.
fn shares(operators: &[(Vec<u64>, f64)], owners: &[Owner]) -> Vec<(u32, f64)> {
    let stepping = stepping(operators, owners);
    let mut weights: HashMap<u32, f64> = HashMap::new();
    for (counts, time_ns) in operators {
        let known = |count: &&u64| stepping.iter().any(|owner| owner.by_count.contains_key(count));
        let all: f64 = counts.iter().filter(known).map(|&count| count as f64).sum();
        for count in counts.iter().filter(known) {
            let candidates: Vec<u32> = stepping
                .iter()
                .filter_map(|owner| owner.by_count.get(count))
                .flatten()
                .copied()
                .collect();
            let part = time_ns * (*count as f64) / all / candidates.len() as f64;
            for module in candidates {
                *weights.entry(module).or_default() += part;
            }
        }
    }
    if weights.values().sum::<f64>() <= 0.0 {
        for (module, elements) in stepping.iter().flat_map(|owner| &owner.modules) {
            *weights.entry(*module).or_default() += *elements as f64;
        }
    }
    let sum: f64 = weights.values().sum();
    let mut shares: Vec<(u32, f64)> =
        weights.into_iter().map(|(module, weight)| (module, weight / sum)).collect();
    shares.retain(|(_, share)| share.is_finite());
    shares.sort_by_key(|(module, _)| *module);
    shares
}

/// Returns the numbers of elements of an operator's first input that is a tensor or a list of
/// tensors. Scalars are ignored: they belong to the step, not to a parameter.
fn element_counts(dims: &str) -> Vec<u64> {
    let inputs: Vec<Value> = serde_json::from_str(dims).unwrap_or_default();
    let Some(first) = inputs.first().and_then(Value::as_array) else { return Vec::new() };
    let shapes: Vec<&[Value]> = if first.iter().any(Value::is_array) {
        first.iter().filter_map(|shape| shape.as_array().map(Vec::as_slice)).collect()
    } else {
        vec![first]
    };
    let elements = |shape: &[Value]| {
        shape.iter().try_fold(1_u64, |product, size| product.checked_mul(size.as_u64()?))
    };
    shapes.into_iter().filter(|shape| !shape.is_empty()).filter_map(elements).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(parameters: &[(u32, u64)]) -> Owner {
        let mut owner = Owner { modules: parameters.to_vec(), ..Owner::default() };
        for &(module, elements) in parameters {
            owner.by_count.entry(elements).or_default().push(module);
        }
        owner
    }

    #[track_caller]
    fn check(operators: &[(&str, f64)], owners: &[Owner], expected: &[(u32, f64)]) {
        let operators: Vec<_> =
            operators.iter().map(|(dims, time_ns)| (element_counts(dims), *time_ns)).collect();
        assert_eq!(shares(&operators, owners), expected);
    }

    #[test]
    fn operators_go_to_the_module_with_such_a_parameter() {
        let owners = [owner(&[(1, 8), (2, 32)])];
        check(&[("[[8],[8]]", 30.0), ("[[4,8]]", 10.0)], &owners, &[(1, 0.75), (2, 0.25)]);
    }

    #[test]
    fn equal_parameters_share() {
        check(&[("[[8]]", 30.0)], &[owner(&[(1, 8), (2, 8)])], &[(1, 0.5), (2, 0.5)]);
    }

    #[test]
    fn lists_are_shared_by_elements() {
        check(&[("[[[8],[4,6]]]", 1.0)], &[owner(&[(1, 8), (2, 24)])], &[(1, 0.25), (2, 0.75)]);
    }

    #[test]
    fn a_step_belongs_to_the_optimizer_that_matches_best() {
        let owners = [owner(&[(1, 8), (2, 16)]), owner(&[(3, 8), (4, 24)])];
        check(&[("[[8]]", 1.0), ("[[24]]", 1.0)], &owners, &[(3, 0.5), (4, 0.5)]);
    }

    #[test]
    fn a_line_may_step_several_optimizers() {
        let owners = [owner(&[(1, 8), (2, 16)]), owner(&[(3, 1), (4, 24)]), owner(&[(5, 32)])];
        let operators = [("[[8]]", 1.0), ("[[16]]", 1.0), ("[[24]]", 2.0)];
        check(&operators, &owners, &[(1, 0.25), (2, 0.25), (4, 0.5)]);
        // A match of one element does not add an optimizer.
        check(&[("[[8]]", 1.0), ("[[8],[8]]", 1.0), ("[[1]]", 1.0)], &owners[..2], &[(1, 1.0)]);
    }

    #[test]
    fn ambiguous_operators_follow_the_elements() {
        check(&[("[[]]", 1.0)], &[owner(&[(1, 8), (2, 24)])], &[(1, 0.25), (2, 0.75)]);
        check(&[], &[], &[]);
    }

    #[test]
    fn malformed_shapes_are_ignored() {
        for dims in ["", "[", "[[-1]]", "[[18446744073709551615, 9]]", "{}", "[[[\"a\"]]]"] {
            assert!(element_counts(dims).is_empty(), "{dims}");
        }
    }
}
