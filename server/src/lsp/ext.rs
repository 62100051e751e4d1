//! Ridgeline's extensions of the protocol. `docs/protocol.md` describes them for clients, and a
//! test compares the page with these types.

use ridgeline_analysis::profile::Provenance;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_lsp::ls_types::{Range, TextDocumentIdentifier};

/// `ridgeline/status`: the server's state and the headline of the newest measurement. Sent to the
/// client on every change, once for each workspace folder.
pub(crate) const STATUS: &str = "ridgeline/status";

/// A workspace's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Nothing runs. `headline` has the last measurement.
    #[default]
    Idle,
    /// A run was requested and waits for the user's consent.
    WaitingForTrust,
    /// The interpreter is being found and the project's imports are loaded.
    Preparing,
    /// A run is in progress. `run` has its progress.
    Running,
    /// Another job of the workspace runs, such as an estimate. `message` describes it. Sent to
    /// clients that announce `capabilities.experimental.ridgeline.background`. Others get
    /// `running`.
    Background,
    /// Paused by `ridgeline.pause`: saves start no run.
    Paused,
    /// The last run failed. `message` has the reason.
    Failed,
}

/// Parameters of [`STATUS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusParams {
    /// The workspace folder.
    pub root: String,
    /// The state of the workspace.
    pub state: State,
    /// Details, for display.
    pub message: Option<String>,
    /// The run in progress.
    pub run: Option<RunStatus>,
    /// The newest measurement.
    pub headline: Option<Headline>,
}

impl StatusParams {
    /// Replaces `background` by `running`, for clients that do not know it.
    pub(crate) fn without_background(mut self) -> StatusParams {
        if self.state == State::Background {
            self.state = State::Running;
            let reason = self.message.take().unwrap_or_default();
            self.run = Some(RunStatus { reason, stage: None, share: None });
        }
        self
    }

    /// The status in the panel. The panel's document shows the measurement, so the headline is
    /// included only if it is an estimate.
    pub(crate) fn for_panel(&self) -> Value {
        let estimate = self.headline.as_ref().filter(|headline| headline.is_estimate);
        let estimate = estimate.map(|headline| format!("Unsaved code: {}", headline.text));
        let message = self.message.clone().or(estimate);
        json!({"state": self.state, "message": message, "run": self.run})
    }
}

/// A run in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunStatus {
    /// The reason for the run: `train.py was saved`.
    pub reason: String,
    /// The current stage: `warming up`.
    pub stage: Option<String>,
    /// The completed fraction, 0 to 1.
    pub share: Option<f32>,
}

/// The newest measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Headline {
    /// For a status bar: `312 samples/s · 102 ms · peak 3.1 / 23.7 GB`.
    pub text: String,
    /// Iteration time in milliseconds.
    pub time_ms: f64,
    /// Samples per second, if the batch size is known.
    pub samples_per_second: Option<f64>,
    /// Peak memory in bytes.
    pub peak_bytes: u64,
    /// Device memory in bytes.
    pub capacity_bytes: Option<u64>,
    /// The name of the device.
    pub device: String,
    /// Whether it is an estimate, for unsaved text or a device that this machine does not have.
    #[serde(default)]
    pub is_estimate: bool,
}

/// `ridgeline/heat`: the statements of a document that take most of an iteration's time, hottest
/// first. A request of the client.
pub(crate) const HEAT: &str = "ridgeline/heat";

/// Parameters of [`HEAT`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeatParams {
    pub text_document: TextDocumentIdentifier,
}

/// One statement of the response to [`HEAT`], which is an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeatStatement {
    /// The statement, or the header of a compound statement.
    pub range: Range,
    /// The statement's self time as a fraction of iteration time, 0 to 1.
    pub share: f64,
    /// The origin of the number.
    pub provenance: HeatProvenance,
}

/// The origin of the number of a [`HeatStatement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeatProvenance {
    /// Measured by a run of this statement.
    Measured,
    /// Computed, or a measured total split by an estimated share.
    Estimated,
    /// Measured before the statement was changed. Show it faded.
    Stale,
}

impl From<Provenance> for HeatProvenance {
    fn from(provenance: Provenance) -> HeatProvenance {
        match provenance {
            Provenance::Measured => HeatProvenance::Measured,
            Provenance::Estimated => HeatProvenance::Estimated,
            Provenance::Stale => HeatProvenance::Stale,
        }
    }
}

