//! Requests of the panel's pages. A jump or a highlight needs a place in the current text, which is
//! found from a snapshot, outside the event loop, as for other requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use ridgeline_analysis::profile::FileId;
use ridgeline_analysis::python::{LineMap, Lines};
use tokio::sync::mpsc;
use tower_lsp::ls_types::Range;

use super::{apply, execute_command};
use crate::batch::SweepEffort;
use crate::documents::{DocumentSnapshot, text_on_disk};
use crate::event::Event;
use crate::lsp::client::{Importance, ToClient};
use crate::lsp::ext::command;
use crate::lsp::position::{Encoding, line_range};
use crate::lsp::to_proto::{self, uri_text};
use crate::panel::answer::{self, DocumentInput, FindingsState, WhatIfsState};
use crate::panel::request::{ActionResult, Line, OptimizationAction, PanelCommand, PanelRequest};
use crate::panel::{POLL_INTERVAL, Panel};
use crate::pool::{Reply, RequestError};
use crate::profiler::Profiled;
use crate::scheduler::{Slot, WorkspaceId};
use crate::state::GlobalState;
use crate::store::Store;
use crate::trust::Decision;

/// The maximum number of requests waiting for the event loop.
const QUESTION_LIMIT: usize = 16;

impl GlobalState {
    /// Shows the panel of a workspace: in the editor, in the browser, or by its address.
    pub(crate) fn open_panel(&mut self, id: WorkspaceId) {
        let uri = match self.panel() {
            Ok(panel) => panel.uri(id),
            Err(error) => {
                let message = format!("Could not start the panel server on this machine: {error}");
                return self.to_client.show_message(Importance::Error, &message);
            }
        };
        if self.client.shows_panel {
            return self.to_client.open_panel(uri, uri_text(&self.workspaces[id].root));
        }
        let message = format!("The panel is at {uri}");
        self.to_client.show_document(&uri, true, self.client.shows_documents, message);
    }

    /// The panel. It is started on first use.
    fn panel(&mut self) -> std::io::Result<&Panel> {
        if self.panel.is_none() {
            let (questions, requests) = mpsc::channel(QUESTION_LIMIT);
            self.panel = Some(Panel::start(questions, self.feed.clone())?);
            tokio::spawn(relay(requests, self.events.clone(), self.store.clone()));
        }
        self.panel.as_ref().ok_or_else(|| std::io::Error::other("it was closed"))
    }

    /// Handles a request of a page.
    pub(crate) fn handle_panel_request(&mut self, question: PanelRequest) {
        match question {
            PanelRequest::Document(id, reply) => self.panel_document(id, reply),
            PanelRequest::Timeline(id, generation, reply) => {
                self.panel_timeline(id, generation, reply);
            }
            PanelRequest::Compare(id, before, after, reply) => {
                self.panel_compare(id, (before, after), reply);
            }
            PanelRequest::Jump(id, line, reply) => {
                if let Some((reply, sought)) = self.sought(id, line, reply) {
                    let (to_client, can_show) =
                        (self.to_client.clone(), self.client.shows_documents);
                    tokio::spawn(async move {
                        // Sending fails if the page was closed.
                        let _ = reply.send(Ok(sought.jump(&to_client, can_show).await));
                    });
                }
            }
            PanelRequest::Highlight(id, line, reply) => self.mark(id, line, reply),
            PanelRequest::Batch(id, generation, batch, reply) => {
                self.panel_batch(id, generation, batch, reply);
            }
            PanelRequest::WhatIf(id, name, action, reply) => {
                self.panel_what_if(id, &name, action, reply);
            }
            PanelRequest::Fix(id, name, lines, reply) => {
                self.fix_from_panel(id, &name, &lines, reply);
            }
            PanelRequest::Command(id, wish, reply) => {
                let done = self.workspaces.contains(id).then(|| self.run_panel_command(id, wish));
                let _ = reply.send(done.ok_or_else(no_workspace));
            }
        }
    }

