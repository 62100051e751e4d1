//! Compares counts with counts by hand, and checks invariants of all times.

use proptest::prelude::*;

use super::*;
use crate::operator::{Arg, ElementType};
use ridgeline_devices::device_table::DeviceTable;

const HALF: ElementType = ElementType::Float16;
const SINGLE: ElementType = ElementType::Float32;

fn tensor(element: ElementType, shape: &[u64]) -> Tensor {
    Tensor::new(element, shape)
}

fn arg(element: ElementType, shape: &[u64]) -> Arg {
    Arg::Tensor(tensor(element, shape))
}

fn numbers(values: &[f64]) -> Arg {
    Arg::List(values.iter().map(|value| Arg::Number(*value)).collect())
}

fn device(name: &str) -> &'static DeviceSpec {
    DeviceTable::shipped().find(name).expect("in the table")
}

fn time_ns(operator: &Operator, name: &str) -> f64 {
    cost(operator, device(name), &Options::default()).time_ns.value
}

fn convolution(groups: u64, batch: u64, channels: u64, size: u64) -> Operator {
    let inputs = vec![
        arg(HALF, &[batch, channels, size, size]),
        arg(HALF, &[channels, channels / groups, 3, 3]),
        Arg::None,
        numbers(&[1.0, 1.0]),
        numbers(&[1.0, 1.0]),
        numbers(&[1.0, 1.0]),
        Arg::Bool(false),
        numbers(&[0.0, 0.0]),
        Arg::Number(groups as f64),
    ];
    let output = tensor(HALF, &[batch, channels, size, size]);
    Operator::new("aten::convolution", inputs, vec![output])
}

fn matmul(rows: u64, inner: u64, columns: u64) -> Operator {
    let inputs = vec![arg(HALF, &[rows, inner]), arg(HALF, &[inner, columns])];
    Operator::new("aten::mm", inputs, vec![tensor(HALF, &[rows, columns])])
}

fn elementwise(elements: u64) -> Operator {
    let x = || arg(SINGLE, &[elements]);
    Operator::new("aten::add.Tensor", vec![x(), x()], vec![tensor(SINGLE, &[elements])])
}

#[track_caller]
fn check(operator: &Operator, family: Family, flops: f64, bytes: f64) {
    let work = work(operator).expect("known");
    assert_eq!((work.family, work.flops, work.bytes), (family, flops, Some(bytes)));
    let cost = cost(operator, device("A100-SXM4-80GB"), &Options::default());
    assert!(cost.known && cost.time_ns.value > 0.0);
    assert!(cost.time_ns.low <= cost.time_ns.value && cost.time_ns.value <= cost.time_ns.high);
}

#[test]
fn matrix_multiplications_count_their_flops() {
    check(&matmul(64, 32, 16), Family::Gemm, 65_536.0, 2.0 * (2048.0 + 512.0 + 1024.0));
}

#[test]
fn grouped_convolutions_count_their_channels() {
    let full = 2.0 * (2.0 * 8.0 * 16.0) * (8.0 * 9.0);
    let activations = 2.0 * 2.0 * (2.0 * 8.0 * 16.0);
    check(&convolution(1, 2, 8, 4), Family::Convolution, full, activations + 2.0 * 576.0);
    check(&convolution(2, 2, 8, 4), Family::Convolution, full / 2.0, activations + 2.0 * 288.0);
    check(&convolution(8, 2, 8, 4), Family::Convolution, full / 8.0, activations + 2.0 * 72.0);
}

#[test]
fn fused_attention_does_not_read_scores() {
    let heads = || arg(HALF, &[2, 4, 16, 8]);
    let name = "aten::_scaled_dot_product_flash_attention";
    let output = tensor(HALF, &[2, 4, 16, 8]);
    let operator = Operator::new(name, vec![heads(), heads(), heads()], vec![output]);
    check(&operator, Family::Attention, 2.0 * 2.0 * 8.0 * 256.0 * 8.0, 4.0 * 2.0 * 1024.0);
}

