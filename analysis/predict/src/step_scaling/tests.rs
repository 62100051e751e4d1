use super::*;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::op_list::OpList;

fn device(name: &str) -> &'static DeviceSpec {
    DeviceTable::shipped().find(name).expect("it is in the table")
}

/// Builds a list with one signature that runs `count` times.
fn list(signature: &str, count: usize) -> OpList {
    let column = |value: &str| vec![value; count].join(",");
    let text = format!(
        r#"{{"version": 1, "outcome": "complete", "torch": "2.4.0", "device": "cuda",
            "files": [], "stacks": [], "modules": [], "signatures": [{signature}],
            "ops": {{"signature": [{}], "phase": [{}], "stack": [{}], "module": [{}]}}}}"#,
        column("0"),
        column("1"),
        column("-1"),
        column("-1")
    );
    OpList::parse(text.as_bytes()).expect("a list")
}

fn addition(rows: u64) -> OpList {
    let tensor = format!(r#"{{"t": "float16", "s": [{rows}, 1048576]}}"#);
    list(
        &format!(r#"{{"op": "aten::add.Tensor", "in": [{tensor}, {tensor}], "out": [{tensor}]}}"#),
        3,
    )
}

fn gemm() -> OpList {
    let tensor = r#"{"t": "float16", "s": [8192, 8192]}"#;
    list(&format!(r#"{{"op": "aten::mm", "in": [{tensor}, {tensor}], "out": [{tensor}]}}"#), 3)
}

#[track_caller]
fn ratio(list: &OpList, milliseconds: f64, from: &str, to: &str) -> f64 {
    let measured = MeasuredStep { milliseconds, list, device: device(from), compiled: false };
    let range =
        scale_step(&measured, list, device(to), &[Phase::Forward]).expect("it costs something");
    assert!(range.low < range.value && range.value < range.high);
    range.value / milliseconds
}

#[test]
fn the_same_device_takes_the_same_time() {
    for milliseconds in [0.001, 1.0, 1e5] {
        let same = ratio(&gemm(), milliseconds, "RTX3090", "RTX3090");
        assert!((same - 1.0).abs() < 1e-9, "{same}");
    }
}

#[test]
fn element_wise_kernels_scale_with_bandwidth_and_gemms_with_compute() {
    let (from, to) = (device("RTX3090"), device("RTX4090"));
    let stream = ratio(&addition(1024), 1.0, "RTX3090", "RTX4090");
    assert!((stream - from.bandwidth / to.bandwidth).abs() < 0.01, "{stream}");
    let (peak, other) = (from.peaks.fp16.expect("known"), to.peaks.fp16.expect("known"));
    let compute_ratio = ratio(&gemm(), 1.0, "RTX3090", "RTX4090");
    assert!((compute_ratio - peak / other).abs() < 0.02, "{compute_ratio}");
}

#[test]
fn data_that_fits_the_cache_gains_more() {
    // The data fits the cache of the second device but not that of the first.
    let small = ratio(&addition(5), 1e-6, "RTX3090", "RTX4090");
    let large = ratio(&addition(1024), 1e-6, "RTX3090", "RTX4090");
    assert!(small < large, "{small} {large}");
}

#[test]
fn unexplained_time_scales_between_compute_and_bandwidth() {
    let mostly_rest = ratio(&gemm(), 1e6, "RTX3090", "RTX4090");
    assert!((0.43..0.93).contains(&mostly_rest), "{mostly_rest}");
}

#[test]
fn twice_the_batch_takes_twice_as_long() {
    let (one, two) = (addition(512), addition(1024));
    let from = device("RTX3090");
    for milliseconds in [0.5, 500.0] {
        let measured = MeasuredStep { milliseconds, list: &one, device: from, compiled: false };
        let range = scale_step(&measured, &two, from, &[Phase::Forward]).expect("it costs");
        assert!((range.value / milliseconds - 2.0).abs() < 0.05, "{}", range.value);
    }
}

#[test]
fn a_step_without_kernels_is_not_scaled() {
    let empty = list(r#"{"op": "aten::view", "in": [], "out": []}"#, 2);
    let measured = MeasuredStep {
        milliseconds: 1.0,
        list: &empty,
        device: device("RTX3090"),
        compiled: false,
    };
    assert_eq!(scale_step(&measured, &empty, device("RTX4090"), &[Phase::Forward]), None);
}

#[test]
fn fused_kernels_of_a_compiled_step_scale_with_bandwidth() {
    // Nearly all of the step is in fused kernels, which the operator list does not show.
    let list = gemm();
    let (from, to) = (device("RTX3090"), device("RTX4090"));
    let measured = MeasuredStep { milliseconds: 1e6, list: &list, device: from, compiled: true };
    let range = scale_step(&measured, &list, to, &[Phase::Forward]).expect("it costs something");
    let ratio = range.value / measured.milliseconds;
    assert!((ratio - from.bandwidth / to.bandwidth).abs() < 0.01, "{ratio}");
}

#[test]
fn gemm_rates_agree_with_reported_ones() {
    // The best FP16 rate of a large GEMM in PyTorch, in TFLOP/s, relative to 167 on an RTX 4090
    // (github.com/zzc0721/torch-performance-test-data, medians).
    let mut table = String::new();
    for (name, reported) in [
        ("RTX3090", 75.6),
        ("RTX5090", 224.4),
        ("L40S", 264.0),
        ("A100-PCIe-40GB", 247.6),
        ("A100-SXM4-80GB", 258.7),
        ("H100-SXM5-80GB", 760.0),
    ] {
        let rate = 167.0 / ratio(&gemm(), 1.0, "RTX4090", name);
        table.push_str(&format!("{name}: {rate:.0}, reported {reported:.0}\n"));
    }
    expect_test::expect![[r#"
        RTX3090: 72, reported 76
        RTX5090: 212, reported 224
        L40S: 243, reported 264
        A100-PCIe-40GB: 251, reported 248
        A100-SXM4-80GB: 251, reported 259
        H100-SXM5-80GB: 617, reported 760
    "#]]
    .assert_eq(&table);
}
