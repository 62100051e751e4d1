//! The projects of `demo-projects/planted`: each has a faulty program with one fault and a clean twin
//! that does the same work without it. The line of a fault ends with `# fault`, and the folder is named
//! for the rule that has to find it. A cost in bytes is compared with the memory that the clean twin
//! saves. Applying the fix has to produce the clean twin, or a program without the finding. Costs in time
//! are checked by `tests/bench/planted.py`, because a machine that runs tests is too busy for it.
//!
//! Faults that only a GPU shows are tested on a simulated device (`simulated.rs`), by `tests/gpu/run
//! --planted`, and in recordings that `analysis/tests/gpu_findings.rs` makes of these projects. Here they
//! run on a CPU, where the same lines cost nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ridgeline_analysis::diagnose;
use ridgeline_analysis::python::semantics::Entry;
use serde_json::Value;

use super::fixes::fix;
use super::machine_lock::{exclusive, shared};
use super::texts;
use crate::sandbox::{Sandbox, python_with_torch, repository, run_to_end};

/// Rules that report the machine rather than the source text.
const WITHOUT_PROJECT: [&str; 1] = ["gpu-slowed"];
/// Faults that are the bottleneck of their iteration, with the verdict.
const BOUND_BY: [(&str, &str); 1] = [("exposed-communication", "communication")];
/// The maximum relative difference between a cost in bytes and the memory that the clean twin saves.
const NEAR: f64 = 0.2;
/// How often a project is profiled before its test fails: other load on the machine can hide findings
/// that depend on times, or cause false ones.
pub(super) const MAX_ATTEMPTS: usize = 3;

macro_rules! planted {
    (anywhere { $($rule:ident)* } on_a_gpu { $($on_a_gpu:ident)* }) => {
        $(
            #[test]
            fn $rule() {
                check(&stringify!($rule).replace('_', "-"), Pair::problems);
            }
        )*

        $(
            #[test]
            fn $on_a_gpu() {
                check(&stringify!($on_a_gpu).replace('_', "-"), Pair::problems_without_gpu);
            }
        )*

        /// The pairs whose fault only a GPU shows.
        pub(super) const ON_A_GPU: &[&str] = &[$(stringify!($on_a_gpu)),*];

        #[test]
        fn every_rule_has_a_project_that_is_tested() {
            let names = [$(stringify!($rule),)* $(stringify!($on_a_gpu)),*];
            let tested: BTreeSet<String> = names.map(|name| name.replace('_', "-")).into();
            let rules = diagnose::rules().into_iter().map(|(rule, _)| rule.to_owned());
            let rules: BTreeSet<String> =
                rules.filter(|rule| !WITHOUT_PROJECT.contains(&rule.as_str())).collect();
            assert_eq!(tested, rules);
            let folder = repository().join("demo-projects/planted");
            let entries = std::fs::read_dir(folder).expect("the planted projects").flatten();
            let folders = entries.filter(|entry| entry.path().join("faulty").is_dir());
            let folders: BTreeSet<String> =
                folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            assert_eq!(folders, tested);
        }
    };
}

