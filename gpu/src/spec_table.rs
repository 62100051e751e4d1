//! Peak rates of known GPUs by name, each with its source: `spec_table.json`.

use ridgeline_analysis::profile::Roof;

/// The roof of a device by the name that torch, the driver or a trace gives it; `None` where it is
/// not in the table.
pub fn roof(_device_name: &str) -> Option<Roof> {
    todo!()
}
