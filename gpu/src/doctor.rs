//! What `ridgeline doctor` reports: facts, and advice on problems.

use std::collections::BTreeMap;
use std::path::Path;

use crate::agent::{Agent, AgentFacts, AgentOptions, Mode, Timeouts};
use crate::devices::{self, Devices, Driver};
use crate::interpreter::{
    Consent, Interpreter, InterpreterError, Origin, Search, SystemEnvironment, find,
};
use crate::limits::Machine;

/// The results of the checks.
#[derive(Clone, Debug)]
pub struct Report {
    /// Cores and memory.
    pub machine: Machine,
    /// The Python to use, or why there is none.
    pub interpreter: Result<Interpreter, InterpreterError>,
    /// What the agent reported when it was started, or why it did not start. `None` if it was not
    /// started, because that was not requested or there is no usable Python.
    pub agent: Option<Result<AgentFacts, String>>,
    /// GPUs and drivers.
    pub devices: Devices,
    /// What to do, most important first. Empty if there are no problems.
    pub advice: Vec<String>,
}

/// Runs all checks. Starting the agent imports torch, which takes seconds; the rest is fast.
pub async fn examine(
    search: &Search,
    surroundings: &SystemEnvironment,
    consent: Consent,
    cache: &Path,
    start_agent: bool,
) -> Report {
    let (interpreter, devices) =
        tokio::join!(find(search, surroundings, consent), devices::query());
    let agent = match &interpreter {
        Ok(interpreter) if start_agent && interpreter.usable().is_ok() => {
            Some(try_agent(interpreter, cache).await)
        }
        _ => None,
    };
    let mut report =
        Report { machine: Machine::query(), interpreter, agent, devices, advice: Vec::new() };
    report.advice = advice(&report);
    report
}

async fn try_agent(interpreter: &Interpreter, cache: &Path) -> Result<AgentFacts, String> {
    let options = AgentOptions {
        interpreter: interpreter.path.clone(),
        cache: cache.to_owned(),
        env: BTreeMap::new(),
        standby: false,
        cuda: false,
        launch: false,
        patience: Timeouts::default(),
    };
    let agent = Agent::start(options).await.map_err(|error| error.to_string())?;
    let facts = agent.facts();
    agent.stop().await;
    facts.ok_or_else(|| "no error message".to_owned())
}

/// Free memory below which torch and a model hardly fit next to an editor.
const LOW_MEMORY_BYTES: u64 = 4_000_000_000;

fn advice(report: &Report) -> Vec<String> {
    let mut advice = Vec::new();
    match &report.interpreter {
        Err(error) => advice.push(error.to_string()),
        Ok(interpreter) => {
            if let Err(error) = interpreter.usable() {
                advice.push(error.to_string());
            }
            if interpreter.origin == Origin::Private {
                advice.push(
                    "no Python on PATH has torch, so the private environment is used: \
                    other packages that the program imports may be missing there"
                        .to_owned(),
                );
            }
        }
    }
    match &report.agent {
        Some(Err(error)) => advice.push(error.clone()),
        Some(Ok(facts)) if facts.mode == Mode::Standby => {
            let why = facts.why.as_deref().unwrap_or("this system does not support safe forking");
            advice.push(format!("runs start more slowly on this machine: {why}"));
        }
        _ => {}
    }
    advice.extend(driver_advice(report));
    match report.machine.available_bytes {
        Some(bytes) if bytes < LOW_MEMORY_BYTES => advice.push(format!(
            "only {:.1} GB of memory is free: close other programs, or reduce the batch size",
            bytes as f64 / 1e9
        )),
        _ => {}
    }
    advice
}

