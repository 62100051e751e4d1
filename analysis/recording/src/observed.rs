//! The agent's observations about a program, for findings: the key `observed` of `manifest.json`.
//!
//! Values that the agent did not observe are empty or `None`, which does not mean that there is no
//! problem.

use serde::{Deserialize, Deserializer};

use super::manifest::{Location, optional_text, text};

/// The contents of `observed`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// Model calls whose results no backward pass used, in the warm-up iterations except the first,
    /// and around the end of a loader later.
    #[serde(deserialize_with = "or_default")]
    pub evaluations: Vec<Evaluation>,
    /// Functions that `torch.compile` recompiled.
    #[serde(deserialize_with = "or_default")]
    pub recompilations: Vec<Recompilation>,
    /// Graph breaks of `torch.compile`.
    #[serde(deserialize_with = "or_default")]
    pub graph_breaks: Vec<GraphBreak>,
    /// Padding tokens of the batches.
    #[serde(deserialize_with = "or_default")]
    pub padding: Vec<Padding>,
    /// Profilers and tracers that the program left on.
    #[serde(deserialize_with = "or_default")]
    pub profilers: Vec<ProfilerLeftOn>,
    /// Iteration times with and without what was left on.
    #[serde(deserialize_with = "or_default")]
    pub switched_off: Vec<SwitchedOff>,
    /// Times of lines in each of several iterations that ran only under the line clock, without the
    /// profiler.
    #[serde(deserialize_with = "or_default")]
    pub line_times: Vec<LineTimes>,
    /// Whether those iterations may have varied for reasons outside the program: other programs
    /// used the CPU, or page faults.
    #[serde(deserialize_with = "or_default")]
    pub line_times_disturbed: bool,
    /// Lines that take less time than recording them, in groups whose time was measured without
    /// recording each execution.
    #[serde(deserialize_with = "or_default")]
    pub fast_lines: Vec<FastLines>,
    /// The state of the GPU during the timed iterations.
    pub gpu: Option<GpuState>,
    /// Data-parallel training on this rank.
    pub distributed: Option<Distributed>,
}

/// A line of the loop that calls a model without a backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Evaluation {
    /// The line that calls it. If training calls the model from the same line, the nearest line
    /// outside of that function whose calls no backward pass used.
    pub at: Location,
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Number of calls, over the observed iterations.
    pub calls: u32,
    /// Whether the call built an autograd graph: gradients were enabled, and something in the model
    /// requires them.
    pub with_gradients: bool,
    /// Whether the model was in training mode and has layers that depend on it (dropout, batch
    /// norm).
    pub in_training_mode: bool,
}

/// A function that was compiled more than once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Recompilation {
    /// The line of its `def`.
    pub at: Location,
    /// Number of recompilations after the first iteration.
    pub count: u32,
    /// Nanoseconds of these recompilations; 0 if not measured.
    pub time_ns: u64,
    /// The reason reported by PyTorch, at most 500 characters.
    #[serde(deserialize_with = "text")]
    pub reason: String,
}

/// A graph break.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GraphBreak {
    /// The user's line that breaks the graph.
    pub at: Location,
    /// Number of occurrences.
    pub count: u32,
    /// The reason reported by PyTorch, at most 500 characters.
    #[serde(deserialize_with = "text")]
    pub reason: String,
    /// Dynamo's frame numbers of the functions that are entered because of the break: the rest of
    /// the function, and functions that would have been inlined into the graph.
    #[serde(deserialize_with = "or_default")]
    pub frames: Vec<u32>,
}

/// Padding in the inputs of an embedding.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Padding {
    /// The line that calls the embedding.
    pub at: Location,
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Total number of tokens.
    pub tokens: u64,
    /// Number of padding tokens, at the end of their rows.
    pub padding: u64,
    /// How padding was detected: `padding_idx`, `mask`, or `ends` if rows only end with equal
    /// tokens. Empty in older recordings.
    #[serde(deserialize_with = "text")]
    pub by: String,
}

/// A profiler that was on while the program trained.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProfilerLeftOn {
    /// `torch.profiler`, `cProfile`, `sys.settrace`, `sys.setprofile`, `emit_nvtx`,
    /// `record_memory_history`, or the name of another tool.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// The user's line that turned it on.
    pub at: Option<Location>,
}

