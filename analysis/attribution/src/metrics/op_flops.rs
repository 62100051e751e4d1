//! The floating-point operations of an operator of a trace, and the minimum number of bytes that it
//! has to move. [`ridgeline_operators::op_cost`] defines what is counted, and how.
//!
//! Operators that it does not know have no numbers, rather than guessed ones.

use ridgeline_operators::op_cost;
use ridgeline_operators::operator::Operator;

/// The work of one operator call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpWork {
    /// Floating-point operations.
    pub flops: f64,
    /// The minimum number of bytes that have to be moved; `None` if a type is unknown.
    pub bytes: Option<f64>,
}

impl OpWork {
    /// Returns no work.
    pub fn zero() -> OpWork {
        OpWork { flops: 0.0, bytes: Some(0.0) }
    }

    /// Returns the work of several calls.
    pub fn times(self, calls: f64) -> OpWork {
        OpWork { flops: self.flops * calls, bytes: self.bytes.map(|bytes| bytes * calls) }
    }

    /// Returns the sum.
    pub fn plus(self, other: OpWork) -> OpWork {
        OpWork {
            flops: self.flops + other.flops,
            bytes: self.bytes.zip(other.bytes).map(|(a, b)| a + b),
        }
    }
}

/// Returns the work of a call. `dims`, `types` and `concrete` are the JSON of `Input Dims`, `Input
/// type` and `Concrete Inputs`. Returns `None` for unknown operators, and if shapes were not
/// recorded.
pub fn op_work(name: &str, dims: &str, types: &str, concrete: &str) -> Option<OpWork> {
    let operator = Operator::from_trace(name, dims, types, concrete)?;
    let work = op_cost::work(&operator)?;
    Some(OpWork { flops: work.flops, bytes: work.bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(name: &str, dims: &str, types: &str, concrete: &str, flops: f64, bytes: Option<f64>) {
        let work = op_work(name, dims, types, concrete).expect("known");
        assert_eq!((work.flops, work.bytes), (flops, bytes));
    }

    #[test]
    fn long_lists_have_no_shapes() {
        let types = r#"["TensorList","float"]"#;
        check("aten::_foreach_mul_", "[[[2,3],[4]],[]]", types, r#"["",""]"#, 10.0, None);
        // The profiler leaves out the shapes of long lists.
        assert_eq!(op_work("aten::_foreach_mul_", "[[],[]]", types, r#"["",""]"#), None);
    }

    #[test]
    fn matrix_multiplications() {
        let types = r#"["float","float"]"#;
        let bytes = Some(4.0 * (6.0 + 12.0 + 8.0));
        check("aten::mm", "[[2,3],[3,4]]", types, "[]", 48.0, bytes);
        check("aten::bmm", "[[5,2,3],[5,3,4]]", types, "[]", 240.0, bytes.map(|b| b * 5.0));
        check("aten::matmul", "[[5,2,3],[3,4]]", types, "[]", 240.0, Some(4.0 * 82.0));
        check("aten::mv", "[[2,3],[3]]", types, "[]", 12.0, Some(4.0 * 11.0));
    }

    #[test]
    fn matrix_multiplications_with_addition() {
        let types = r#"["c10::Half","c10::Half","c10::Half","Scalar","Scalar"]"#;
        let bytes = Some(2.0 * (4.0 + 6.0 + 12.0 + 8.0));
        check("aten::addmm", "[[4],[2,3],[3,4],[],[]]", types, "[]", 48.0, bytes);
        let types = r#"["float","float","float"]"#;
        let bytes = Some(4.0 * (30.0 + 12.0 + 4.0 + 40.0));
        check("aten::linear", "[[5,2,3],[4,3],[4]]", types, "[]", 240.0, bytes);
    }

    #[test]
    fn convolutions() {
        let dims = "[[4,3,16,16],[8,3,3,3],[8],[],[],[],[]]";
        let concrete = r#"["","","","[1, 1]","[0, 0]","[1, 1]","1"]"#;
        check("aten::conv2d", dims, "[]", concrete, 2.0 * 4.0 * 8.0 * 196.0 * 27.0, None);
        let strided = r#"["","","","[2, 2]","[1, 1]","[1, 1]","1"]"#;
        check("aten::conv2d", dims, "[]", strided, 2.0 * 4.0 * 8.0 * 64.0 * 27.0, None);
        let same = r#"["","","","[1, 1]","same","[1, 1]","1"]"#;
        check("aten::conv2d", dims, "[]", same, 2.0 * 4.0 * 8.0 * 256.0 * 27.0, None);
    }

    #[test]
    fn grouped_convolutions_count_channels_per_group() {
        let dims = "[[1,8,5,5],[8,1,3,3],[],[],[],[],[],[],[]]";
        let concrete = r#"["","","","[1, 1]","[1, 1]","[1, 1]","False","[0, 0]","8"]"#;
        check("aten::convolution", dims, "[]", concrete, 2.0 * 8.0 * 25.0 * 9.0, None);
    }

    #[test]
    fn transposed_convolutions() {
        let dims = "[[2,16,4,4],[16,8,4,4],[],[],[],[],[],[],[]]";
        let concrete = r#"["","","","[2, 2]","[1, 1]","[1, 1]","True","[0, 0]","1"]"#;
        let flops = 2.0 * (2.0 * 16.0 * 16.0) * (8.0 * 16.0);
        check("aten::convolution", dims, "[]", concrete, flops, None);
        check("aten::conv_transpose2d", "[[2,16,4,4],[16,8,4,4]]", "[]", "[]", flops, None);
    }

    #[test]
    fn requested_gradients_of_a_convolution_count() {
        let dims = "[[4,8,14,14],[4,3,16,16],[8,3,3,3],[],[],[],[],[],[],[],[]]";
        let concrete = |mask: &str| {
            format!(r#"["","","","[8]","[1, 1]","[0, 0]","[1, 1]","False","[0, 0]","1","{mask}"]"#)
        };
        let once = 2.0 * 4.0 * 8.0 * 196.0 * 27.0;
        let name = "aten::convolution_backward";
        check(name, dims, "[]", &concrete("[False, True, True]"), once, None);
        check(name, dims, "[]", &concrete("[True, True, True]"), 2.0 * once, None);
    }

    #[test]
    fn attention_counts_as_pytorch_counts_it() {
        let dims = "[[2,4,16,8],[2,4,32,8],[2,4,32,8]]";
        let once = 2.0 * 8.0 * 16.0 * 32.0 * 8.0;
        let types = r#"["float","float","float"]"#;
        let bytes = Some(4.0 * (1024.0 + 2048.0 + 2048.0 + 1024.0));
        check("aten::scaled_dot_product_attention", dims, types, "[]", 2.0 * once, bytes);
        let dims = "[[2,4,16,8],[2,4,16,8],[2,4,32,8],[2,4,32,8]]";
        let name = "aten::_scaled_dot_product_flash_attention_backward";
        check(name, dims, "[]", "[]", 5.0 * once, None);
    }

    #[test]
    fn recurrent_layers() {
        let flops = 2.0 * (5.0 * 3.0) * (16.0 * 8.0 + 16.0 * 4.0);
        let dims = "[[5,3,8],[16,8],[16,4],[16],[16],[3,4],[3,4]]";
        check("aten::mkldnn_rnn_layer", dims, "[]", "[]", flops, None);
        let dims = "[[5,3,8],[[16,8],[16,4],[16],[16]],[],[]]";
        check("aten::_cudnn_rnn", dims, "[]", "[]", flops, None);
        check("aten::_cudnn_rnn_backward", dims, "[]", "[]", 2.0 * flops, None);
    }

    #[test]
    fn elements_move_once() {
        let types = r#"["float","float","Scalar"]"#;
        check("aten::add", "[[8,4],[4],[]]", types, "[]", 32.0, Some(4.0 * (32.0 + 4.0 + 32.0)));
        check("aten::relu", "[[8,4]]", r#"["c10::BFloat16"]"#, "[]", 32.0, Some(128.0));
        check("aten::sum", "[[8,4]]", r#"["double"]"#, "[]", 32.0, Some(256.0));
        check("aten::view", "[[8,4]]", r#"["float"]"#, "[]", 0.0, Some(0.0));
    }

    #[test]
    fn unknown_operators_have_no_numbers() {
        assert_eq!(op_work("mylib::thing", "[[1]]", "[]", "[]"), None);
        assert_eq!(op_work("aten::fft_fft", "[[1]]", "[]", "[]"), None);
        assert_eq!(op_work("aten::mm", "", "", ""), None);
        assert_eq!(op_work("aten::mm", "[[2,3]]", "[]", "[]"), None);
        assert_eq!(op_work("aten::mm", "[[-2,3],[3,4]]", "[]", "[]"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_inputs_do_not_panic(
            name in prop::sample::select(vec![
                "aten::mm", "aten::linear", "aten::conv2d", "aten::convolution",
                "aten::convolution_backward", "aten::scaled_dot_product_attention", "aten::cat",
                "aten::add_", "aten::embedding",
            ]),
            dims in "[\\[\\]0-9,\\-. ]{0,40}",
            concrete in r#"(\["?[\[\]0-9, ]{0,9}"?(,"?[\[\]0-9, ]{0,9}"?){0,10}\])|.{0,20}"#,
        ) {
            let work = op_work(name, &dims, "[]", &concrete);
            prop_assert!(work.is_none_or(|work| work.flops >= 0.0));
        }
    }
}
