//! The operators of an iteration at any batch size, from two estimates at different ones.
//!
//! A program runs the same operators in the same order whatever its batch size, and each of their
//! dimensions is a linear function of it: constant for weights, proportional for activations.

use std::collections::HashMap;

use crate::batch_size::Estimate;
use ridgeline_operators::op_list::{OpList, Outcome};
use ridgeline_operators::operator::{Arg, Operator, Tensor};
use ridgeline_operators::recorded_step::CountedOperator;
use thiserror::Error;

/// Why two estimates do not show how an iteration grows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotScalable {
    /// An estimate ended before its iteration did, so later operators are missing.
    #[error("the program does not complete an iteration on fake tensors")]
    Incomplete,
    /// An estimate did not report its number of samples.
    #[error("the number of samples of an iteration is unknown")]
    UnknownBatch,
    /// Both estimates have the same batch size.
    #[error("the batch size stayed {0}")]
    SameBatch(u64),
    /// The estimates have other operators.
    #[error("the program runs other operators with another batch size")]
    OtherOperators,
}

/// The operators of an iteration as a function of the batch size, in samples.
#[derive(Clone, Debug)]
pub struct ScaledStep {
    smaller: f64,
    larger: f64,
    operators: Vec<ScaledOperator>,
    /// Peak memory at both batch sizes. Empty if the estimates did not track memory.
    pub(super) memory: Vec<Estimate>,
}

#[derive(Clone, Debug)]
struct ScaledOperator {
    smaller: Operator,
    larger: Operator,
    calls: f64,
}

impl ScaledStep {
    /// Pairs the operators of two estimates.
    ///
    /// # Errors
    /// If the two do not show how the iteration grows.
    pub fn between(one: &OpList, other: &OpList) -> Result<ScaledStep, NotScalable> {
        let (one, other) = ((batch(one)?, one), (batch(other)?, other));
        let (smaller, larger) = if one.0 <= other.0 { (one, other) } else { (other, one) };
        if smaller.0 == larger.0 {
            return Err(NotScalable::SameBatch(smaller.0));
        }
        if smaller.1.ops.len() != larger.1.ops.len() {
            return Err(NotScalable::OtherOperators);
        }
        let mut calls: HashMap<(u32, u32), f64> = HashMap::new();
        for (small, large) in smaller.1.ops.iter().zip(&larger.1.ops) {
            *calls.entry((small.signature, large.signature)).or_default() += 1.0;
        }
        let mut pairs: Vec<_> = calls.into_iter().collect();
        pairs.sort_by_key(|(signatures, _)| *signatures);
        let operators = pairs.into_iter().map(|((small, large), calls)| {
            let small = smaller.1.signatures.get(small as usize);
            let large = larger.1.signatures.get(large as usize);
            let (smaller, larger) = small.zip(large).ok_or(NotScalable::OtherOperators)?;
            if !have_same_form(smaller, larger) {
                return Err(NotScalable::OtherOperators);
            }
            Ok(ScaledOperator { smaller: smaller.clone(), larger: larger.clone(), calls })
        });
        let operators = operators.collect::<Result<_, _>>()?;
        let memory = [smaller, larger].into_iter().filter_map(|(batch, list)| {
            let peak_bytes = list.memory.as_ref()?.peak_bytes;
            Some(Estimate { batch, peak_bytes, cost_ns: None })
        });
        let memory = memory.collect();
        Ok(ScaledStep { smaller: smaller.0 as f64, larger: larger.0 as f64, operators, memory })
    }

    /// Returns the operators of an iteration with this many samples.
    pub fn operators(&self, batch: u64) -> Vec<CountedOperator> {
        let line = Line { share: (batch as f64 - self.smaller) / (self.larger - self.smaller) };
        let operators = self.operators.iter();
        operators
            .map(|one| CountedOperator {
                operator: line.operator(&one.smaller, &one.larger),
                calls: one.calls,
            })
            .collect()
    }
}

/// Returns the number of samples of a complete estimate.
fn batch(list: &OpList) -> Result<u64, NotScalable> {
    if list.outcome != Outcome::Complete {
        return Err(NotScalable::Incomplete);
    }
    let size = list.batch.as_ref().and_then(|batch| batch.size);
    size.filter(|size| *size > 0).ok_or(NotScalable::UnknownBatch)
}

/// Whether two operators differ only in numbers and texts.
fn have_same_form(one: &Operator, other: &Operator) -> bool {
    one.name == other.name
        && one.inputs.len() == other.inputs.len()
        && one.inputs.iter().zip(&other.inputs).all(|(one, other)| args_have_same_form(one, other))
        && one.named.len() == other.named.len()
        && one.named.iter().zip(&other.named).all(|((key, one), (other_key, other))| {
            key == other_key && args_have_same_form(one, other)
        })
        && one.outputs.len() == other.outputs.len()
        && one.outputs.iter().zip(&other.outputs).all(|(one, other)| tensors_match(one, other))
}

fn args_have_same_form(one: &Arg, other: &Arg) -> bool {
    match (one, other) {
        // The text of an object, such as a generator, has its address.
        (Arg::Number(_), Arg::Number(_)) | (Arg::Text(_), Arg::Text(_)) => true,
        (Arg::Tensor(one), Arg::Tensor(other)) => tensors_match(one, other),
        (Arg::List(one), Arg::List(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| args_have_same_form(one, other))
        }
        (one, other) => one == other,
    }
}

/// Whether two tensors have the same type and number of dimensions.
fn tensors_match(one: &Tensor, other: &Tensor) -> bool {
    one.element == other.element && one.shape.len() == other.shape.len()
}