/// `ridgeline/openPanel`: shows the panel. For clients that announce
/// `capabilities.experimental.ridgeline.panel`.
pub(crate) const OPEN_PANEL: &str = "ridgeline/openPanel";

/// Parameters of [`OPEN_PANEL`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenPanelParams {
    /// The panel's address, with its token.
    pub uri: String,
    /// The shown workspace folder.
    pub root: String,
}

/// `ridgeline/highlight`: highlights the line under the pointer in the panel. For clients that
/// announce `capabilities.experimental.ridgeline.highlight`.
pub(crate) const HIGHLIGHT: &str = "ridgeline/highlight";

/// Parameters of [`HIGHLIGHT`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HighlightParams {
    /// The file, or `None` to remove the highlight.
    pub uri: Option<String>,
    /// The range of the line's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
}

/// `ridgeline/gpus`: the names of the possible target GPUs of estimates. A request of the client,
/// without parameters.
pub(crate) const GPUS: &str = "ridgeline/gpus";

/// The commands of `workspace/executeCommand`.
pub(crate) mod command {
    /// Profile now. Argument: the URI of a file, which selects the project.
    pub(crate) const PROFILE: &str = "ridgeline.profile";
    /// Stop everything that runs in the workspace.
    pub(crate) const STOP: &str = "ridgeline.stop";
    /// Stop starting runs on save.
    pub(crate) const PAUSE: &str = "ridgeline.pause";
    /// Start runs on save again.
    pub(crate) const RESUME: &str = "ridgeline.resume";
    /// Clear all shown results.
    pub(crate) const CLEAR: &str = "ridgeline.clear";
    /// Show the program's output in its last run.
    pub(crate) const SHOW_OUTPUT: &str = "ridgeline.showOutput";
    /// Write the report of the newest measurement and show it.
    pub(crate) const SHOW_REPORT: &str = "ridgeline.showReport";
    /// Open the panel of the workspace. Also used by a lens.
    pub(crate) const OPEN_PANEL: &str = ridgeline_analysis::present::lenses::OPEN_PANEL_COMMAND;
    /// Allow a workspace to run code from now on.
    pub(crate) const TRUST: &str = "ridgeline.trust";
    /// Revoke all decisions about a workspace.
    pub(crate) const REVOKE_TRUST: &str = "ridgeline.revokeTrust";
    /// Ask which script is the training run, or use the one in the argument.
    pub(crate) const SELECT_SCRIPT: &str = "ridgeline.selectScript";
    /// Ask for the target GPU of estimates, or use the argument's `gpu`; null for none.
    pub(crate) const SELECT_TARGET_GPU: &str = "ridgeline.selectTargetGpu";

    /// Set the batch size in the text: `batch` of the argument, or ask.
    pub(crate) const SET_BATCH_SIZE: &str = "ridgeline.setBatchSize";
    /// Run the batch-size sweep now.
    pub(crate) const EXPLORE_BATCH_SIZE: &str = "ridgeline.exploreBatchSize";
    /// Measure the savings of an optimization: `name` of the argument.
    pub(crate) const MEASURE_WHAT_IF: &str = "ridgeline.measureWhatIf";
    /// Apply the edit of an optimization: `name` of the argument, such as `amp-bf16`.
    pub(crate) const APPLY_WHAT_IF: &str = "ridgeline.applyWhatIf";

