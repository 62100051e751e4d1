use super::*;
use crate::device_comparison::{ComparisonInput, compare, compare_with_host};
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::op_list::{Batch, Memory, Op, OpList, Outcome};
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_operators::recorded_step::RecordedStep;

const MEGABYTE: u64 = 1_000_000;

/// Ten linear layers of width 1024, with 16 rows per sample.
fn list(batch: u64) -> OpList {
    let tensor = |rows: u64, columns: u64| Tensor::new(ElementType::Float32, &[rows, columns]);
    let rows = batch * 16;
    let inputs = [tensor(rows, 1024), tensor(1024, 1024)].map(Arg::Tensor);
    let matmul = Operator::new("aten::mm", inputs.to_vec(), vec![tensor(rows, 1024)]);
    OpList {
        outcome: Outcome::Complete,
        signatures: vec![matmul],
        ops: vec![Op::default(); 10],
        batch: Some(Batch { size: Some(batch), from: None }),
        memory: Some(Memory { peak_bytes: (500 + 10 * batch) * MEGABYTE, ..Memory::default() }),
        ..OpList::default()
    }
}

fn batches(list: &OpList, larger: &OpList) -> GpuBatches {
    let scaled = ScaledStep::between(list, larger).expect("it scales");
    let comparison = compare(ComparisonInput::Estimated(list), DeviceTable::shipped());
    gpu_batches(&comparison.expect("operators"), &scaled).expect("rows")
}

#[track_caller]
fn row<'a>(batches: &'a GpuBatches, name: &str) -> &'a GpuBatch {
    batches.rows.iter().find(|row| row.device.name == name).expect("the GPU")
}

#[test]
fn a_faster_gpu_needs_a_larger_batch() {
    let found = batches(&list(1), &list(8));
    let (slow, fast) = (row(&found, "T4"), row(&found, "H100-SXM5-80GB"));
    assert!(slow.batch_size < fast.batch_size, "{} and {}", slow.batch_size, fast.batch_size);
    assert!(slow.samples_per_second.value < fast.samples_per_second.value);
    assert_eq!((slow.limit, fast.limit), (None, None));
}

/// The predicted time is that of the operators at that batch, and half the batch leaves the GPU idle.
#[test]
fn the_batch_is_the_smallest_power_of_two_that_keeps_the_gpu_busy() {
    let found = batches(&list(1), &list(8));
    for row in &found.rows {
        let at = |batch| OperatorStep::from(&list(batch)).on(&row.device);
        assert!(row.batch_size.is_power_of_two());
        let here = at(row.batch_size);
        assert!(!here.waits_for_host, "{}", row.device.name);
        assert!((row.time_ns.value / here.time_ns.value - 1.0).abs() < 1e-9);
        assert!(row.batch_size == 1 || at(row.batch_size / 2).waits_for_host);
    }
}

#[test]
fn the_largest_batch_leaves_room_for_the_context() {
    let found = batches(&list(8), &list(64));
    // 16 GB without 0.8 GB for the context and 0.5 GB for the weights, 10 MB per sample.
    let largest = row(&found, "P100-PCIe-16GB").largest.expect("it grows");
    let room = row(&found, "P100-PCIe-16GB").device.memory_bytes - RESERVED_BYTES;
    assert_eq!(largest.value, (room / MEGABYTE - 500) / 10);
    assert!(largest.low < largest.value && largest.value < largest.high);
}

#[test]
fn a_batch_is_limited_by_memory() {
    let heavy = |batch| {
        let mut list = list(batch);
        list.memory = Some(Memory { peak_bytes: 9_000 * MEGABYTE * batch, ..Memory::default() });
        list
    };
    let found = batches(&heavy(1), &heavy(2));
    let limited = row(&found, "H100-SXM5-80GB");
    assert_eq!(limited.limit, Some(Limit::Memory));
    assert_eq!(Some(limited.batch_size), limited.largest.map(|largest| largest.low));
    let too_large = |batch| {
        let mut list = list(batch);
        list.memory = Some(Memory { peak_bytes: 20_000 * MEGABYTE * batch, ..Memory::default() });
        list
    };
    let found = batches(&too_large(1), &too_large(2));
    assert!(found.too_small.iter().any(|name| name == "T4"), "{:?}", found.too_small);
    assert!(found.rows.iter().all(|row| row.device.name != "T4"));
}

