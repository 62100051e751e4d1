//! What `ridgeline doctor` reports: facts, and advice where something is missing.

use crate::agent::AgentFacts;
use crate::devices::Devices;
use crate::interpreter::{Consent, Interpreter, Search, Surroundings};
use crate::limits::Machine;

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Cores and memory.
    pub machine: Machine,
    /// The Python to run in, or why there is none.
    pub interpreter: Result<Interpreter, crate::interpreter::InterpreterError>,
    /// What the agent said when it was started, or why it did not start. `None` where it was not
    /// tried, since there is no usable Python.
    pub agent: Option<Result<AgentFacts, String>>,
    /// GPUs and drivers.
    pub devices: Devices,
    /// What to do, most important first. Empty where all is well.
    pub advice: Vec<String>,
}

/// Looks at everything; takes as long as importing torch does.
pub async fn examine(
    _search: &Search,
    _surroundings: &Surroundings,
    _consent: Consent,
    _cache: &std::path::Path,
) -> Report {
    todo!()
}
