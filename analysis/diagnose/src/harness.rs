//! Hand-written programs and iterations for the tests of rules. A line is named by the comment at
//! its end: `loss.item()  # sync` is the line `sync`.

mod iteration;

use std::collections::HashMap;
use std::sync::Arc;

use super::evidence::{Evidence, work};
use super::finding::Finding;
use super::rule::Rule;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory::peak;
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::simulate;
use ridgeline_optimize::facts::Probes;
use ridgeline_optimize::optimizations::shared::testing;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::study::RecordedRun;
use ridgeline_profile::{FileFacts, FileId, LineCost, Profile};
use ridgeline_python::fingerprint;
use ridgeline_python::semantics::Entry;
use ridgeline_python::semantics::project::Modules;
use ridgeline_recording::manifest::{Location, Manifest};

pub(crate) use iteration::{float, of_type, operator};

/// A line of a file.
pub(crate) type FileLine = (FileId, u32);

/// A program and what one iteration of it did.
pub(crate) struct Case {
    texts: HashMap<String, Arc<str>>,
    pub graph: Graph,
    pub manifest: Manifest,
    pub profile: Profile,
    pub device: Result<DeviceSpec, String>,
    pub probes: Probes,
    /// The module that the next calls belong to.
    module: Option<u32>,
    /// Number of calls so far.
    calls: u32,
}

impl Case {
    /// A program with one file, `train.py`, that ran on a CPU.
    pub(crate) fn new(text: &str) -> Case {
        let mut case = Case {
            texts: HashMap::new(),
            graph: Graph::default(),
            manifest: Manifest { torch: "2.15.0".to_owned(), ..Manifest::default() },
            profile: Profile::default(),
            device: Ok(testing::cpu()),
            probes: Probes::default(),
            module: None,
            calls: 0,
        };
        case.profile.device.kind = "cpu".to_owned();
        case.file("train.py", text);
        case
    }

    /// Adds a file, or replaces its text.
    pub(crate) fn file(&mut self, path: &str, text: &str) -> &mut Case {
        self.texts.insert(path.to_owned(), text.into());
        let facts = FileFacts { path: path.to_owned(), fingerprint: fingerprint(text) };
        match self.profile.files.iter_mut().find(|known| known.path == path) {
            Some(known) => *known = facts,
            None => {
                self.profile.files.push(facts);
                self.profile.lines.push(Vec::new());
            }
        }
        self
    }

    /// Runs the program on a GPU with TF32.
    pub(crate) fn on_gpu(mut self) -> Case {
        self.profile.device.kind = "cuda".to_owned();
        self.device = Ok(testing::gpu("8.0"));
        self
    }

    /// The line with a mark.
    #[track_caller]
    pub(crate) fn line(&self, mark: &str) -> FileLine {
        let suffix = format!("# {mark}");
        for (file, facts) in (0_u32..).zip(&self.profile.files) {
            let text = &self.texts[&facts.path];
            let found = (1_u32..).zip(text.lines()).find(|(_, line)| line.ends_with(&suffix));
            if let Some((line, _)) = found {
                return (FileId(file), line);
            }
        }
        panic!("no line is marked {mark}");
    }

    /// The line with a mark, as in a manifest.
    #[track_caller]
    pub(crate) fn location(&self, mark: &str) -> Location {
        let (file, line) = self.line(mark);
        Location { file: file.0, line }
    }

    /// Records how often a line ran in an iteration.
    #[track_caller]
    pub(crate) fn ran(&mut self, mark: &str, calls: f64) -> &mut LineCost {
        let (file, line) = self.line(mark);
        let lines = &mut self.profile.lines[file.0 as usize];
        lines.push(LineCost { line, calls, ..LineCost::default() });
        lines.last_mut().expect("it was just added")
    }

    /// Changes the agent's manifest.
    pub(crate) fn with_manifest(mut self, change: impl FnOnce(&mut Manifest)) -> Case {
        change(&mut self.manifest);
        self
    }

    /// The iteration in the form that rules take.
    pub(crate) fn recorded_run(&self) -> RecordedRun {
        let schedule = simulate::steady(&self.graph).unwrap_or_default();
        let measured_ns = schedule.iteration_ns;
        let mut profile = self.profile.clone();
        profile.iteration.time_ns = measured_ns;
        if let Some(bytes) = peak(&self.graph, &schedule) {
            profile.memory.peak_bytes = bytes as u64;
        }
        let graph = self.graph.clone();
        let recorded = Recorded {
            graph,
            schedule,
            replay_error: 0.0,
            measured_ns,
            host_factor: 1.0,
            notes: Vec::new(),
        };
        let (manifest, device) = (Some(self.manifest.clone()), self.device.clone());
        RecordedRun { recorded, profile: Arc::new(profile), manifest, device }
    }

    /// Returns what a rule finds in the measured iteration.
    pub(crate) fn measured(&self, rule: &dyn Rule) -> Vec<Finding> {
        let subject = self.recorded_run();
        let work = work(&subject.recorded.graph);
        with_files(&self.texts, |program| {
            rule.measured(&Evidence::new(&subject, &self.probes, program, &work))
        })
    }

    /// Returns what a rule finds in the source text.
    pub(crate) fn unmeasured(&self, rule: &dyn Rule) -> Vec<Finding> {
        with_files(&self.texts, |program| rule.unmeasured(program))
    }

    /// Checks that a rule finds one problem, at this line, and returns it.
    #[track_caller]
    pub(crate) fn finds(&self, rule: &dyn Rule, mark: &str) -> Finding {
        let mut found = self.measured(rule);
        assert_eq!(found.len(), 1, "{found:#?}");
        let found = found.remove(0);
        assert_eq!((found.at.line, found.rule), (self.line(mark).1, rule.name()), "{found:#?}");
        found
    }

    /// Checks that a rule finds nothing, measured or not.
    #[track_caller]
    pub(crate) fn finds_nothing(&self, rule: &dyn Rule) {
        assert_eq!(self.measured(rule), []);
        assert_eq!(self.unmeasured(rule), []);
    }
}

/// The 1-based lines that a rule finds in a source text.
pub(crate) fn lines_in(rule: &dyn Rule, text: &str) -> Vec<u32> {
    Case::new(text).unmeasured(rule).into_iter().map(|found| found.at.line).collect()
}

/// Calls `query` with a program of one file.
pub(crate) fn with_program<T>(text: &str, query: impl FnOnce(&Program<'_>) -> T) -> T {
    with_files(&HashMap::from([("train.py".to_owned(), Arc::from(text))]), query)
}

fn with_files<T>(texts: &HashMap<String, Arc<str>>, query: impl FnOnce(&Program<'_>) -> T) -> T {
    let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    let modules = Modules::read(texts, &entry);
    query(&Program::new(&modules, texts, &entry))
}
