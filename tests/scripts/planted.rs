//! The projects of `demo-projects/planted`: one fault each, and the same work done well beside it. A
//! fault's line ends with `# fault`; the folder's name is the rule that has to find it. The bytes that a
//! fault is said to cost are held to what the clean twin does without, and the fix has to make the clean
//! twin or to run without the finding. Times are held to the clean twin's by `tests/bench/planted.py`: a
//! machine that runs tests is too busy for it.
//!
//! What only a GPU shows is found on a simulated device (`simulated.rs`), by `tests/gpu/run --planted`, and
//! in recordings that `analysis/tests/gpu_findings.rs` writes of these projects. Here they run on a
//! processor, where the same lines cost nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ridgeline_analysis::diagnose;
use ridgeline_analysis::python::semantics::Entry;
use serde_json::Value;

use super::fixes::fix;
use super::texts;
use super::turns::{alone, beside};
use crate::sandbox::{Sandbox, ended, python_with_torch, repository};

/// Rules whose fault is in no text: `gpu-slowed` tells of the machine.
const WITHOUT_PROJECT: [&str; 1] = ["gpu-slowed"];
/// Faults that are what their iteration waits for.
const BOUND_BY: [(&str, &str); 1] = [("exposed-communication", "communication")];
/// A cost in bytes is within this of what the clean twin does without.
const NEAR: f64 = 0.2;
/// A project is profiled so often before it counts as wrong: what is told by times may be hidden, or
/// made up, by what else a machine does meanwhile.
pub(super) const TRIES: usize = 3;

