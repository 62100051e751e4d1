//! Checks predictions for other GPUs, made from GPU traces and from CPU recordings.

use crate::recorded;

use ridgeline_analysis::attribution::{attribute, host_ns_per_operator, recorded_step};
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::operators::recorded_step::RecordedStep;
use ridgeline_analysis::predict::device_comparison::{
    Basis, Comparison, ComparisonInput, Host, Row, compare, compare_with_host,
};
use ridgeline_analysis::recording::Recording;

fn step(recording: &Recording) -> RecordedStep {
    recorded_step(recording, &attribute(recording).unwrap())
}

fn comparison(step: &RecordedStep) -> Comparison {
    compare(ComparisonInput::Recorded(step), DeviceTable::shipped()).expect("there are operators")
}

fn row<'a>(comparison: &'a Comparison, name: &str) -> &'a Row {
    comparison.rows.iter().find(|row| row.device.name == name).expect(name)
}

#[track_caller]
fn check_ranges(comparison: &Comparison) {
    assert_eq!(comparison.rows.len(), DeviceTable::shipped().devices().len());
    for Row { device, time_ns, joules, .. } in &comparison.rows {
        for range in [Some(*time_ns), *joules].into_iter().flatten() {
            assert!(range.low > 0.0 && range.high.is_finite(), "{}: {range:?}", device.name);
            assert!(range.low <= range.value && range.value <= range.high, "{}", device.name);
        }
    }
    let times: Vec<f64> = comparison.rows.iter().map(|row| row.time_ns.value).collect();
    assert!(times.is_sorted());
}

#[test]
fn gpu_traces_are_scaled_and_reproduce_the_measured_gpu() {
    for path in recorded::sample_traces().unwrap_or_default() {
        let recording = Recording { trace: recorded::trace(&path), ..Recording::default() };
        let step = step(&recording);
        let comparison = comparison(&step);
        check_ranges(&comparison);
        assert_eq!(comparison.basis, Basis::WaveScaling, "{}", path.display());
        let measured: Vec<&Row> = comparison.rows.iter().filter(|row| row.here).collect();
        let [measured] = measured[..] else {
            panic!("{}: {} rows are here", path.display(), measured.len())
        };
        assert_eq!(measured.time_ns.value, step.time_ns);
        // The measured row is copied. The same GPU under another name goes through the scaling.
        let mut twin = measured.device.clone();
        twin.name = "its twin".to_owned();
        let mut table = DeviceTable::shipped().clone();
        assert!(table.add(twin));
        let comparison = compare(ComparisonInput::Recorded(&step), &table).unwrap();
        let scaled = row(&comparison, "its twin").time_ns.value;
        assert!((scaled / step.time_ns - 1.0).abs() < 0.01, "{}: {scaled}", path.display());
        eprintln!(
            "{}: {} {:.1} ms, T4 {:.1} ms, B200 {:.1} ms",
            path.file_name().unwrap().to_string_lossy(),
            measured.device.name,
            measured.time_ns.value / 1e6,
            row(&comparison, "T4").time_ns.value / 1e6,
            row(&comparison, "B200-SXM6-180GB").time_ns.value / 1e6,
        );
    }
}

#[test]
fn cpu_recordings_use_operator_costs() {
    for (name, folder) in recorded::recordings() {
        let step = step(&recorded::recording(&folder));
        let comparison = comparison(&step);
        check_ranges(&comparison);
        assert_eq!((comparison.basis, &comparison.from), (Basis::OperatorCosts, &None), "{name}");
        assert!(comparison.rows.iter().all(|row| !row.here), "{name}");
        let flops = |name: &str| row(&comparison, name).device.peaks.fp32.unwrap();
        assert!(flops("T4") < flops("RTX4090"));
        let (slow, fast) = (row(&comparison, "T4"), row(&comparison, "RTX4090"));
        assert!(fast.time_ns.value <= slow.time_ns.value, "{name}");
    }
}

#[test]
fn cpu_recordings_give_the_host_time_per_operator() {
    let mut known = 0;
    for (name, folder) in recorded::recordings() {
        let recording = recorded::recording(&folder);
        let profile = attribute(&recording).unwrap();
        let Some(per_operator_ns) = host_ns_per_operator(&recording, &profile) else { continue };
        known += 1;
        eprintln!("{name}: {:.1} µs for each operator", per_operator_ns / 1e3);
        // A few microseconds of dispatch, and up to some tens of microseconds of Python.
        assert!((1e3..200e3).contains(&per_operator_ns), "{name}: {per_operator_ns}");
        let step = step(&recording);
        let subject = ComparisonInput::Recorded(&step);
        let comparison =
            compare_with_host(subject, DeviceTable::shipped(), Some(per_operator_ns)).unwrap();
        check_ranges(&comparison);
        assert!(matches!(comparison.host, Host::Recorded { .. }), "{name}");
    }
    assert!(known > 0);
}