/// The line through both batch sizes: 0 at the smaller one, 1 at the larger one.
struct Line {
    share: f64,
}

impl Line {
    fn operator(&self, smaller: &Operator, larger: &Operator) -> Operator {
        let args = smaller.inputs.iter().zip(&larger.inputs);
        let named = smaller.named.iter().zip(&larger.named);
        let outputs = smaller.outputs.iter().zip(&larger.outputs);
        Operator {
            name: smaller.name.clone(),
            inputs: args.map(|(smaller, larger)| self.arg(smaller, larger)).collect(),
            named: named
                .map(|((key, smaller), (_, larger))| (key.clone(), self.arg(smaller, larger)))
                .collect(),
            outputs: outputs.map(|(smaller, larger)| self.tensor(smaller, larger)).collect(),
        }
    }

    fn arg(&self, smaller: &Arg, larger: &Arg) -> Arg {
        match (smaller, larger) {
            // Sizes in views. Fractions, such as the scale of an average, do not grow linearly and
            // have no effect on costs.
            (Arg::Number(smaller), Arg::Number(larger))
                if smaller.fract() == 0.0 && larger.fract() == 0.0 =>
            {
                Arg::Number(self.at(*smaller, *larger).round())
            }
            (Arg::Tensor(smaller), Arg::Tensor(larger)) => {
                Arg::Tensor(self.tensor(smaller, larger))
            }
            (Arg::List(smaller), Arg::List(larger)) => {
                let both = smaller.iter().zip(larger);
                Arg::List(both.map(|(smaller, larger)| self.arg(smaller, larger)).collect())
            }
            (same, _) => same.clone(),
        }
    }

    fn tensor(&self, smaller: &Tensor, larger: &Tensor) -> Tensor {
        let shape = smaller.shape.iter().zip(&larger.shape);
        let shape = shape.map(|(smaller, larger)| {
            let size = self.at(*smaller as f64, *larger as f64).round();
            // One sample has at least one element in every dimension that two samples have.
            size.max((*smaller).min(*larger).min(1) as f64) as u64
        });
        // A dimension of size 1 has an arbitrary stride.
        let strides = smaller.strides.as_ref().zip(larger.strides.as_ref());
        let strides = strides.map(|(smaller, larger)| {
            let both = smaller.iter().zip(larger);
            both.map(|(smaller, larger)| self.at(*smaller as f64, *larger as f64).round() as i64)
                .collect()
        });
        Tensor { element: smaller.element, shape: shape.collect(), strides }
    }

    fn at(&self, smaller: f64, larger: f64) -> f64 {
        smaller + self.share * (larger - smaller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_operators::op_list::{Batch, Op};
    use ridgeline_operators::operator::ElementType;

    /// A linear layer's matrix multiplication and its optimizer step.
    fn list(batch: u64) -> OpList {
        let tensor = |shape: &[u64]| Tensor::new(ElementType::Float32, shape);
        let arg = |shape: &[u64]| Arg::Tensor(tensor(shape));
        let matmul = Operator::new(
            "aten::mm",
            vec![arg(&[batch * 16, 64]), arg(&[64, 32])],
            vec![tensor(&[batch * 16, 32])],
        );
        let sizes = vec![Arg::Number(batch as f64), Arg::Number(-1.0), Arg::Number(32.0)];
        let view = Operator::new(
            "aten::view",
            vec![arg(&[batch * 16, 32]), Arg::List(sizes)],
            vec![tensor(&[batch, 16, 32])],
        );
        let update =
            Operator::new("aten::add_.Tensor", vec![arg(&[64, 32])], vec![tensor(&[64, 32])]);
        let op = |signature| Op { signature, ..Op::default() };
        OpList {
            outcome: Outcome::Complete,
            signatures: vec![matmul, view, update],
            ops: vec![op(0), op(1), op(0), op(2)],
            batch: Some(Batch { size: Some(batch), from: None }),
            ..OpList::default()
        }
    }

    fn counted(list: &OpList) -> Vec<CountedOperator> {
        let calls = [2.0, 1.0, 1.0];
        let operators = list.signatures.iter().cloned().zip(calls);
        operators.map(|(operator, calls)| CountedOperator { operator, calls }).collect()
    }

    #[test]
    fn operators_at_other_batches_are_those_of_an_estimate_there() {
        let step = ScaledStep::between(&list(64), &list(8)).expect("it scales");
        for batch in [1, 8, 24, 64, 4096] {
            assert_eq!(step.operators(batch), counted(&list(batch)), "at {batch}");
        }
    }

    #[test]
    fn estimates_of_other_iterations_are_refused() {
        let refused = |one: &OpList, other: &OpList| ScaledStep::between(one, other).err();
        assert_eq!(refused(&list(8), &list(8)), Some(NotScalable::SameBatch(8)));
        let mut longer = list(16);
        longer.ops.push(Op::default());
        assert_eq!(refused(&list(8), &longer), Some(NotScalable::OtherOperators));
        let mut renamed = list(16);
        renamed.signatures[2].name = "aten::mul_.Tensor".to_owned();
        assert_eq!(refused(&list(8), &renamed), Some(NotScalable::OtherOperators));
        let mut outside = list(16);
        outside.ops[0].signature = 9;
        assert_eq!(refused(&list(8), &outside), Some(NotScalable::OtherOperators));
        let unknown = OpList { batch: None, ..list(16) };
        assert_eq!(refused(&list(8), &unknown), Some(NotScalable::UnknownBatch));
        let partial = OpList { outcome: Outcome::Partial, ..list(16) };
        assert_eq!(refused(&list(8), &partial), Some(NotScalable::Incomplete));
    }
}