/// Iteration times of the unchanged program and of the program with something switched off,
/// measured alternately.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SwitchedOff {
    /// `anomaly`, or the name of a [`ProfilerLeftOn`].
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Nanoseconds of the iterations with it.
    #[serde(deserialize_with = "or_default")]
    pub with_ns: Vec<u64>,
    /// Nanoseconds of the iterations without it.
    #[serde(deserialize_with = "or_default")]
    pub without_ns: Vec<u64>,
}

/// The times of a line in several iterations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LineTimes {
    pub at: Location,
    /// Host nanoseconds on the line and in calls from it that reach no other user line, by
    /// iteration.
    #[serde(deserialize_with = "or_default")]
    pub ns: Vec<u64>,
}

/// Lines whose time is known together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FastLines {
    #[serde(deserialize_with = "or_default")]
    pub at: Vec<Location>,
    /// Their share of an iteration, 0 to 1, without time in functions called from them that reach
    /// other user lines.
    pub share: f64,
}

/// NVML's data during the timed iterations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GpuState {
    /// Samples of the multiprocessor clock, in MHz.
    #[serde(deserialize_with = "or_default")]
    pub clock_mhz: Vec<u32>,
    /// Maximum clock, in MHz.
    pub highest_clock_mhz: Option<u32>,
    /// Reasons for a lower clock: `power`, `heat`, `hardware`.
    #[serde(deserialize_with = "or_default")]
    pub limited_by: Vec<String>,
    /// Number of other processes that used the GPU.
    pub other_processes: Option<u32>,
    /// Memory of those processes, in bytes.
    pub other_bytes: Option<u64>,
    /// What is unknown and why, as sentences.
    #[serde(deserialize_with = "or_default")]
    pub unknown: Vec<String>,
}

/// Data-parallel training.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Distributed {
    /// This process's rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// Backend such as `gloo` or `nccl`.
    #[serde(deserialize_with = "optional_text")]
    pub backend: Option<String>,
    /// Models wrapped in `DistributedDataParallel`.
    #[serde(deserialize_with = "or_default")]
    pub models: Vec<Replica>,
}

/// A model that each rank has a replica of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Replica {
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Number of backward passes through it in the observed iterations.
    pub backwards: u32,
    /// Number of these backward passes that exchanged gradients.
    pub exchanges: u32,
    /// Number of optimizer steps in the observed iterations.
    pub steps: u32,
}

impl Replica {
    /// Returns the number of backward passes per optimizer step if several exchange gradients.
    pub fn exchanges_per_step(&self) -> Option<f64> {
        let is_repeated =
            self.steps > 0 && self.backwards > self.steps && self.exchanges >= self.backwards;
        is_repeated.then(|| f64::from(self.backwards) / f64::from(self.steps))
    }
}

