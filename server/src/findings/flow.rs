//! Updates the findings after a measurement or a pause in typing.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ridgeline_analysis::python::SourceIndex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{FindingSet, is_relevant, is_used};
use crate::debounce::{Debouncer, Wake};
use crate::event::{Event, WorkspaceEvent};
use crate::notebook;
use crate::profiler::Profiler;
use crate::requests::EditContext;
use crate::scheduler::WorkspaceId;
use crate::state::GlobalState;

/// The maximum number of programs of a workspace that are analyzed at once.
const MAX_PROGRAMS: usize = 8;
/// The delay after a document is opened. The editor requests its hints first.
const IDLE: Duration = Duration::from_secs(1);

/// The findings of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The generation and the findings of each measurement, one per project, newest first.
    measured: Vec<(u64, Arc<FindingSet>)>,
    /// The generations of the inspected measurements, including those without a result.
    inspected: Vec<u64>,
    /// Findings from source text only.
    of_source: Vec<Arc<FindingSet>>,
    /// The pause before the texts are analyzed.
    pause: Debouncer,
    /// The number of the running analysis, and the token that cancels it.
    running: Option<(u64, CancellationToken)>,
}

impl Findings {
    /// All shown findings.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<FindingSet>> {
        self.measured.iter().map(|(_, set)| set).chain(&self.of_source)
    }

    /// The findings of a measurement, by its generation.
    pub(crate) fn of(&self, generation: u64) -> Option<&Arc<FindingSet>> {
        self.measured.iter().find(|(of, _)| *of == generation).map(|(_, set)| set)
    }

    /// Whether a measurement was inspected.
    pub(crate) fn is_inspected(&self, generation: u64) -> bool {
        self.inspected.contains(&generation)
    }

    /// Cancels the pause and the running analysis.
    pub(crate) fn forget_pending(&mut self) {
        self.stop();
        self.pause = Debouncer::default();
    }

    /// Drops all findings and cancels pending work.
    pub(crate) fn clear(&mut self) {
        self.stop();
        self.measured.clear();
        self.inspected.clear();
        self.of_source.clear();
        self.pause.cancel();
    }

    fn stop(&mut self) {
        if let Some((_, cancel)) = self.running.take() {
            cancel.cancel();
        }
    }

    fn is_empty(&self) -> bool {
        self.all().all(|set| set.findings.is_empty())
    }
}

impl Drop for Findings {
    fn drop(&mut self) {
        self.stop();
    }
}

impl GlobalState {
    /// The findings of the projects that contain a file.
    pub(crate) fn findings_around(&self, file: &Path) -> Vec<Arc<FindingSet>> {
        if self.settings.findings.is_none() {
            return Vec::new();
        }
        let all = self.workspaces.iter().flat_map(|workspace| workspace.findings.all());
        all.filter(|set| file.starts_with(&set.root)).cloned().collect()
    }

    /// Whether a workspace shows findings, which move with the text.
    pub(crate) fn has_findings(&self, id: WorkspaceId) -> bool {
        self.settings.findings.is_some() && !self.workspaces[id].findings.is_empty()
    }

    /// Stores the findings of a measurement. `found` is `None` if the measurement has no graph.
    pub(crate) fn findings_found(
        &mut self,
        id: WorkspaceId,
        generation: u64,
        found: Option<FindingSet>,
    ) {
        let feed = self.feed.clone();
        let workspace = &mut self.workspaces[id];
        // The user may have cleared it, and a later run may have replaced it.
        let about = workspace.measured.iter().find(|(known, _)| *known == generation);
        let Some(project) = about.map(|(_, profiled)| profiled.real_root.clone()) else { return };
        let projects: Vec<PathBuf> =
            workspace.measured.iter().map(|(_, profiled)| profiled.real_root.clone()).collect();
        let inspected = &mut workspace.findings.inspected;
        inspected.retain(|of| workspace.measured.iter().any(|(known, _)| known == of));
        if !inspected.contains(&generation) {
            inspected.push(generation);
        }
        let all = &mut workspace.findings.measured;
        all.retain(|(_, set)| set.root != project && projects.contains(&set.root));
        all.extend(found.map(|set| (generation, Arc::new(set))));
        all.sort_by_key(|(of, _)| Reverse(*of));
        feed.changed(id);
        self.show_diagnostics(id);
    }

    /// Analyzes a changed text after a pause.
    pub(crate) fn schedule_reading(&mut self, file: &Path, is_new: bool) {
        if let Some(id) = self.workspaces.around(file).filter(|_| notebook::is_python(file)) {
            let pause = self.settings.live_delay;
            self.read_in(id, if is_new { pause.max(IDLE) } else { pause });
        }
    }

