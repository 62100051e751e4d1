//! Findings that only a GPU shows, on the simulated CUDA device of `tests/gpu/simulated`, with the real
//! profiler, command line and CUDA build of PyTorch. The faulty program of a pair has findings at its
//! marked lines, and its clean twin has none.
//!
//! The tests are skipped, with the reason, if the device cannot be built.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::machine_lock::{exclusive, shared};
use super::planted::{MAX_ATTEMPTS, Pair, finding_lines, marked};
use crate::sandbox::{Sandbox, python_with_torch, repository, run_to_end};

/// The exit code of `tests/gpu/simulated/run` if the device cannot be built.
const SKIPPED: i32 = 77;

/// Another process that computes on the program's GPU. It prints a line once it does.
const NEIGHBOR: &str = "
import torch
matrix = torch.randn(1024, 1024, device='cuda')
torch.cuda.synchronize()
print('busy', flush=True)
while True:
    torch.mm(matrix, matrix)
    torch.cuda.synchronize()
";

macro_rules! pairs {
    ($($rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                let rule = stringify!($rule).replace('_', "-");
                let pair = Pair::read(&rule);
                check(&rule, |device| {
                    let faulty = device.profile(&pair.folder.join("faulty/train.py"), &[]);
                    let clean = device.profile(&pair.folder.join("clean/train.py"), &[]);
                    let lines = pair.faults.iter().map(|(_, line)| *line).collect();
                    [finding_mismatch(&rule, &faulty, lines), unexpected_findings(&clean)].concat()
                });
            }
        )*

        #[test]
        fn every_pair_that_needs_a_gpu_is_tested() {
            let tested = [$(stringify!($rule)),*];
            assert_eq!(tested.as_slice(), super::planted::ON_A_GPU);
        }
    };
}

pairs! {
    blocking_copy
    channels_last_missed
    cudnn_benchmark_changing
    cudnn_benchmark_off
    fp32_without_tf32
    hidden_sync
    loader_not_pinned
    recompute_candidates
    tensor_core_sizes
}

#[test]
fn tiny_kernels() {
    check("tiny-kernels", |device| {
        let faulty = program("tiny_kernels_faulty.py");
        let found = device.profile(&faulty, &[]);
        let clean = device.profile(&program("tiny_kernels_clean.py"), &[]);
        [finding_mismatch("tiny-kernels", &found, lines_of(&faulty)), unexpected_findings(&clean)]
            .concat()
    });
}

/// The machine causes this finding: a clean program runs with a power limit, and next to another process.
#[test]
fn gpu_slowed() {
    check("gpu-slowed", |device| {
        let clean = program("tiny_kernels_clean.py");
        let alone = device.profile(&clean, &[]);
        let limited = device.with("SIMGPU_LIMITED_BY", "power").profile(&clean, &[]);
        let at = limited["iteration"]["loop"]["line"].as_u64().unwrap_or(0);
        let neighbor = device.neighbor();
        let shared = device.profile(&clean, &[]);
        drop(neighbor);
        let slowed =
            [&limited, &shared].map(|slowed| finding_mismatch("gpu-slowed", slowed, vec![at]));
        [unexpected_findings(&alone), slowed.concat()].concat()
    });
}

/// Two ranks do the same work, and the GPU of the second is slower.
#[test]
fn straggler() {
    check("straggler", |device| {
        let ranks = ["--launcher", "torchrun --standalone --nproc-per-node 2"];
        let device = device.with("SIMGPU_COUNT", "2");
        let path = program("slower_rank.py");
        let slower = device.with("SIMGPU_SLOWDOWN", "1:2").profile(&path, &ranks);
        let equal = device.profile(&path, &ranks);
        [finding_mismatch("straggler", &slower, lines_of(&path)), unexpected_findings(&equal)]
            .concat()
    });
}

/// The recorder waits for the GPU at the end of each profiled iteration. That wait is not the program's.
#[test]
fn a_program_that_never_waits_is_not_bound_by_synchronization() {
    check("never-waits", |device| {
        let found = device.profile(&program("never_waits.py"), &[]);
        let savings = found["bottleneck"]["savings"].as_array().cloned();
        let savings = savings.expect("a bottleneck");
        let waits = savings.iter().filter(|saving| saving["cause"] == "synchronization");
        waits.map(|saving| format!("it never waits, but has the saving {saving}")).collect()
    });
}

