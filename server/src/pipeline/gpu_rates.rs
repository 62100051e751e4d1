//! Measuring a GPU for the language server: in a child process, with the cuBLASLt of the Python that
//! trained on it.

use std::path::PathBuf;

use ridgeline_analysis::profile::Device;
use ridgeline_gpu::ceilings::{cublas_folders, measure_in_child};
use ridgeline_gpu::devices;

use super::{Pipeline, Request, blocking};
use crate::measured_rates::{Identity, Measurement, Target, of_device};

/// The GPU of this machine that `device` is, where it was not measured with its driver yet.
pub(super) async fn unmeasured(pipeline: &Pipeline, device: &Device) -> Option<Target> {
    let found = devices::query().await;
    let is_it =
        |gpu: &&devices::Gpu| gpu.name == device.name && gpu.is_simulated == device.is_simulated;
    let gpu = found.gpus.iter().find(is_it)?;
    let identity = Identity::of(gpu, &found);
    let is_known = of_device(pipeline.store(), &identity).is_some();
    (!is_known).then(|| Target::new(gpu, identity))
}

/// Measures a GPU and keeps its rates. What a person is told of it, or why nothing was measured.
pub(super) async fn measure(
    pipeline: &Pipeline,
    target: Target,
    request: Request,
) -> Result<String, String> {
    // The Python that trained is known, so that this starts none.
    let folders: Vec<PathBuf> = match pipeline.plan(request).await {
        Ok(plan) => match pipeline.interpreter(&plan).await {
            Ok(python) => cublas_folders(&python.prefix, python.version),
            Err(_) => Vec::new(),
        },
        // The system may have the library; else the rates of GEMMs are missing, which is told.
        Err(_) => Vec::new(),
    };
    let ridgeline = std::env::current_exe().map_err(|error| error.to_string())?;
    let ceilings = measure_in_child(&ridgeline, target.index, &folders).await;
    let ceilings = ceilings.map_err(|error| error.to_string())?;
    if ceilings.device_name != target.device.name {
        return Err(format!("another GPU was measured: {}", ceilings.device_name));
    }
    let measurement = Measurement::today(target.device, ceilings);
    let (store, kept) = (pipeline.store().clone(), measurement.clone());
    let kept =
        blocking(move || kept.keep(&store)).await.map_err(|_| "internal error".to_owned())?;
    kept.map_err(|error| error.to_string())?;
    let (_, refused) = measurement.rates();
    let refused: Vec<String> = refused.iter().map(|why| format!(" {why}.")).collect();
    Ok(format!(
        "Measured {}: {}. Predictions use these rates from the next run on.{}",
        measurement.device.name,
        measurement.summary(),
        refused.concat()
    ))
}
