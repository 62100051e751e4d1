//! What the agent saw of a program's habits, for findings: the key `observed` of `manifest.json`.
//!
//! What an agent did not look at is empty or `None`, which is never the same as "it is well".

use serde::{Deserialize, Deserializer};

use super::manifest::{Location, optional_text, text};

/// Everything under `observed`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// Calls of a model whose results no backward pass used, in the warm-up's iterations but the first and
    /// in what comes about a loader's end later.
    #[serde(deserialize_with = "or_default")]
    pub evaluations: Vec<Evaluation>,
    /// Functions that `torch.compile` compiled again.
    #[serde(deserialize_with = "or_default")]
    pub recompilations: Vec<Recompilation>,
    /// Where `torch.compile` gave up a graph.
    #[serde(deserialize_with = "or_default")]
    pub graph_breaks: Vec<GraphBreak>,
    /// Tokens of the batches that are padding.
    #[serde(deserialize_with = "or_default")]
    pub padding: Vec<Padding>,
    /// Profilers and tracers of the program's own that were on.
    #[serde(deserialize_with = "or_default")]
    pub profilers: Vec<ProfilerLeftOn>,
    /// What iterations take with and without what was left on.
    #[serde(deserialize_with = "or_default")]
    pub switched_off: Vec<SwitchedOff>,
    /// What lines took in each of several iterations, under the line clock alone.
    #[serde(deserialize_with = "or_default")]
    pub line_times: Vec<LineTimes>,
    /// Whether those iterations may have varied for a reason that is no line's: other programs had the
    /// processors, or the system gave pages.
    #[serde(deserialize_with = "or_default")]
    pub line_times_disturbed: bool,
    /// The GPU while it was timed.
    pub gpu: Option<GpuState>,
    /// What this rank does among others.
    pub distributed: Option<Distributed>,
}

/// A line of the loop from which a model is called without a backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Evaluation {
    /// The line that calls it; where training calls it from there as well, the nearest one outside of
    /// that function that leads to no call which a backward pass used.
    pub at: Location,
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Calls, over the iterations that were looked at.
    pub calls: u32,
    /// Whether it made a graph: gradients were on, and something of it takes some.
    pub with_gradients: bool,
    /// Whether the model was in training mode and has layers for which that matters (dropout, batch norm).
    pub in_training_mode: bool,
}

/// A function that was compiled more than once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Recompilation {
    /// The line of its `def`.
    pub at: Location,
    /// How often it was compiled again, over the run.
    pub count: u32,
    /// Nanoseconds of compiling it again, over the run; 0 where that was not measured.
    pub time_ns: u64,
    /// As `torch` says it, at most 500 characters.
    #[serde(deserialize_with = "text")]
    pub reason: String,
}

/// A graph break.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GraphBreak {
    /// The user's line that breaks it.
    pub at: Location,
    /// How often.
    pub count: u32,
    /// As `torch` says it, at most 500 characters.
    #[serde(deserialize_with = "text")]
    pub reason: String,
    /// What is entered because of it, by the numbers that Dynamo gave: the rest of the function, and functions
    /// that the graph would have had within it.
    #[serde(deserialize_with = "or_default")]
    pub frames: Vec<u32>,
}

/// Padding in what an embedding is given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Padding {
    /// The line that calls it.
    pub at: Location,
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Tokens that it was given.
    pub tokens: u64,
    /// Those of them that stand at the end of their row and are padding.
    pub padding: u64,
    /// What tells the padding: `padding_idx`, `mask`, or `ends` where it is only that rows end so. Empty in
    /// recordings that do not say.
    #[serde(deserialize_with = "text")]
    pub by: String,
}

/// A profiler that was on while the program trained.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProfilerLeftOn {
    /// `torch.profiler`, `cProfile`, `sys.settrace`, `sys.setprofile`, `emit_nvtx`,
    /// `record_memory_history`, or what another tool calls itself.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// The user's line that turned it on.
    pub at: Option<Location>,
}

/// Iterations that ran by turns: as the program is, and with something of it switched off.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SwitchedOff {
    /// `anomaly`, or the name of a [`ProfilerLeftOn`].
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Nanoseconds of the iterations with it.
    #[serde(deserialize_with = "or_default")]
    pub with_ns: Vec<u64>,
    /// Nanoseconds of those without it.
    #[serde(deserialize_with = "or_default")]
    pub without_ns: Vec<u64>,
}

/// A line in each of several iterations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LineTimes {
    /// The line.
    pub at: Location,
    /// Nanoseconds of the host on it and in calls from it that reach no other user line, by iteration.
    #[serde(deserialize_with = "or_default")]
    pub ns: Vec<u64>,
}

/// What NVML said while the program was timed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GpuState {
    /// The clock of the multiprocessors, in MHz, looked at several times.
    #[serde(deserialize_with = "or_default")]
    pub clock_mhz: Vec<u32>,
    /// The highest that it can be.
    pub highest_clock_mhz: Option<u32>,
    /// Why it was lower: `power`, `heat`, `hardware`.
    #[serde(deserialize_with = "or_default")]
    pub limited_by: Vec<String>,
    /// Other processes that computed on it.
    pub other_processes: Option<u32>,
    /// Bytes of memory that they hold.
    pub other_bytes: Option<u64>,
    /// What cannot be known and why, as sentences.
    #[serde(deserialize_with = "or_default")]
    pub unknown: Vec<String>,
}

/// Data-parallel training.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Distributed {
    /// Which of them this is.
    pub rank: u32,
    /// How many there are.
    pub world_size: u32,
    /// `gloo`, `nccl`.
    #[serde(deserialize_with = "optional_text")]
    pub backend: Option<String>,
    /// Models that are wrapped in `DistributedDataParallel`.
    #[serde(deserialize_with = "or_default")]
    pub models: Vec<Replica>,
}

/// A model of which each rank has a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Replica {
    /// Index into [`Manifest::modules`](super::manifest::Manifest::modules).
    pub module: u32,
    /// Backward passes through it in the iterations that were looked at.
    pub backwards: u32,
    /// Those of them that exchanged gradients.
    pub exchanges: u32,
    /// Steps of an optimizer in them.
    pub steps: u32,
}

/// A value, with `null` for what was not looked at.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    /// The key `observed` as a whole, which a manifest holds.
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
    fn what_was_not_looked_at_is_nothing() {
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
    fn habits_of_the_loop_are_read() {
        let observed = read(
            r#"{"evaluations": [{"at": {"file": 0, "line": 40}, "module": 3, "calls": 2,
                    "with_gradients": true, "in_training_mode": false}],
                "padding": [{"at": {"file": 0, "line": 40}, "module": 1, "tokens": 4096,
                    "padding": 1500, "by": "mask"}],
                "profilers": [{"name": "cProfile", "at": null},
                    {"name": "torch.profiler", "at": {"file": 0, "line": 40}}],
                "switched_off": [{"name": "cProfile", "with_ns": [30, 31], "without_ns": [20]}],
                "line_times": [{"at": {"file": 0, "line": 40}, "ns": [100, 900]}],
                "line_times_disturbed": true}"#,
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
    }

    #[test]
    fn what_is_compiled_again_is_read() {
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
    fn the_gpu_and_the_ranks_are_read() {
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
        check_error(r#"{"gpu": {"clock_mhz": [1e99]}}"#, ".gpu.clock_mhz[0]");
        check_error(r#"{"distributed": {"models": 3}}"#, ".distributed.models");
        let deep = "[".repeat(20_000);
        check_error(&format!(r#"{{"line_times": {deep}"#), ".line_times");
    }
}
