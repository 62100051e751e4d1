//! Facts about one machine that the cost model does not have: how much longer or shorter operators take in a 16-bit type
//! than in FP32, and how long a call takes that does little.
//!
//! What-ifs measure them. Estimates of unsaved text use them, too, so that applying a what-if shows about the time that it
//! predicted.

use crate::op_cost::{Family, work};
use crate::operator::{ElementType, Operator};
use crate::retyped::retyped;

/// Matrix multiplications with about as many FLOPs count as the same one.
const SAME_WORK: f64 = 1e-3;

/// Measured times of operators in both types, and of small calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineCosts {
    timed: Vec<Timed>,
    /// Time of a call besides its work, in nanoseconds of the cost model. 0 if unknown, and on a GPU, where the host runs
    /// ahead.
    pub call_ns: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Timed {
    family: Family,
    flops: f64,
    element: ElementType,
    full_ns: f64,
    lower_ns: f64,
}

impl MachineCosts {
    /// Adds an operator with its time in nanoseconds in FP32 and in another type. Only operators that were recorded in FP32
    /// are kept, of families whose time is mostly arithmetic.
    pub fn add(&mut self, operator: &Operator, element: ElementType, full_ns: f64, lower_ns: f64) {
        let is_sound = |time_ns: f64| time_ns.is_finite() && time_ns > 0.0;
        let Some(work) = work(operator).filter(|work| is_arithmetic(work.family)) else { return };
        let recorded = operator.input_tensors().find_map(|tensor| tensor.element);
        if recorded != Some(ElementType::Float32) {
            return;
        }
        if is_sound(full_ns) && is_sound(lower_ns) {
            let (family, flops) = (work.family, work.flops);
            self.timed.push(Timed { family, flops, element, full_ns, lower_ns });
        }
    }

    /// Returns an operator with 16-bit inputs in FP32, and its time relative to that. Operators of other sizes have the
    /// ratio of all that were timed. `None` if nothing like it was timed.
    pub fn of(&self, operator: &Operator) -> Option<(Operator, f64)> {
        if self.timed.is_empty() {
            return None;
        }
        let element = operator.input_tensors().find_map(|tensor| tensor.element)?;
        let full = retyped(operator, element, ElementType::Float32);
        let work = work(&full)?;
        let alike = |one: &&Timed| one.family == work.family && one.element == element;
        let same = |one: &&Timed| (one.flops - work.flops).abs() <= SAME_WORK * work.flops;
        let ratio = |timed: &mut dyn Iterator<Item = &Timed>| {
            let (full_ns, lower_ns) =
                timed.fold((0.0, 0.0), |sum, one| (sum.0 + one.full_ns, sum.1 + one.lower_ns));
            (full_ns > 0.0).then(|| lower_ns / full_ns)
        };
        let known = ratio(&mut self.timed.iter().filter(alike).filter(same));
        let ratio = known.or_else(|| ratio(&mut self.timed.iter().filter(alike)))?;
        Some((full, ratio))
    }
}

fn is_arithmetic(family: Family) -> bool {
    matches!(family, Family::Gemm | Family::Convolution | Family::Attention | Family::Rnn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{Arg, Tensor};

    fn product(element: ElementType, width: u64) -> Operator {
        let tensor = || Tensor::new(element, &[width, width]);
        let inputs = vec![Arg::Tensor(tensor()), Arg::Tensor(tensor())];
        Operator::new("aten::mm", inputs, vec![tensor()])
    }

    #[test]
    fn the_same_work_has_its_own_ratio() {
        use ElementType::{BFloat16, Float16, Float32};
        let mut costs = MachineCosts::default();
        assert_eq!(costs.of(&product(BFloat16, 64)), None);
        costs.add(&product(Float32, 64), BFloat16, 100.0, 50.0);
        costs.add(&product(Float32, 256), BFloat16, 300.0, 50.0);
        costs.add(&product(Float32, 64), BFloat16, 0.0, 50.0);
        costs.add(&product(Float16, 64), BFloat16, 100.0, 100.0);
        let ratio_of = |element, width| {
            let (full, ratio) = costs.of(&product(element, width))?;
            assert_eq!(full, product(Float32, width));
            Some(ratio)
        };
        assert_eq!(ratio_of(BFloat16, 64), Some(0.5));
        assert_eq!(ratio_of(BFloat16, 256), Some(50.0 / 300.0));
        // Another size: 100 ns instead of 400 ns.
        assert_eq!(ratio_of(BFloat16, 128), Some(0.25));
        assert_eq!(ratio_of(Float16, 64), None);
        assert_eq!(ratio_of(Float32, 64), None);
    }

    #[test]
    fn only_arithmetic_is_kept() {
        let tensor = Tensor::new(ElementType::Float32, &[64]);
        let relu = Operator::new("aten::relu", vec![Arg::Tensor(tensor.clone())], vec![tensor]);
        let mut costs = MachineCosts::default();
        costs.add(&relu, ElementType::BFloat16, 10.0, 5.0);
        assert_eq!(costs, MachineCosts::default());
    }
}
