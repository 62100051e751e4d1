//! `ridgeline measure-device INDEX`: the child process that measures a GPU. A driver that hangs or
//! crashes only affects this process.

use ridgeline_gpu::ceilings::measure;

use super::MeasureDeviceArgs;
use super::exit::Failure;
use super::terminal::Terminal;

/// Runs the subcommand.
pub(super) fn run(args: &MeasureDeviceArgs, terminal: &Terminal) -> Result<(), Failure> {
    let measured = measure(args.index as usize);
    let measured = measured.map_err(|error| Failure::failed(error.to_string(), ""))?;
    let text =
        serde_json::to_string(&measured).map_err(|error| Failure::failed(error.to_string(), ""))?;
    terminal.print(&format!("{text}\n"))
}
