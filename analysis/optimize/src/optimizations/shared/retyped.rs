//! Casts, and the types of matrix multiplications.

use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};

/// Creates a cast of a tensor to another type.
pub fn cast(shape: &[u64], from: ElementType, to: ElementType) -> Operator {
    let tensor = |element| Tensor::new(element, shape);
    Operator::new("aten::_to_copy", vec![Arg::Tensor(tensor(from))], vec![tensor(to)])
}

/// Whether an operator multiplies matrices, including convolutions and attention.
pub fn is_matmul(operator: &Operator) -> bool {
    use ridgeline_operators::op_cost::{Family, work};
    matches!(
        work(operator).map(|work| work.family),
        Some(Family::Gemm | Family::Convolution | Family::Attention | Family::Rnn)
    )
}

/// Whether any input of an operator has a type.
pub fn takes(operator: &Operator, element: ElementType) -> bool {
    operator.input_tensors().any(|tensor| tensor.element == Some(element))
}
