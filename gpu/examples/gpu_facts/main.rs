//! Prints this crate's facts about a GPU, for `tests/gpu/run`: its properties, measured ceilings
//! next to the table's peaks, and the driver's occupancy of known kernels next to the one that
//! `analysis` computes (one JSON object per line).
//!
//! `cargo run --release -p ridgeline-gpu --example gpu_facts [INDEX]`

use ridgeline_devices::device_spec::{Ceilings, Rates};
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_devices::occupancy::Launch;
use ridgeline_devices::occupancy::occupancy;
use ridgeline_gpu::{ceilings, devices};
use serde_json::{Value, json};

use self::occupancy_driver::OccupancyCase;

mod occupancy_driver;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let index = std::env::args().nth(1).map_or(Ok(0), |index| index.parse())?;
    let found = devices::query().await;
    println!("driver: {:?}", found.driver);
    println!("nvml: {:?}", found.nvml);
    for gpu in &found.gpus {
        println!("gpu: {gpu:?}");
    }
    let measured = ceilings::measure(index)?;
    println!("measured: {measured:#?}");
    println!("ceilings: {}", measured_and_table(&measured.device_name, &measured.rates()));
    for case in occupancy_driver::cases(index)? {
        let mut line = serde_json::to_value(case)?;
        if let Some(fields) = line.as_object_mut() {
            fields.insert("computed_blocks".to_owned(), json!(computed_blocks(&case)));
        }
        println!("occupancy: {line}");
    }
    Ok(())
}

/// Returns the measured ceilings and the entry of the device table for the same GPU, which is null
/// if it is not in the table.
fn measured_and_table(name: &str, measured: &Ceilings) -> Value {
    let table = DeviceTable::shipped().find(name).map(|device| {
        json!({"name": device.name, "bandwidth": device.bandwidth, "tdp_w": device.tdp_w,
               "gemm": rates(&device.peaks)})
    });
    json!({
        "device": name,
        "bandwidth": measured.bandwidth,
        "gemm": rates(&measured.gemm),
        "launch_ns": measured.launch_ns,
        "host_to_device": measured.host_to_device,
        "device_to_host": measured.device_to_host,
        "table": table,
    })
}

fn rates(rates: &Rates) -> Value {
    json!({"fp32": rates.fp32, "tf32": rates.tf32, "fp16": rates.fp16, "bf16": rates.bf16})
}

/// Concurrent blocks per multiprocessor, computed by `analysis`. `None` if it does not know the
/// device.
fn computed_blocks(case: &OccupancyCase) -> Option<u32> {
    let shared = u32::try_from(case.static_shared_bytes + case.dynamic_shared_bytes).ok()?;
    let launch = Launch {
        grid: Some([1_000_000, 1, 1]),
        block: Some([case.threads, 1, 1]),
        registers: u32::try_from(case.registers).ok(),
        shared_memory_bytes: Some(shared),
        ..Launch::default()
    };
    let capability =
        (u32::try_from(case.capability.0).ok()?, u32::try_from(case.capability.1).ok()?);
    Some(occupancy(&launch, capability, 1)?.blocks_per_multiprocessor)
}