macro_rules! planted {
    (anywhere { $($rule:ident)* } on_a_gpu { $($on_a_gpu:ident)* }) => {
        $(
            #[test]
            fn $rule() {
                check(&stringify!($rule).replace('_', "-"), Pair::wrong);
            }
        )*

        $(
            #[test]
            fn $on_a_gpu() {
                check(&stringify!($on_a_gpu).replace('_', "-"), Pair::wrong_without_gpu);
            }
        )*

        /// Pairs whose fault only a GPU shows.
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

/// Holds both twins to what `wrong` says is not as it should be.
#[track_caller]
fn check(rule: &str, wrong: fn(&Pair, &Path) -> Vec<String>) {
    let Some(python) = python_with_torch() else { return };
    let pair = Pair::read(rule);
    let mut found = if pair.takes_the_machine {
        let _alone = alone();
        wrong(&pair, python)
    } else {
        let _beside = beside();
        wrong(&pair, python)
    };
    for _ in 1..TRIES {
        if found.is_empty() {
            return;
        }
        println!("again, because {}", found.join("\n"));
        let _alone = alone();
        found = wrong(&pair, python);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A project with its fault, and without.
pub(super) struct Pair {
    rule: String,
    pub(super) folder: PathBuf,
    /// File and line of each fault.
    pub(super) faults: Vec<(String, u64)>,
    /// It has processes of its own, and needs the processors for them.
    takes_the_machine: bool,
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
        let has_processes = ["torch.distributed", "num_workers"];
        let clean = texts(&folder.join("clean"));
        let takes_the_machine =
            clean.values().any(|text| has_processes.iter().any(|word| text.contains(word)));
        Pair { rule: rule.to_owned(), folder, faults, takes_the_machine }
    }

    /// Profiles both, and says what is not as it should be.
    fn wrong(&self, python: &Path) -> Vec<String> {
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
        let mut wrong = Vec::new();
        if lines != self.faults {
            let told = shown(&faulty["findings"]);
            wrong.push(format!("the faults are at {:?}; told is {told:#?}", self.faults));
        }
        let bound_by = BOUND_BY.iter().find(|(rule, _)| *rule == self.rule).map(|(_, by)| *by);
        if bound_by.is_some_and(|by| faulty["bottleneck"]["verdict"] != by) {
            wrong.push(format!("{}", faulty["bottleneck"]["text"]));
        }
        let told = shown(&clean["findings"]);
        if !told.is_empty() {
            wrong.push(format!("the clean twin has {told:#?}"));
        }
        let is_told =
            |one: &&Value| one["time_ms"].as_f64() > Some(0.0) || one["bytes"].as_f64() > Some(0.0);
        wrong.extend(own.iter().filter(|one| !is_told(one)).map(|one| format!("{one:#}")));
        let told = |key: &str| own.iter().filter_map(|one| one[key].as_f64()).sum::<f64>();
        let bytes = told("bytes");
        if bytes > 0.0 {
            let peak = |json: &Value| json["memory"]["peak_bytes"].as_f64().unwrap_or(0.0);
            let saved = peak(&faulty) - peak(&clean);
            wrong.extend(differs(bytes, saved));
        }
        wrong.extend(own.iter().filter_map(|one| self.is_not_mended(one, python)));
        wrong
    }

    /// The same where only a GPU shows the fault: neither twin raises anything on a processor, or while
    /// its text is typed.
    fn wrong_without_gpu(&self, python: &Path) -> Vec<String> {
        let mut wrong = Vec::new();
        for twin in ["faulty", "clean"] {
            let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
            let read = diagnose::read(&texts(&self.folder.join(twin)), &entry);
            wrong.extend(read.iter().map(|one| format!("the {twin} twin's text has {one:#?}")));
            let told = shown(&self.profile(twin, python)["findings"]);
            wrong.extend(told.into_iter().map(|one| format!("the {twin} twin has {one}")));
        }
        wrong
    }

    /// What one of the two costs, with its findings.
    #[track_caller]
    fn profile(&self, twin: &str, python: &Path) -> Value {
        self.profile_at(&Sandbox::new(), &self.folder.join(twin), python)
    }

    #[track_caller]
    fn profile_at(&self, sandbox: &Sandbox, folder: &Path, python: &Path) -> Value {
        let mut command = sandbox.ridgeline();
        command.arg("profile").arg(folder.join("train.py"));
        command.args(["--device", "cpu", "--json", "-", "--python"]).arg(python);
        // One thread, so that what runs beside it takes the other processor.
        command.env("OMP_NUM_THREADS", "1");
        let json = ended(&mut command).exits_with(0).stdout;
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert!(json["findings"].is_array(), "{}: {}", folder.display(), json["notes"]);
        json
    }

    /// Makes the fix of a finding. Where that is the clean twin, what the twin saves the fix does; else it
    /// runs, and the finding has to be gone.
    fn is_not_mended(&self, finding: &Value, python: &Path) -> Option<String> {
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
        // How it is launched.
        let configuration = self.folder.join("faulty/ridgeline.toml");
        if let Ok(text) = std::fs::read(configuration) {
            sandbox.write("ridgeline.toml", &text);
        }
        let mended = self.profile_at(&sandbox, &sandbox.project(), python);
        let told = shown(&mended["findings"]);
        let is_there = told.iter().any(|one| one.contains(&self.rule));
        is_there.then(|| format!("{name} makes {faulty:#?}, which still has {told:#?}"))
    }
}

/// A text without its marks and as no formatter would break its lines.
fn plain(text: &str) -> String {
    text.replace("  # fault", "").split_whitespace().collect()
}

/// What is told to cost bytes, where the clean twin saves others.
fn differs(told: f64, saved: f64) -> Option<String> {
    let is_near = saved > 0.0 && (told - saved).abs() <= NEAR * saved;
    (!is_near).then(|| format!("told are {told} bytes, the clean twin saves {saved}"))
}

/// Lines that end with `# fault`.
pub(super) fn marked(text: &str) -> impl Iterator<Item = u64> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| line.ends_with("# fault"));
    lines.map(|(line, _)| line)
}

pub(super) fn shown(findings: &Value) -> Vec<String> {
    let told = findings.as_array().into_iter().flatten();
    told.map(|one| format!("{} {}:{} {}", one["rule"], one["file"], one["line"], one["message"]))
        .collect()
}
