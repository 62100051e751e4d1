//! Measures a GPU for the language server: in a child process, with the cuBLASLt of the Python that
//! trained on it.

use std::path::PathBuf;

use ridgeline_analysis::profile::Device;
use ridgeline_gpu::ceilings::{cublas_folders, measure_in_child};
use ridgeline_gpu::devices;

use super::{Pipeline, Request, blocking};
use crate::measured_rates::{Identity, Measurement, Target, of_device};

/// Returns the GPU of this machine that `device` refers to, unless it was already measured with its
/// current driver.
pub(super) async fn unmeasured(pipeline: &Pipeline, device: &Device) -> Option<Target> {
    let found = devices::query().await;
    let is_target =
        |gpu: &&devices::Gpu| gpu.name == device.name && gpu.is_simulated == device.is_simulated;
    let gpu = found.gpus.iter().find(is_target)?;
    let identity = Identity::of(gpu, &found);
    let is_known = of_device(pipeline.store(), &identity).is_some();
    (!is_known).then(|| Target::new(gpu, identity))
}

/// Measures a GPU and stores its rates. Returns a message for the user, or why it failed.
pub(super) async fn measure(
    pipeline: &Pipeline,
    target: Target,
    request: Request,
) -> Result<String, String> {
    // The interpreter of the last run is known, so this does not start Python.
    let folders: Vec<PathBuf> = match pipeline.plan(request).await {
        Ok(plan) => match pipeline.interpreter(&plan).await {
            Ok(python) => cublas_folders(&python.prefix, python.version),
            Err(_) => Vec::new(),
        },
        // The system may have the library. Otherwise GEMM rates are missing, and the message says
        // so.
        Err(_) => Vec::new(),
    };
    let ridgeline = std::env::current_exe().map_err(|error| error.to_string())?;
    let ceilings = measure_in_child(&ridgeline, target.index, &folders).await;
    let ceilings = ceilings.map_err(|error| error.to_string())?;
    if ceilings.device_name != target.device.name {
        return Err(format!("another GPU was measured: {}", ceilings.device_name));
    }
    let measurement = Measurement::now(target.device, ceilings);
    let (store, stored) = (pipeline.store().clone(), measurement.clone());
    let stored =
        blocking(move || stored.keep(&store)).await.map_err(|_| "internal error".to_owned())?;
    stored.map_err(|error| error.to_string())?;
    let (_, refused) = measurement.rates();
    let refused: Vec<String> = refused.iter().map(|why| format!(" {why}.")).collect();
    Ok(format!(
        "Measured {}: {}. Predictions use these rates from the next run on.{}",
        measurement.device.name,
        measurement.summary(),
        refused.concat()
    ))
}