    /// Applies an optimization, or requests the runs that measure it.
    fn panel_what_if(
        &mut self,
        id: WorkspaceId,
        name: &str,
        action: OptimizationAction,
        reply: Reply<ActionResult>,
    ) {
        if !self.workspaces.contains(id) {
            let _ = reply.send(Err(no_workspace()));
            return;
        }
        let done = match action {
            OptimizationAction::Apply => return self.panel_apply(id, name, Vec::new(), reply),
            OptimizationAction::Measure => match self.measure_what_if(id, name) {
                Ok(()) => self.consented(id),
                Err(why) => ActionResult::failure(why),
            },
        };
        // Sending fails if the page was closed.
        let _ = reply.send(Ok(done));
    }

    /// Applies an edit at some lines.
    fn fix_from_panel(
        &self,
        id: WorkspaceId,
        name: &str,
        lines: &[Line],
        mut reply: Reply<ActionResult>,
    ) {
        if !self.workspaces.contains(id) {
            let _ = reply.send(Err(no_workspace()));
            return;
        }
        let mut at = Vec::with_capacity(lines.len());
        for line in lines {
            // An unknown line has already been answered.
            let Some((back, sought)) = self.sought(id, *line, reply) else { return };
            reply = back;
            at.push((sought.name(), sought.line));
        }
        self.panel_apply(id, name, at, reply);
    }

    /// Applies an optimization, everywhere or at lines of the text that ran.
    fn panel_apply(
        &self,
        id: WorkspaceId,
        name: &str,
        at: Vec<(String, u32)>,
        reply: Reply<ActionResult>,
    ) {
        let to_client = self.to_client.clone();
        let finding = self.what_if_edit(id, None, name, at);
        tokio::spawn(async move {
            let result = match finding.await {
                Ok(found) => apply::make(&to_client, found).await,
                Err(why) => Err(why),
            };
            let done = match result {
                Ok(notes) if notes.is_empty() => ActionResult::success(),
                Ok(notes) => ActionResult { done: true, message: Some(notes.join("; ")) },
                Err(why) => ActionResult::failure(why),
            };
            // Sending fails if the page was closed.
            let _ = reply.send(Ok(done));
        });
    }

    /// Whether a requested run may start.
    fn consented(&mut self, id: WorkspaceId) -> ActionResult {
        match self.gate.decision(id) {
            Decision::Allowed => ActionResult::success(),
            Decision::Unknown => {
                ActionResult::failure("Your editor is asking for permission to run.")
            }
            Decision::Refused => {
                ActionResult::failure("You chose never to run code of this workspace.")
            }
        }
    }

    fn panel_document(&self, id: WorkspaceId, reply: Reply<Arc<str>>) {
        let Some(workspace) = self.workspaces.find(id) else {
            let _ = reply.send(Err(no_workspace()));
            return;
        };
        let measured = workspace.measured.first().cloned();
        let root = measured.as_ref().map_or(&workspace.root, |(_, profiled)| &profiled.root);
        let generation = measured.as_ref().map(|(generation, _)| *generation);
        let facts = DocumentInput {
            project: root.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            can_jump: true,
            can_highlight: self.client.highlights,
            status: workspace.status.clone().unwrap_or_default().for_panel(),
            store: self.store.clone(),
            batch: self
                .batch_view(id)
                .zip(Some(self.scheduler.has(workspace.id, Slot::BatchSizes))),
            what_ifs: WhatIfsState {
                found: generation.and_then(|of| workspace.what_if.of(of)).cloned(),
                message: workspace.what_if.message.clone(),
                measuring: self.what_if_measured_now(id),
                edit_context: measured.is_some().then(|| self.edit_context(id, None)),
            },
            findings: generation.map(|generation| FindingsState {
                set: workspace.findings.of(generation).cloned(),
                is_known: workspace.what_if.is_complete(generation),
            }),
            measured,
            prices: self.settings.prices.clone(),
        };
        self.slow_pool.answer(reply, move || answer::document(&facts));
    }