/// A MIG instance, and a GPU without device files.
#[test]
fn mig_instances_and_gpus_without_device_files() {
    check("unusual", |device| {
        let script = program("never_waits.py");
        for (name, value) in [("SIMGPU_MIG", "1"), ("SIMGPU_NO_DEVICE_FILES", "1")] {
            // The run fails if no GPU is found.
            let found = device.with(name, value).profile(&script, &[]);
            assert!(found["device"]["simulated"] == true, "{name}: {}", found["device"]);
            assert!(found["coverage"]["time"].as_f64() >= Some(0.99), "{name}");
        }
        Vec::new()
    });
}

fn program(name: &str) -> PathBuf {
    repository().join("tests/scripts/simulated").join(name)
}

fn lines_of(program: &Path) -> Vec<u64> {
    marked(&std::fs::read_to_string(program).expect("the program")).collect()
}

/// Returns a message unless the rule's findings are at exactly these lines.
fn finding_mismatch(rule: &str, profile: &Value, expected: Vec<u64>) -> Vec<String> {
    let all = profile["findings"].as_array().into_iter().flatten();
    let own = all.filter(|one| one["rule"] == rule);
    let mut lines: Vec<u64> = own.filter_map(|one| one["line"].as_u64()).collect();
    lines.sort_unstable();
    let all = finding_lines(&profile["findings"]);
    let text = format!("{rule}: the faults are at {expected:?}; reported: {all:#?}");
    (lines != expected).then_some(text).into_iter().collect()
}

fn unexpected_findings(profile: &Value) -> Vec<String> {
    let all = finding_lines(&profile["findings"]);
    (!all.is_empty()).then(|| format!("the clean twin has {all:#?}")).into_iter().collect()
}

/// Asserts that `problems` returns none. Other load on the machine delays the simulated device, so
/// retries have the machine to themselves.
#[track_caller]
fn check(rule: &str, problems: impl Fn(&Device) -> Vec<String>) {
    let Some(device) = Device::new(rule) else { return };
    let mut found = {
        let _lock = shared();
        problems(&device)
    };
    for _ in 1..MAX_ATTEMPTS {
        if found.is_empty() {
            return;
        }
        println!("retrying: {}", found.join("\n"));
        let _lock = exclusive();
        found = problems(&device);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The simulated device of one test.
pub(super) struct Device {
    python: &'static Path,
    environment: Vec<(&'static str, String)>,
}

impl Device {
    /// Returns `None`, and prints the reason, if it cannot be built.
    pub(super) fn new(rule: &str) -> Option<Device> {
        let python = python_with_torch()?;
        // Tests do not see each other's processes.
        let machine = format!("{rule}-{}", std::process::id());
        let device = Device { python, environment: vec![("SIMGPU_MACHINE", machine)] };
        let result = run_to_end(&mut device.command("true"));
        if result.code == Some(SKIPPED) {
            println!("skipped: {}", result.stdout.trim());
            return None;
        }
        result.exits_with(0);
        Some(device)
    }

    fn with(&self, name: &'static str, value: &str) -> Device {
        let mut environment = self.environment.clone();
        environment.push((name, value.to_owned()));
        Device { python: self.python, environment }
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(repository().join("tests/gpu/simulated/run"));
        command
            .arg("--python")
            .arg(self.python)
            .arg(program)
            .envs(self.environment.iter().cloned());
        command
    }

    /// Returns the profile of a program, with its findings.
    #[track_caller]
    fn profile(&self, script: &Path, options: &[&str]) -> Value {
        let sandbox = Sandbox::new();
        let ridgeline = sandbox.ridgeline();
        let mut command = self.command(&ridgeline.get_program().to_string_lossy());
        for (name, value) in ridgeline.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(sandbox.project()).arg("profile").arg(script);
        command
            .args(["--device", "cuda", "--json", "-", "--python"])
            .arg(self.python)
            .args(options);
        let json = run_to_end(&mut command).exits_with(0).stdout;
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert!(json["findings"].is_array(), "{}: {}", script.display(), json["notes"]);
        assert_eq!(json["device"]["kind"], "cuda", "{}", script.display());
        json
    }

    /// Starts a process that computes on the device until it is dropped.
    fn neighbor(&self) -> Neighbor {
        let mut command = self.command(&self.python.to_string_lossy());
        command.args(["-c", NEIGHBOR]).stdout(std::process::Stdio::piped());
        let mut process = command.spawn().expect("python starts");
        let mut line = String::new();
        let output = process.stdout.as_mut().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)
            .expect("a line");
        assert_eq!(line, "busy\n");
        Neighbor(process)
    }
}

struct Neighbor(std::process::Child);

impl Drop for Neighbor {
    fn drop(&mut self) {
        // This fails if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