#[test]
fn elementwise_operators_move_each_element_once() {
    check(&elementwise(100), Family::Elementwise, 100.0, 1200.0);
    let x = || arg(SINGLE, &[10, 10]);
    let out = || vec![tensor(SINGLE, &[10, 10])];
    let softmax = Operator::new("aten::_softmax", vec![x()], out());
    check(&softmax, Family::Softmax, 500.0, 800.0);
    let cast = Operator::new("aten::_to_copy", vec![x()], vec![tensor(HALF, &[10, 10])]);
    check(&cast, Family::Copy, 0.0, 600.0);
    let sum = Operator::new("aten::sum", vec![x()], vec![tensor(SINGLE, &[])]);
    check(&sum, Family::Reduction, 100.0, 404.0);
    let pool = vec![tensor(SINGLE, &[5, 5])];
    let pool = Operator::new("aten::avg_pool2d", vec![x()], pool);
    check(&pool, Family::Pooling, 100.0, 500.0);
    let norm = Operator::new("aten::native_layer_norm", vec![x()], out());
    check(&norm, Family::Norm, 800.0, 800.0);
    let loss = Operator::new("aten::mse_loss", vec![x(), x()], vec![tensor(SINGLE, &[])]);
    check(&loss, Family::Loss, 200.0, 804.0);
}

#[test]
fn fills_only_write() {
    for name in ["aten::zero_", "aten::fill_.Scalar", "aten::zeros_like"] {
        let out = vec![tensor(SINGLE, &[10, 10])];
        check(&Operator::new(name, vec![arg(SINGLE, &[10, 10])], out), Family::Copy, 0.0, 400.0);
    }
}

#[test]
fn embedding_lookups_read_only_the_indexed_rows() {
    let indices = arg(ElementType::Int64, &[4]);
    let table = arg(SINGLE, &[50_000, 8]);
    let inputs = vec![table, indices];
    let operator = Operator::new("aten::embedding", inputs, vec![tensor(SINGLE, &[4, 8])]);
    check(&operator, Family::Embedding, 0.0, 32.0 + 2.0 * 128.0);
    let source = arg(SINGLE, &[50_000, 8]);
    let inputs = vec![source, Arg::Number(0.0), arg(ElementType::Int64, &[4])];
    let operator = Operator::new("aten::index_select", inputs, vec![tensor(SINGLE, &[4, 8])]);
    check(&operator, Family::Indexing, 0.0, 32.0 + 2.0 * 128.0);
}

#[test]
fn recurrent_layers_count_every_step() {
    let weights = Arg::List(vec![arg(SINGLE, &[16, 8]), arg(SINGLE, &[16, 4])]);
    let inputs = vec![arg(SINGLE, &[5, 3, 8]), weights];
    let operator = Operator::new("aten::_cudnn_rnn", inputs, vec![tensor(SINGLE, &[5, 3, 4])]);
    let bytes = 4.0 * (120.0 + 128.0 + 64.0 + 60.0);
    check(&operator, Family::Rnn, 2.0 * 15.0 * 192.0, bytes);
}

#[test]
fn optimizers_pack_tensors_into_launches() {
    let list = Arg::List(vec![arg(SINGLE, &[10]); 100]);
    let operator = Operator::new("aten::_foreach_mul_.Scalar", vec![list], Vec::new());
    check(&operator, Family::Optimizer, 1000.0, 4000.0);
    let cost = cost(&operator, device("RTX3090"), &Options::default());
    assert_eq!(cost.launches, 3.0);
}

#[test]
fn views_are_free_and_unknown_operators_cost_their_bytes() {
    let view = Operator::new("aten::view", vec![arg(SINGLE, &[8])], Vec::new());
    assert_eq!(cost(&view, device("T4"), &Options::default()).time_ns, Range::exact(0.0));
    let inputs = vec![arg(SINGLE, &[1 << 20])];
    let unknown = Operator::new("mylib::thing", inputs, Vec::new());
    let cost = cost(&unknown, device("T4"), &Options::default());
    assert_eq!((cost.known, cost.family), (false, Family::Unknown));
    assert_eq!(cost.bytes, f64::from(4 << 20));
    assert!(cost.time_ns.high / cost.time_ns.value >= 2.0);
}

#[test]
fn half_precision_and_channels_last_are_faster_on_tensor_cores() {
    let mut single = matmul(4096, 4096, 4096);
    for input in &mut single.inputs {
        if let Arg::Tensor(tensor) = input {
            tensor.element = Some(SINGLE);
        }
    }
    assert!(time_ns(&single, "RTX3090") > 1.5 * time_ns(&matmul(4096, 4096, 4096), "RTX3090"));
    let first = convolution(1, 32, 64, 56);
    let mut last = first.clone();
    if let Some(Arg::Tensor(input)) = last.inputs.first_mut() {
        input.strides = Some(vec![200_704, 1, 3584, 64]);
    }
    assert!(time_ns(&first, "RTX3090") > 1.2 * time_ns(&last, "RTX3090"));
}