    fn panel_compare(&self, id: WorkspaceId, (before, after): (u64, u64), reply: Reply<Arc<str>>) {
        let measured = self.workspaces.find(id).and_then(|workspace| workspace.measured.first());
        let Some(root) = measured.map(|(_, profiled)| profiled.root.clone()) else {
            let _ = reply.send(Err(no_workspace()));
            return;
        };
        let store = self.store.clone();
        let work = move || answer::compare_runs(store.as_ref(), &root, before, after);
        self.slow_pool.answer(reply, work);
    }

    fn panel_timeline(&self, id: WorkspaceId, generation: u64, reply: Reply<Arc<str>>) {
        let workspace = self.workspaces.find(id).into_iter();
        let mut measured = workspace.flat_map(|workspace| &workspace.measured);
        let found = measured.find(|(of, _)| *of == generation);
        let recording = found.and_then(|(_, profiled)| profiled.recording.clone());
        let timelines = self.timelines.clone();
        self.slow_pool.answer(reply, move || timelines.of(generation, recording.as_deref()));
    }

    /// The line to find, with the response channel. Responds itself and returns `None` if there is
    /// no such line.
    fn sought(
        &self,
        id: WorkspaceId,
        line: Line,
        reply: Reply<ActionResult>,
    ) -> Option<(Reply<ActionResult>, Sought)> {
        let Some(workspace) = self.workspaces.find(id) else {
            let _ = reply.send(Err(no_workspace()));
            return None;
        };
        let newest = workspace.measured.first();
        let shown =
            newest.filter(|(generation, _)| line.generation.is_none_or(|g| g == *generation));
        let Some((_, profiled)) = shown else {
            let _ = reply.send(Ok(ActionResult::failure("The panel shows an older measurement.")));
            return None;
        };
        let Some(path) = profiled.files.get(line.file as usize).cloned().flatten() else {
            let _ = reply.send(Ok(ActionResult::failure("That file is not on this machine.")));
            return None;
        };
        let mut open = self.documents.iter();
        let open = open.find(|(_, document)| document.real.as_ref() == Some(&path));
        let sought = Sought {
            open: open.and_then(|(id, _)| self.documents.snapshot(id)),
            path,
            profiled: profiled.clone(),
            file: FileId(line.file),
            line: line.line,
            encoding: self.client.encoding,
        };
        Some((reply, sought))
    }

    fn mark(&self, id: WorkspaceId, line: Option<Line>, reply: Reply<ActionResult>) {
        if !self.client.highlights {
            let _ = reply.send(Ok(ActionResult::failure("This editor cannot highlight a line.")));
            return;
        }
        let mine = self.marks.fetch_add(1, Ordering::AcqRel) + 1;
        let (to_client, marks) = (self.to_client.clone(), self.marks.clone());
        let Some(line) = line else {
            to_client.highlight(None);
            let _ = reply.send(Ok(ActionResult::success()));
            return;
        };
        let Some((reply, sought)) = self.sought(id, line, reply) else { return };
        self.pool.answer(reply, move || {
            Ok(match sought.find() {
                Ok((uri, range)) => {
                    // The pointer may have moved meanwhile.
                    if marks.load(Ordering::Acquire) == mine {
                        to_client.highlight(Some((uri, range)));
                    }
                    ActionResult::success()
                }
                Err(why) => ActionResult::failure(why),
            })
        });
    }

    /// Runs the command of this name, including the questions it asks first.
    fn run_panel_command(&mut self, id: WorkspaceId, wish: PanelCommand) -> ActionResult {
        let (name, done) = match wish {
            PanelCommand::Profile => (command::PROFILE, self.consented(id)),
            PanelCommand::Stop if !self.gate.is_busy(id) && !self.scheduler.is_waiting(id) => {
                return ActionResult::failure("Nothing is running.");
            }
            PanelCommand::Explore => {
                self.sweep_batch_sizes(id, SweepEffort::Estimates);
                return ActionResult::success();
            }
            PanelCommand::Measure => (command::EXPLORE_BATCH_SIZE, self.consented(id)),
            PanelCommand::Stop => (command::STOP, ActionResult::success()),
            PanelCommand::Pause => (command::PAUSE, ActionResult::success()),
            PanelCommand::Resume => (command::RESUME, ActionResult::success()),
        };
        execute_command::run(self, name, id, None);
        done
    }
}