/// Deserializes a value; `null` means not observed and gives the default.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    /// Parses the value of the key `observed`.
    #[track_caller]
    fn read(observed: &str) -> Observed {
        let json = format!(r#"{{"schema": 1, "observed": {observed}}}"#);
        Manifest::parse(json.as_bytes()).expect("it should be read").observed
    }

    #[track_caller]
    fn check_error(observed: &str, path: &str) {
        let json = format!(r#"{{"schema": 1, "observed": {observed}}}"#);
        let error = Manifest::parse(json.as_bytes()).expect_err("it should be refused");
        let expected = format!("observed{path}");
        assert!(error.to_string().contains(&expected), "{error}");
    }

    const AT: Location = Location { file: 0, line: 40 };

    #[test]
    fn unobserved_values_are_empty() {
        let before = Manifest::parse(br#"{"schema": 1}"#).expect("a recording of before");
        assert_eq!(before.observed, Observed::default());
        for observed in [
            "null",
            "{}",
            r#"{"later": [[[]]]}"#,
            r#"{"evaluations": null, "recompilations": null, "graph_breaks": null,
                "padding": null, "profilers": null, "switched_off": null, "line_times": null, "gpu": null,
                "distributed": null}"#,
        ] {
            assert_eq!(read(observed), Observed::default(), "{observed}");
        }
    }

    #[test]
    fn observations_of_the_loop_are_read() {
        let observed = read(
            r#"{"evaluations": [{"at": {"file": 0, "line": 40}, "module": 3, "calls": 2,
                    "with_gradients": true, "in_training_mode": false}],
                "padding": [{"at": {"file": 0, "line": 40}, "module": 1, "tokens": 4096,
                    "padding": 1500, "by": "mask"}],
                "profilers": [{"name": "cProfile", "at": null},
                    {"name": "torch.profiler", "at": {"file": 0, "line": 40}}],
                "switched_off": [{"name": "cProfile", "with_ns": [30, 31], "without_ns": [20]}],
                "line_times": [{"at": {"file": 0, "line": 40}, "ns": [100, 900]}],
                "line_times_disturbed": true,
                "fast_lines": [{"at": [{"file": 0, "line": 40}], "share": 0.25}]}"#,
        );
        let evaluation = Evaluation {
            at: AT,
            module: 3,
            calls: 2,
            with_gradients: true,
            in_training_mode: false,
        };
        assert_eq!(observed.evaluations, [evaluation]);
        let by = "mask".to_owned();
        let padding = Padding { at: AT, module: 1, tokens: 4096, padding: 1500, by };
        assert_eq!(observed.padding, [padding]);
        let places: Vec<_> = observed.profilers.iter().map(|one| one.at).collect();
        assert_eq!(places, [None, Some(AT)]);
        let name = "cProfile".to_owned();
        let off = SwitchedOff { name, with_ns: vec![30, 31], without_ns: vec![20] };
        assert_eq!(observed.switched_off, [off]);
        assert_eq!(observed.line_times, [LineTimes { at: AT, ns: vec![100, 900] }]);
        assert!(observed.line_times_disturbed);
        assert_eq!(observed.fast_lines, [FastLines { at: vec![AT], share: 0.25 }]);
    }

    #[test]
    fn recompilations_and_graph_breaks_are_read() {
        let observed = read(
            r#"{"recompilations": [{"at": {"file": 0, "line": 40}, "count": 3, "time_ns": 5,
                    "reason": "a\udc80"}, {}],
                "graph_breaks": [{"at": {"file": 0, "line": 40}, "count": 1, "reason": null, "frames": [1]}]}"#,
        );
        let reasons: Vec<_> = observed.recompilations.iter().map(|one| &one.reason).collect();
        assert!(reasons.iter().any(|reason| reason.starts_with('a')), "{reasons:?}");
        assert_eq!(observed.recompilations.last(), Some(&Recompilation::default()));
        let broken = GraphBreak { at: AT, count: 1, reason: String::new(), frames: vec![1] };
        assert_eq!(observed.graph_breaks, [broken]);
    }

    #[test]
    fn gpu_state_and_ranks_are_read() {
        let observed = read(
            r#"{"gpu": {"clock_mhz": [1500, 1490], "highest_clock_mhz": null,
                    "limited_by": ["power"], "other_processes": 1, "other_bytes": null},
                "distributed": {"rank": 1, "world_size": 2, "backend": null, "models":
                    [{"module": 0, "backwards": 4, "exchanges": 4, "steps": 1}]}}"#,
        );
        let gpu = observed.gpu.expect("a state");
        assert_eq!((gpu.clock_mhz.as_slice(), gpu.highest_clock_mhz), (&[1500, 1490][..], None));
        assert_eq!((gpu.other_processes, gpu.other_bytes), (Some(1), None));
        let ranks = observed.distributed.expect("ranks");
        assert_eq!((ranks.rank, ranks.world_size, ranks.backend), (1, 2, None));
        assert_eq!(ranks.models, [Replica { module: 0, backwards: 4, exchanges: 4, steps: 1 }]);
    }

    #[test]
    fn a_wrong_value_names_its_path() {
        check_error("3", "");
        check_error(r#"{"evaluations": {}}"#, ".evaluations");
        check_error(r#"{"evaluations": [{}, {"calls": -1}]}"#, ".evaluations[1].calls");
        check_error(r#"{"evaluations": [{"calls": 4294967296}]}"#, ".evaluations[0].calls");
        check_error(r#"{"evaluations": [{"at": {"file": 0}}]}"#, ".evaluations[0].at");
        check_error(r#"{"padding": [{"tokens": "1"}]}"#, ".padding[0].tokens");
        check_error(r#"{"profilers": [{"name": 3}]}"#, ".profilers[0].name");
        check_error(r#"{"switched_off": [{"with_ns": [-1]}]}"#, ".switched_off[0].with_ns[0]");
        check_error(r#"{"line_times": [{"ns": [1, -1]}]}"#, ".line_times[0].ns[1]");
        check_error(r#"{"fast_lines": [{"share": "all"}]}"#, ".fast_lines[0].share");
        check_error(r#"{"gpu": {"clock_mhz": [1e99]}}"#, ".gpu.clock_mhz[0]");
        check_error(r#"{"distributed": {"models": 3}}"#, ".distributed.models");
        let deep = "[".repeat(20_000);
        check_error(&format!(r#"{{"line_times": {deep}"#), ".line_times");
    }
}