#[test]
fn unaligned_rows_are_slow() {
    let vocabulary_time = |count| time_ns(&matmul(4096, 1024, count), "A100-SXM4-80GB");
    assert!(
        vocabulary_time(50_257) > 1.5 * vocabulary_time(50_264),
        "{} {}",
        vocabulary_time(50_257),
        vocabulary_time(50_264)
    );
    // The rows of a gradient are as long as those of its tensor, transposed or not.
    let of_weight = |count: u64| {
        let mut operator = matmul(count, 4096, 1024);
        if let Some(Arg::Tensor(gradient)) = operator.inputs.first_mut() {
            gradient.strides = Some(vec![1, count as i64]);
        }
        time_ns(&operator, "A100-SXM4-80GB")
    };
    assert!(of_weight(50_257) > 1.5 * of_weight(50_264));
}

#[test]
fn power_limits_the_matrix_multiplication_rate() {
    let options = Options { tf32_matmuls: true, tf32_convolutions: true };
    let rate = |operator: &Operator, name: &str| {
        let cost = cost(operator, device(name), &options);
        cost.flops / cost.time_ns.value
    };
    let half = matmul(8192, 8192, 8192);
    let mut single = half.clone();
    for input in &mut single.inputs {
        if let Arg::Tensor(tensor) = input {
            tensor.element = Some(SINGLE);
        }
    }
    // 250 W and 400 W. Twice the bits take twice the energy.
    for operator in [&half, &single] {
        let (little, much) = (rate(operator, "A100-PCIe-40GB"), rate(operator, "A100-SXM4-80GB"));
        assert!(much > 1.1 * little, "{much} {little}");
    }
    let ratio = rate(&half, "A100-PCIe-40GB") / rate(&single, "A100-PCIe-40GB");
    assert!((1.6..2.1).contains(&ratio), "{ratio}");
}

#[test]
fn weight_reordering_does_not_scale_with_the_batch() {
    use ridgeline_devices::cpu::cpu;
    let time = |batch| {
        let mut operator = convolution(1, batch, 512, 4);
        for input in &mut operator.inputs {
            if let Arg::Tensor(tensor) = input {
                tensor.element = Some(SINGLE);
            }
        }
        cost(&operator, &cpu(None, 1), &Options::default()).time_ns.value
    };
    // Measured: 0.70, on a core that does more multiplications per byte loaded.
    let half = time(4) / time(8);
    assert!((0.55..0.75).contains(&half), "{half}");
}

#[test]
fn measured_ceilings_replace_datasheet_values() {
    let mut slow = device("RTX3090").clone();
    slow.ceilings = Some(ridgeline_devices::device_spec::Ceilings {
        bandwidth: Some(100e9),
        ..Default::default()
    });
    let add = elementwise(1 << 26);
    let time = cost(&add, &slow, &Options::default()).time_ns.value;
    let expected = 12.0 * f64::from(1 << 26) / 100e9 * 1e9;
    assert!((0.8..1.4).contains(&(time / expected)), "{}", time / expected);
}

#[test]
fn coefficients_are_plausible() {
    let text = include_str!("coefficients.json");
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    assert!(file["provenance"]["errors_of_what_was_left_out"].is_object());
    for (kind, share) in file["coefficients"]["attainable"].as_object().unwrap() {
        assert!((0.4..=1.0).contains(&share.as_f64().unwrap()), "{kind}");
    }
}