/// Forwards the pages' requests to the event loop while a panel is served. Also reports new
/// recordings, because a page shows the newest one, whichever process wrote it.
async fn relay(
    mut questions: mpsc::Receiver<PanelRequest>,
    events: mpsc::Sender<Event>,
    store: Option<Store>,
) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    // A recording from before the panel was opened may be newer than those of this session.
    let mut seen = None;
    loop {
        let event = tokio::select! {
            question = questions.recv() => match question {
                Some(question) => Event::PanelRequest(question),
                None => return,
            },
            _ = ticks.tick() => {
                let now = last_recorded(store.clone()).await;
                if std::mem::replace(&mut seen, now) == now {
                    continue;
                }
                Event::RecordingAdded
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// The time of the newest recording, if there is one.
async fn last_recorded(store: Option<Store>) -> Option<SystemTime> {
    let looked = tokio::task::spawn_blocking(move || store?.last_recorded());
    looked.await.unwrap_or_default()
}

fn no_workspace() -> RequestError {
    RequestError::Invalid("unknown workspace".to_owned())
}

/// A recorded line to find in the current text.
struct Sought {
    path: PathBuf,
    profiled: Arc<Profiled>,
    file: FileId,
    line: u32,
    /// The open document, if any.
    open: Option<DocumentSnapshot>,
    encoding: Encoding,
}

impl Sought {
    /// Moves the editor to the line. If it cannot, responds with the place.
    async fn jump(self, to_client: &ToClient, can_show: bool) -> ActionResult {
        let name = self.name();
        let found = tokio::task::spawn_blocking(move || self.find()).await;
        let (uri, range) = match found {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => return ActionResult::failure(why),
            Err(error) => {
                return ActionResult::failure(format!("internal error of Ridgeline: {error}"));
            }
        };
        // Only a cursor: the next keystroke would replace a selection.
        let cursor = Range::new(range.start, range.start);
        if can_show && to_client.show_place(&uri, cursor).await {
            return ActionResult::success();
        }
        let place = format!("{name}:{}", range.start.line + 1);
        to_client.show_message(Importance::Info, &place);
        ActionResult::failure(format!("The panel cannot open a location in this editor: {place}"))
    }

    fn name(&self) -> String {
        let file = self.profiled.profile.files.get(self.file.0 as usize);
        file.map(|file| file.path.clone()).unwrap_or_default()
    }

    /// The current place of the line: the file's URI, and the range of the line's code.
    fn find(&self) -> Result<(String, Range), String> {
        let file = self.profiled.profile.files.get(self.file.0 as usize);
        let ran = file.map_or(&[][..], |file| &file.fingerprint);
        let (uri, text, lines) = match &self.open {
            Some(open) => {
                (open.uri.clone(), open.index.text().to_owned(), open.index.lines().clone())
            }
            None => {
                let uri = to_proto::uri(&self.path)
                    .ok_or_else(|| format!("Open the notebook of {} first.", self.name()))?;
                let text = text_on_disk(&self.path)
                    .ok_or_else(|| format!("{} can no longer be read.", self.name()))?;
                let lines = Lines::new(&text);
                (uri.as_str().to_owned(), text, lines)
            }
        };
        let place = LineMap::new(ran, lines.checksums()).place(self.line);
        let place = place.ok_or_else(|| {
            format!("Line {} of {} is not in the current code.", self.line, self.name())
        })?;
        Ok((uri, line_range(&text, &lines, self.encoding, place.line)))
    }
}