    /// All commands with their descriptions, in the order of the documentation.
    pub(crate) const ALL: [(&str, &str); 16] = [
        (PROFILE, "Profile now."),
        (STOP, "Stop all work of the workspace."),
        (PAUSE, "Pause profiling on save, and stop background work."),
        (RESUME, "Resume profiling on save."),
        (CLEAR, "Clear all results."),
        (SHOW_OUTPUT, "Show the program output of the last run."),
        (SHOW_REPORT, "Write and show the report of the latest measurement."),
        (OPEN_PANEL, "Open the panel of the workspace."),
        (TRUST, "Trust the workspace: allow runs without asking."),
        (REVOKE_TRUST, "Revoke the trust of the workspace."),
        (SELECT_SCRIPT, "Ask for the training script, or use the one in the argument."),
        (
            SELECT_TARGET_GPU,
            "Ask for the GPU to estimate for if this machine has none, or use `gpu` of the \
            argument.",
        ),
        (SET_BATCH_SIZE, "Set the batch size in the code to `batch` of the argument."),
        (EXPLORE_BATCH_SIZE, "Run a batch-size sweep: estimates and short runs."),
        (
            MEASURE_WHAT_IF,
            "Measure the speedup of the optimization `name` of the argument, such as `compile`, by \
            running the program with and without its edit.",
        ),
        (
            APPLY_WHAT_IF,
            "Apply the edit of the optimization `name` of the argument, such as `amp-bf16`.",
        ),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/protocol.md");

    const STATES: [State; 7] = [
        State::Idle,
        State::WaitingForTrust,
        State::Preparing,
        State::Running,
        State::Background,
        State::Paused,
        State::Failed,
    ];

    /// The first and second cells of the page's table rows under a heading.
    fn rows(heading: &str) -> Vec<(String, String)> {
        let section = PAGE.split("\n## ").find(|section| section.starts_with(heading));
        let rows = section.into_iter().flat_map(str::lines).filter(|line| line.starts_with("| `"));
        rows.filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            Some((cells.next()?.trim_matches('`').to_owned(), cells.next()?.to_owned()))
        })
        .collect()
    }

    #[test]
    fn the_documented_commands_match() {
        let commands = command::ALL.map(|(name, what)| (name.to_owned(), what.to_owned()));
        assert_eq!(rows("Commands"), commands);
    }

    #[test]
    fn the_documented_states_match() {
        let states: Vec<String> = rows("States").into_iter().map(|(name, _)| name).collect();
        let expected = STATES
            .map(|state| serde_json::to_value(state).expect("JSON").as_str().map(str::to_owned));
        assert_eq!(states.into_iter().map(Some).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_documented_heat_matches() {
        let statement = HeatStatement {
            range: Range::default(),
            share: 0.5,
            provenance: HeatProvenance::Measured,
        };
        let value = serde_json::to_value(statement).expect("JSON");
        let keys = value.as_object().into_iter().flatten().map(|(key, _)| key.clone());
        let documented = rows(&format!("`{HEAT}`"));
        let mut names: Vec<String> = documented.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        assert_eq!(names, keys.collect::<Vec<_>>());

        let provenance =
            [HeatProvenance::Measured, HeatProvenance::Estimated, HeatProvenance::Stale];
        let words = provenance.map(|one| serde_json::to_value(one).expect("JSON"));
        let words: Vec<&str> = words.iter().filter_map(|word| word.as_str()).collect();
        let listed = documented.iter().find(|(name, _)| name == "provenance");
        let listed = listed.map(|(_, what)| what.split('`').skip(1).step_by(2).collect::<Vec<_>>());
        assert_eq!(listed, Some(words));
    }

    /// Checks a notification's table in the page against its parameters, all of which are set here.
    #[track_caller]
    fn check_notification(name: &str, full: impl Serialize) {
        let value = serde_json::to_value(full).expect("JSON");
        let mut keys: Vec<String> = Vec::new();
        for (key, value) in value.as_object().into_iter().flatten() {
            keys.push(key.clone());
            // The fields of a range belong to the standard protocol.
            let inner = value.as_object().filter(|_| key != "range");
            keys.extend(inner.into_iter().flatten().map(|(inner, _)| format!("{key}.{inner}")));
        }
        let mut documented: Vec<String> =
            rows(&format!("`{name}`")).into_iter().map(|(name, _)| name).collect();
        keys.sort();
        documented.sort();
        assert_eq!(documented, keys);
    }

    #[test]
    fn the_documented_notifications_match() {
        let run = Some(RunStatus::default());
        let headline = Some(Headline::default());
        check_notification(STATUS, StatusParams { run, headline, ..StatusParams::default() });
        check_notification(OPEN_PANEL, OpenPanelParams::default());
        let range = Some(Range::default());
        check_notification(HIGHLIGHT, HighlightParams { uri: Some(String::new()), range });
    }

    #[test]
    fn every_custom_message_is_documented() {
        let headings = PAGE.split("\n## ").filter_map(|section| section.lines().next());
        let mut documented: Vec<&str> = headings
            .filter_map(|heading| heading.strip_prefix('`')?.strip_suffix('`'))
            .filter(|name| name.starts_with("ridgeline/"))
            .collect();
        documented.sort_unstable();
        assert_eq!(documented, [GPUS, HEAT, HIGHLIGHT, OPEN_PANEL, STATUS]);
    }
}