    fn read_in(&mut self, id: WorkspaceId, pause: Duration) {
        if self.settings.findings.is_none() {
            return;
        }
        let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::ReadingDue };
        let findings = &mut self.workspaces[id].findings;
        findings.stop();
        findings.pause.restart(pause, &wake);
    }

    /// Starts the analysis when the pause has ended, unless another edit restarted it.
    pub(crate) fn reading_due(&mut self, id: WorkspaceId) {
        let wake = Wake { events: &self.events, id, event: || WorkspaceEvent::ReadingDue };
        if self.workspaces[id].findings.pause.is_over(&wake) {
            self.begin_reading(id);
        }
    }

    fn begin_reading(&mut self, id: WorkspaceId) {
        let open = self.documents.iter().filter_map(|(_, document)| document.real.clone());
        let is_here =
            |file: &PathBuf| notebook::is_python(file) && self.workspaces.around(file) == Some(id);
        let mut files: Vec<PathBuf> = open.filter(is_here).collect();
        // The most recently edited program comes first. One cell stands for its notebook.
        files.sort_by_key(|file| (Some(file) != self.last_touched.as_ref(), file.clone()));
        let mut notebooks = HashSet::new();
        files.retain(|file| match notebook::cell_of(file) {
            Some((notebook, _)) => notebooks.insert(notebook),
            None => true,
        });
        files.truncate(MAX_PROGRAMS);
        let programs: Vec<EditContext> =
            files.iter().map(|file| self.edit_context(id, Some(file))).collect();
        let number = self.next_number();
        let (events, pool, profiler) =
            (self.events.clone(), self.slow_pool.clone(), self.profiler.clone());
        let workspace = &mut self.workspaces[id];
        workspace.findings.stop();
        if workspace.live.cleared {
            return;
        }
        let cancel = CancellationToken::new();
        workspace.findings.running = Some((number, cancel.clone()));
        tokio::spawn(async move {
            let (reply, answer) = oneshot::channel();
            let stop = cancel.clone();
            pool.answer(reply, move || Ok(read(&programs, &*profiler, &|| stop.is_cancelled())));
            // The analysis does not start if it was cancelled meanwhile.
            let found = tokio::select! {
                found = answer => found,
                () = cancel.cancelled() => return,
            };
            // The hook has logged any panic. The shown findings stay.
            let found = found.ok().and_then(Result::ok).flatten();
            // Sending fails only after the event loop has ended.
            let _ =
                events.send(Event::Workspace(id, WorkspaceEvent::TextsRead(number, found))).await;
        });
    }

    /// Stores the findings of an analysis. `found` is `None` if a text currently does not parse,
    /// which keeps the previous findings.
    pub(crate) fn texts_read(
        &mut self,
        id: WorkspaceId,
        number: u64,
        found: Option<Vec<FindingSet>>,
    ) {
        let workspace = &mut self.workspaces[id];
        let findings = &mut workspace.findings;
        if findings.running.take_if(|(own, _)| *own == number).is_none() {
            return;
        }
        let Some(found) = found else { return };
        let has_findings = |all: &[Arc<FindingSet>]| all.iter().any(|set| !set.findings.is_empty());
        let before = has_findings(&findings.of_source);
        findings.of_source = found.into_iter().map(Arc::new).collect();
        if before || has_findings(&findings.of_source) {
            self.show_diagnostics(id);
        }
    }

    /// Applies a change of the settings about findings.
    pub(crate) fn findings_settings_changed(&mut self, id: WorkspaceId) {
        let workspace = &mut self.workspaces[id];
        if !workspace.findings.pause.is_started() && workspace.findings.of_source.is_empty() {
            self.read_in(id, Duration::ZERO);
        }
    }
}

/// The findings from source text. Returns `None` if a text currently does not parse or the analysis
/// was cancelled.
fn read(
    programs: &[EditContext],
    profiler: &dyn Profiler,
    stop: &dyn Fn() -> bool,
) -> Option<Vec<FindingSet>> {
    let mut found: Vec<FindingSet> = Vec::new();
    let mut known: Vec<(PathBuf, String)> = Vec::new();
    for context in programs {
        let Some((root, sources, entry)) = context.read() else { continue };
        let program = (root.to_owned(), entry.path.clone());
        if known.contains(&program) {
            continue;
        }
        known.push(program);
        if context.texts().any(|text| SourceIndex::new(text).first_syntax_error().is_some()) {
            return None;
        }
        let mut findings = profiler.read(&sources, &entry, root, stop);
        // A measurement of another program says nothing about this one's files.
        if let Some(profile) = context.profile().filter(|it| is_used(it, &entry.path)) {
            findings.retain(|one| context.is_open(&one.at.path) || is_relevant(one, profile));
        }
        if stop() {
            return None;
        }
        found.push(FindingSet::of_source(root, findings, entry, &sources));
    }
    Some(found)
}