#[test]
fn a_batch_has_at_most_the_samples_of_an_epoch() {
    let operators = OperatorStep::from(&list(8)).operators;
    let recorded = RecordedStep {
        operators,
        batch_size: Some(8),
        samples_per_epoch: Some(10),
        ..RecordedStep::default()
    };
    let scaled = ScaledStep::between(&list(8), &list(64)).expect("it scales");
    let input = ComparisonInput::Recorded(&recorded);
    let comparison = compare_with_host(input, DeviceTable::shipped(), Some(1e6));
    let found = gpu_batches(&comparison.expect("operators"), &scaled).expect("rows");
    for row in &found.rows {
        assert_eq!((row.batch_size, row.limit), (10, Some(Limit::Epoch)), "{}", row.device.name);
    }
}

/// The wait for data grows with the batch: a slow loader limits the throughput of every GPU.
#[test]
fn a_slow_loader_limits_throughput() {
    let recorded = RecordedStep {
        operators: OperatorStep::from(&list(8)).operators,
        batch_size: Some(8),
        data_ns: 1e9,
        ..RecordedStep::default()
    };
    let scaled = ScaledStep::between(&list(8), &list(64)).expect("it scales");
    let of = |step: &RecordedStep| {
        let comparison = compare(ComparisonInput::Recorded(step), DeviceTable::shipped());
        gpu_batches(&comparison.expect("operators"), &scaled).expect("rows")
    };
    let found = of(&recorded);
    assert!(found.rows.iter().all(|row| row.limit == Some(Limit::Data)));
    let samples = found.rows.iter().map(|row| row.samples_per_second.value);
    assert!(samples.fold(0.0, f64::max) < 8.0);
    let without = of(&RecordedStep { data_ns: 0.0, ..recorded.clone() });
    // The batch sizes are those of a fast loader.
    let sizes = |batches: &GpuBatches| {
        let mut sizes: Vec<(String, u64)> =
            batches.rows.iter().map(|row| (row.device.name.clone(), row.batch_size)).collect();
        sizes.sort();
        sizes
    };
    assert_eq!(sizes(&found), sizes(&without));
}

#[test]
fn the_lowest_price_per_sample_is_first() {
    let found = batches(&list(1), &list(8));
    let prices = found.rows.iter().filter_map(|row| row.usd_per_million_samples);
    assert!(prices.map(|usd| usd.value).is_sorted());
    let first_without = found.rows.iter().position(|row| row.usd_per_million_samples.is_none());
    let unpriced = &found.rows[first_without.expect("not all have a price")..];
    assert!(unpriced.iter().all(|row| row.usd_per_million_samples.is_none()));
}

#[test]
fn prices_follow_those_of_the_comparison() {
    let (one, other) = (list(1), list(8));
    let scaled = ScaledStep::between(&one, &other).expect("it scales");
    let comparison = compare(ComparisonInput::Estimated(&one), DeviceTable::shipped());
    let comparison = comparison.expect("operators");
    let found = gpu_batches(&comparison, &scaled).expect("rows");
    let prices = BTreeMap::from([("T4".to_owned(), 70.0)]);
    let changed = found.with_prices_of(&comparison.with_prices(&prices));
    let usd =
        |batches: &GpuBatches| row(batches, "T4").usd_per_million_samples.expect("a price").value;
    assert!((usd(&changed) / usd(&found) - 70.0 / 0.35).abs() < 1e-6);
    assert_eq!(row(&changed, "L4"), row(&found, "L4"));
}