planted! {
    anywhere {
        anomaly_detection
        attention_written_out
        bias_before_batch_norm
        exposed_communication
        float64
        gradients_in_validation
        graph_break
        graph_kept
        imbalance
        in_place_candidates
        iteration_varies
        layout_copies
        loader_no_workers
        loader_transform
        loader_workers_restarted
        padding_waste
        profiler_left_on
        python_loop
        recompilation
        repeated_casts
        straggler
        sync_each_accumulation_step
        tiny_kernels
        train_mode_in_validation
        unfused_optimizer
    }
    on_a_gpu {
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
}

/// Asserts that `problems` returns none. Other load can hide findings that depend on times, so retries
/// have the machine to themselves.
#[track_caller]
fn check(rule: &str, problems: fn(&Pair, &Path) -> Vec<String>) {
    let Some(python) = python_with_torch() else { return };
    let pair = Pair::read(rule);
    let mut found = {
        let _lock = shared();
        problems(&pair, python)
    };
    for _ in 1..MAX_ATTEMPTS {
        if found.is_empty() {
            return;
        }
        println!("retrying: {}", found.join("\n"));
        let _lock = exclusive();
        found = problems(&pair, python);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A project with its fault, and without.
pub(super) struct Pair {
    rule: String,
    pub(super) folder: PathBuf,
    /// File and line of each fault.
    pub(super) faults: Vec<(String, u64)>,
}

impl Pair {
    #[track_caller]
    pub(super) fn read(rule: &str) -> Pair {
        let folder = repository().join("demo-projects/planted").join(rule);
        let mut faults = Vec::new();
        for (name, text) in texts(&folder.join("faulty")) {
            faults.extend(marked(&text).map(|line| (name.clone(), line)));
        }
        faults.sort();
        assert!(!faults.is_empty(), "{rule} has no line with `# fault`");
        Pair { rule: rule.to_owned(), folder, faults }
    }

    /// Profiles both programs and returns everything that is not as expected.
    fn problems(&self, python: &Path) -> Vec<String> {
        let faulty = self.profile("faulty", python);
        let clean = self.profile("clean", python);
        let all = faulty["findings"].as_array().into_iter().flatten();
        let own: Vec<&Value> = all.filter(|one| one["rule"] == self.rule.as_str()).collect();
        let mut lines: Vec<(String, u64)> = own
            .iter()
            .map(|one| (one["file"].as_str().unwrap_or_default(), one["line"].as_u64()))
            .map(|(file, line)| (file.to_owned(), line.unwrap_or(0)))
            .collect();
        lines.sort();
        let mut problems = Vec::new();
        if lines != self.faults {
            let reported = finding_lines(&faulty["findings"]);
            problems.push(format!("the faults are at {:?}; reported: {reported:#?}", self.faults));
        }
        let bound_by = BOUND_BY.iter().find(|(rule, _)| *rule == self.rule).map(|(_, by)| *by);
        if bound_by.is_some_and(|by| faulty["bottleneck"]["verdict"] != by) {
            problems.push(format!("{}", faulty["bottleneck"]["text"]));
        }
        let reported = finding_lines(&clean["findings"]);
        if !reported.is_empty() {
            problems.push(format!("the clean twin has {reported:#?}"));
        }
        let has_cost =
            |one: &&Value| one["time_ms"].as_f64() > Some(0.0) || one["bytes"].as_f64() > Some(0.0);
        problems.extend(own.iter().filter(|one| !has_cost(one)).map(|one| format!("{one:#}")));
        let reported = |key: &str| own.iter().filter_map(|one| one[key].as_f64()).sum::<f64>();
        let bytes = reported("bytes");
        if bytes > 0.0 {
            let peak = |json: &Value| json["memory"]["peak_bytes"].as_f64().unwrap_or(0.0);
            let saved = peak(&faulty) - peak(&clean);
            problems.extend(cost_mismatch(bytes, saved));
        }
        problems.extend(own.iter().filter_map(|one| self.fix_problem(one, python)));
        problems
    }

    /// Like [`Pair::problems`], for a fault that only a GPU shows: neither twin has a finding on a CPU, or
    /// in its source text.
    fn problems_without_gpu(&self, python: &Path) -> Vec<String> {
        let mut problems = Vec::new();
        for twin in ["faulty", "clean"] {
            let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
            let read = diagnose::diagnose_source(&texts(&self.folder.join(twin)), &entry);
            problems.extend(read.iter().map(|one| format!("the {twin} twin's text has {one:#?}")));
            let reported = finding_lines(&self.profile(twin, python)["findings"]);
            problems.extend(reported.into_iter().map(|one| format!("the {twin} twin has {one}")));
        }
        problems
    }

    /// Returns the profile of one of the programs, with its findings.
    #[track_caller]
    fn profile(&self, twin: &str, python: &Path) -> Value {
        self.profile_at(&Sandbox::new(), &self.folder.join(twin), python)
    }

    #[track_caller]
    fn profile_at(&self, sandbox: &Sandbox, folder: &Path, python: &Path) -> Value {
        let mut command = sandbox.ridgeline();
        command.arg("profile").arg(folder.join("train.py"));
        command.args(["--device", "cpu", "--json", "-", "--python"]).arg(python);
        // One thread leaves the other cores to concurrent tests.
        command.env("OMP_NUM_THREADS", "1");
        let json = run_to_end(&mut command).exits_with(0).stdout;
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert!(json["findings"].is_array(), "{}: {}", folder.display(), json["notes"]);
        json
    }

    /// Applies the fix of a finding and returns the problem with it, if any. If the result is the clean
    /// twin, the fix saves what the twin saves. Otherwise the result is profiled, and the finding has to
    /// be gone.
    fn fix_problem(&self, finding: &Value, python: &Path) -> Option<String> {
        let name = finding["fix"].as_str()?;
        let mut faulty = texts(&self.folder.join("faulty"));
        if let Err(refused) = fix(&mut faulty, "train.py", finding) {
            return Some(refused);
        }
        let clean = texts(&self.folder.join("clean"));
        let is_same = faulty.len() == clean.len()
            && clean.iter().all(|(path, text)| {
                faulty.get(path).is_some_and(|made| plain(made) == plain(text))
            });
        if is_same {
            return None;
        }
        let sandbox = Sandbox::new();
        for (path, text) in &faulty {
            sandbox.write(path, text.as_bytes());
        }
        // It may set a launcher.
        let configuration = self.folder.join("faulty/ridgeline.toml");
        if let Ok(text) = std::fs::read(configuration) {
            sandbox.write("ridgeline.toml", &text);
        }
        let fixed = self.profile_at(&sandbox, &sandbox.project(), python);
        let reported = finding_lines(&fixed["findings"]);
        let is_there = reported.iter().any(|one| one.contains(&self.rule));
        is_there.then(|| format!("after {name}, {faulty:#?} still has {reported:#?}"))
    }
}

/// Removes marks and line breaks, which depend on the formatter.
fn plain(text: &str) -> String {
    text.replace("  # fault", "").split_whitespace().collect()
}

/// Compares a reported cost in bytes with the memory that the clean twin saves.
fn cost_mismatch(reported: f64, saved: f64) -> Option<String> {
    let is_near = saved > 0.0 && (reported - saved).abs() <= NEAR * saved;
    (!is_near).then(|| format!("{reported} bytes are reported, the clean twin saves {saved}"))
}

/// The numbers of the lines that end with `# fault`.
pub(super) fn marked(text: &str) -> impl Iterator<Item = u64> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| line.ends_with("# fault"));
    lines.map(|(line, _)| line)
}

pub(super) fn finding_lines(findings: &Value) -> Vec<String> {
    let reported = findings.as_array().into_iter().flatten();
    reported
        .map(|one| format!("{} {}:{} {}", one["rule"], one["file"], one["line"], one["message"]))
        .collect()
}
