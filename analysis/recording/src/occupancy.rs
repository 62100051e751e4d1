//! The occupancy of a trace's kernels.

use ridgeline_devices::occupancy::{Occupancy, occupancy};

use crate::trace::{Activity, Trace};

/// Computes the occupancy of a kernel of a trace.
pub fn occupancy_of(trace: &Trace, kernel: &Activity) -> Option<Occupancy> {
    let details = trace.details(kernel);
    let device = trace.device(details.device?)?;
    // AMD uses the same numbers for its architectures: gfx90a has 9.0 like an H100.
    if device.is_amd() {
        return None;
    }
    occupancy(&details.launch, device.capability?, device.multiprocessors?)
}
