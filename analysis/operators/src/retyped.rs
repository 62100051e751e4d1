//! An operator with other types or sizes.

use crate::operator::{Arg, ElementType, Operator, Tensor};

/// Returns the operator with its tensors of one type converted to another.
pub fn retyped(operator: &Operator, from: ElementType, to: ElementType) -> Operator {
    each_tensor(operator, &|tensor| {
        if tensor.element == Some(from) {
            tensor.element = Some(to);
        }
    })
}

/// Returns the operator with each tensor changed.
pub fn each_tensor(operator: &Operator, change: &impl Fn(&mut Tensor)) -> Operator {
    let mut changed = operator.clone();
    let named = changed.named.iter_mut().map(|(_, arg)| arg);
    changed.inputs.iter_mut().chain(named).for_each(|arg| each(arg, change));
    changed.outputs.iter_mut().for_each(change);
    changed
}

fn each(arg: &mut Arg, change: &impl Fn(&mut Tensor)) {
    match arg {
        Arg::Tensor(tensor) => change(tensor),
        Arg::List(list) => list.iter_mut().for_each(|arg| each(arg, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_given_type_changes() {
        let tensor = |element| Arg::Tensor(Tensor::new(element, &[2, 3]));
        let list = Arg::List(vec![tensor(ElementType::Float32), tensor(ElementType::Int64)]);
        let output = Tensor::new(ElementType::Float32, &[4]);
        let operator = Operator::new("aten::cat", vec![list], vec![output]);
        let changed = retyped(&operator, ElementType::Float32, ElementType::BFloat16);
        let types: Vec<_> = changed.input_tensors().map(|tensor| tensor.element).collect();
        assert_eq!(types, [Some(ElementType::BFloat16), Some(ElementType::Int64)]);
        assert_eq!(changed.outputs[0].element, Some(ElementType::BFloat16));
    }
}