proptest! {
    /// Two percent of slack for waves that a larger batch fills better.
    #[test]
    fn time_grows_with_work(
        kind in 0..4,
        batch in 1..64_u64,
        size in 1..64_u64,
        device_index in 0..DeviceTable::shipped().devices().len(),
    ) {
        let device = &DeviceTable::shipped().devices()[device_index];
        let operator = |batch: u64| match kind {
            0 => matmul(batch * 64, size * 16, 256),
            1 => convolution(1, batch, 32, size),
            2 => convolution(32, batch, 32, size),
            _ => elementwise(batch * size * 1000),
        };
        let time = |batch| cost(&operator(batch), device, &Options::default()).time_ns.value;
        prop_assert!(time(2 * batch) >= 0.98 * time(batch));
    }

    #[test]
    fn time_respects_the_roofline(
        rows in 1..8192_u64, inner in 1..4096_u64, columns in 1..8192_u64,
        device_index in 0..DeviceTable::shipped().devices().len(),
    ) {
        let device = &DeviceTable::shipped().devices()[device_index];
        let operator = matmul(rows, inner, columns);
        let cost = cost(&operator, device, &Options::default());
        let peak = device.peaks.fp16.or(device.peaks.fp32).unwrap_or(f64::INFINITY);
        // Boards clock at most a quarter above their datasheets.
        prop_assert!(cost.time_ns.value >= 1e9 * cost.flops / (1.25 * peak));
    }

    #[test]
    fn absurd_shapes_stay_finite(
        name in prop::sample::select(vec![
            "aten::mm", "aten::convolution", "aten::convolution_backward", "aten::embedding",
            "aten::_cudnn_rnn", "aten::native_batch_norm", "aten::_foreach_add_", "aten::topk",
            "aten::_scaled_dot_product_flash_attention_backward", "aten::cat", "mylib::op",
        ]),
        shapes in prop::collection::vec(prop::collection::vec(
            prop::sample::select(vec![0, 1, 3, 7, 4096, u64::MAX / 2, u64::MAX]), 0..6), 0..6),
        groups in prop::sample::select(vec![-1.0, 0.0, 1.0, 7.0, 1e300]),
    ) {
        let mut inputs: Vec<Arg> = shapes.iter().map(|shape| arg(HALF, shape)).collect();
        inputs.push(Arg::List(inputs.clone()));
        inputs.resize(9, Arg::Number(groups));
        let outputs = shapes.first().map(|shape| tensor(HALF, shape)).into_iter().collect();
        let operator = Operator::new(name, inputs, outputs);
        for device in DeviceTable::shipped().devices().iter().take(5) {
            let cost = cost(&operator, device, &Options::default());
            prop_assert!(cost.time_ns.value.is_finite() && cost.time_ns.value >= 0.0);
            prop_assert!(cost.flops.is_finite() && cost.bytes.is_finite());
            prop_assert!(cost.time_ns.low <= cost.time_ns.high);
        }
    }
}

/// Creates an operator on attention scores and a second tensor of the same shape with the given
/// strides.
fn scores_with(operator: &str, strides: Option<Vec<i64>>) -> Operator {
    let shape = [4, 16, 1024, 1024];
    let other = Arg::Tensor(Tensor { strides, ..tensor(SINGLE, &shape) });
    Operator::new(operator, vec![arg(SINGLE, &shape), other], vec![tensor(SINGLE, &shape)])
}

#[test]
fn a_bias_with_another_layout_costs_more() {
    let in_order = time_ns(&scores_with("aten::add_.Tensor", None), "A100-PCIe-40GB");
    let apart = Some(vec![16, 1, 65_536, 16]);
    let across = time_ns(&scores_with("aten::add_.Tensor", apart), "A100-PCIe-40GB");
    assert!((1.5..4.0).contains(&(across / in_order)), "{}", across / in_order);
}

#[test]
fn a_broadcast_mask_costs_no_more_than_the_scores() {
    let mask = |strides| scores_with("aten::where.self", Some(strides));
    let broadcast = time_ns(&mask(vec![0, 0, 0, 0]), "A100-PCIe-40GB");
    let in_order = time_ns(&scores_with("aten::where.self", None), "A100-PCIe-40GB");
    assert!(broadcast <= in_order, "{}", broadcast / in_order);
}

#[test]
fn fp32_matrix_multiplications_match_reported_rates() {
    // In TFLOP/s, of 8192 x 8192 matrices (github.com/zzc0721/torch-performance-test-data).
    let shape = [8192, 8192];
    let inputs = vec![arg(SINGLE, &shape), arg(SINGLE, &shape)];
    let matmul = Operator::new("aten::mm", inputs, vec![tensor(SINGLE, &shape)]);
    for (name, reported) in [
        ("A100-SXM4-80GB", 19.1),
        ("H100-SXM5-80GB", 52.1),
        ("RTX3090", 24.8),
        ("RTX4090", 54.7),
        ("RTX5090", 69.2),
        ("T4", 4.3),
    ] {
        let rate = 2.0 * 8192.0_f64.powi(3) / time_ns(&matmul, name) / 1e3;
        assert!((rate / reported - 1.0).abs() < 0.08, "{name}: {rate}, reported {reported}");
    }
}
