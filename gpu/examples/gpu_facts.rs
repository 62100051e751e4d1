//! Prints what this crate asks a GPU, for `tests/gpu/run`: devices, measured ceilings, and the
//! driver's occupancy of kernels of known shape (as JSON, one case a line).
//!
//! `cargo run --release -p ridgeline-gpu --example gpu_facts [INDEX]`

use ridgeline_gpu::{ceilings, devices, occupancy_driver};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let index = std::env::args().nth(1).map_or(Ok(0), |index| index.parse())?;
    let found = devices::query().await;
    println!("driver: {:?}", found.driver);
    println!("nvml: {:?}", found.nvml);
    for gpu in &found.gpus {
        println!("gpu: {gpu:?}");
    }
    println!("ceilings: {:#?}", ceilings::measure(index, CancellationToken::new()).await?);
    for case in occupancy_driver::cases(index)? {
        println!("occupancy: {}", serde_json::to_string(&case)?);
    }
    Ok(())
}
