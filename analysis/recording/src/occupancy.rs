//! The occupancy of a trace's kernels.

use ridgeline_devices::occupancy::{Occupancy, occupancy};

use crate::trace::{Activity, Trace};

/// The occupancy of a kernel of a trace.
pub fn occupancy_of(trace: &Trace, kernel: &Activity) -> Option<Occupancy> {
    let details = trace.details(kernel);
    let device = trace.device(details.device?)?;
    // AMD numbers its architectures with the same digits: a gfx90a is 9.0 as an H100 is.
    if device.is_amd() {
        return None;
    }
    occupancy(&details.launch, device.capability?, device.multiprocessors?)
}