fn driver_advice(report: &Report) -> Option<String> {
    let torch = report.interpreter.as_ref().ok().and_then(|python| python.torch.as_ref());
    let sees_gpu = matches!(&report.agent, Some(Ok(facts)) if facts.cuda);
    let advice = match &report.devices.driver {
        Driver::Ready { cuda } if !sees_gpu => {
            match (torch, torch.and_then(|torch| torch.cuda.as_deref())) {
                (None, _) => return None,
                (Some(_), None) => "this machine has a GPU, but torch is built without CUDA: \
                    install a CUDA build to profile on the GPU"
                    .to_owned(),
                (Some(_), Some(built)) if is_older(*cuda, built) => format!(
                    "the driver supports CUDA {}.{}, but torch is built for {built}: update the \
                    driver, or install torch for an older CUDA version",
                    cuda.0, cuda.1
                ),
                // Only the agent knows whether torch sees the GPU.
                (Some(_), Some(_)) if report.agent.is_none() => return None,
                (Some(_), Some(_)) => "this machine has a GPU, but torch does not see it: check \
                    CUDA_VISIBLE_DEVICES and `python -c \"import torch; torch.cuda.init()\"`"
                    .to_owned(),
            }
        }
        Driver::Mismatch => "the NVIDIA driver was updated, but the old kernel module is still \
            loaded (error 803): reboot"
            .to_owned(),
        Driver::Incomplete { symbol } => format!(
            "the CUDA driver has no function `{symbol}`: it is too old or not from NVIDIA; \
            reinstall it"
        ),
        Driver::Failed { code } => format!(
            "the CUDA driver fails with error {code}: check `nvidia-smi` and the system log; error \
            999 is often fixed by a reboot"
        ),
        Driver::Unresponsive { reason } => format!("the CUDA driver does not respond: {reason}"),
        Driver::Ready { .. } | Driver::Absent | Driver::NoDevice => return None,
    };
    Some(advice)
}

/// Whether the driver's CUDA has an older major version than the one that torch is built for.
/// Within a major version, any driver works with any build (CUDA minor version compatibility).
fn is_older(driver: (u32, u32), built: &str) -> bool {
    built
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .is_some_and(|major| driver.0 < major)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::Torch;

    fn healthy() -> Report {
        Report {
            machine: Machine {
                memory_bytes: Some(32_000_000_000),
                available_bytes: Some(16_000_000_000),
                cores: 8,
            },
            interpreter: Ok(Interpreter {
                path: "/usr/bin/python3".into(),
                origin: Origin::Path,
                version: (3, 12, 1),
                prefix: "/usr".into(),
                torch: Some(Torch {
                    version: "2.8.0".into(),
                    cuda: Some("12.8".into()),
                    hip: None,
                }),
            }),
            agent: Some(Ok(AgentFacts {
                protocol: 1,
                python: "3.12.1".into(),
                torch: "2.8.0".into(),
                cuda: true,
                mode: Mode::Fork,
                why: None,
                dropped_imports: Vec::new(),
                sandbox: None,
            })),
            devices: Devices {
                driver: Driver::Ready { cuda: (13, 0) },
                nvml: Ok("580.65.06".into()),
                gpus: Vec::new(),
            },
            advice: Vec::new(),
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Report), expected: &[&str]) {
        let mut report = healthy();
        change(&mut report);
        let advice = advice(&report);
        assert_eq!(advice.len(), expected.len(), "{advice:?}");
        for (item, part) in advice.iter().zip(expected) {
            assert!(item.contains(part), "{part:?} is not in {item:?}");
        }
    }

    fn sees_no_gpu(report: &mut Report) {
        if let Some(Ok(facts)) = &mut report.agent {
            facts.cuda = false;
        }
    }

    #[test]
    fn a_healthy_machine_gets_no_advice() {
        check(|_| {}, &[]);
    }

    #[test]
    fn a_machine_without_a_gpu_gets_no_advice() {
        check(
            |report| {
                sees_no_gpu(report);
                report.devices.driver = Driver::Absent;
            },
            &[],
        );
    }

    #[test]
    fn missing_torch_is_reported_first() {
        check(
            |report| {
                report.agent = None;
                if let Ok(python) = &mut report.interpreter {
                    python.torch = None;
                }
                report.devices.driver = Driver::Mismatch;
            },
            &["pip install torch", "reboot"],
        );
    }

    #[test]
    fn torch_without_cuda_on_a_gpu_machine_is_reported() {
        check(
            |report| {
                sees_no_gpu(report);
                if let Ok(python) = &mut report.interpreter {
                    python.torch =
                        Some(Torch { version: "2.8.0+cpu".into(), cuda: None, hip: None });
                }
            },
            &["without CUDA"],
        );
    }

    #[test]
    fn a_driver_older_than_torchs_cuda_is_reported() {
        check(
            |report| {
                sees_no_gpu(report);
                report.devices.driver = Driver::Ready { cuda: (11, 8) };
            },
            &["update the driver"],
        );
    }

    #[test]
    fn the_reason_for_not_forking_is_reported() {
        check(
            |report| {
                if let Some(Ok(facts)) = &mut report.agent {
                    facts.mode = Mode::Standby;
                    facts.why = Some("macOS never forks".into());
                }
            },
            &["macOS never forks"],
        );
    }

    #[test]
    fn low_free_memory_is_reported() {
        check(|report| report.machine.available_bytes = Some(1_000_000_000), &["1.0 GB"]);
    }
}
