//! The GPU that estimates are for where this machine has none.

use ridgeline_analysis::devices::device_spec::DeviceKind;
use ridgeline_analysis::devices::device_table::DeviceTable;
use serde_json::Value;

use crate::event::{Event, WorkspaceEvent};
use crate::known_devices;
use crate::lsp::client::{Asked, Importance};
use crate::scheduler::WorkspaceId;
use crate::state::GlobalState;

/// What is offered where a client has no list to choose from: a message with more buttons cannot be
/// read. They are the GPUs that clouds and desks have most of.
const OFFERED: [&str; 7] =
    ["H100-SXM5-80GB", "H200-SXM5-141GB", "A100-SXM4-80GB", "L4", "T4", "RTX 4090", "RTX 5090"];

/// The title that takes a choice back.
const NONE: &str = "None";

/// The names of all GPUs that can be estimated for.
pub(crate) fn names() -> Vec<String> {
    let devices = DeviceTable::shipped().devices().iter();
    devices.filter(|it| it.kind == DeviceKind::Gpu).map(|it| it.name.clone()).collect()
}

/// What an argument of the command says: a name, or none; nothing where it says nothing of it.
pub(crate) fn argument(arguments: &[Value]) -> Option<Option<String>> {
    let gpu = arguments.iter().find_map(|argument| argument.get("gpu"))?;
    Some(gpu.as_str().map(str::to_owned))
}

impl GlobalState {
    /// Takes a choice, or asks for one.
    pub(crate) fn select_target(&mut self, id: WorkspaceId, chosen: Option<Option<String>>) {
        match chosen {
            Some(Some(name)) => self.look_up_target(id, name),
            Some(None) => self.set_target(id, None),
            None => self.ask_for_target(id),
        }
    }

    /// Finds a GPU by a name, among the project's own as well, whose files have to be read.
    fn look_up_target(&self, id: WorkspaceId, name: String) {
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        let of = self.workspaces[id].root.clone();
        tokio::spawn(async move {
            let found = tokio::task::spawn_blocking(move || {
                let (table, _) = known_devices::of_project(&of);
                table.choose(&name).map(|device| device.name.clone())
            });
            let told = match found.await {
                Ok(Ok(name)) => {
                    // Where the event loop is over, nobody wants it.
                    let _ = events
                        .send(Event::Workspace(id, WorkspaceEvent::TargetChosen(Some(name))))
                        .await;
                    return;
                }
                Ok(Err(unknown)) => unknown.to_string(),
                Err(error) => format!("The GPU was not looked up: {error}"),
            };
            to_client.show_message(Importance::Warning, &told);
        });
    }

    fn ask_for_target(&self, id: WorkspaceId) {
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        let offered = OFFERED.iter().filter(|name| DeviceTable::shipped().find(name).is_some());
        let titles: Vec<String> = offered.copied().chain([NONE]).map(str::to_owned).collect();
        let message = "Which GPU should estimates be for? This machine has none. The setting \
            ridgeline.targetGpu accepts any known GPU.";
        let answer = to_client.ask(message, &titles);
        tokio::spawn(async move {
            let chosen = match answer.await {
                Asked::Chosen(title) => title,
                Asked::Closed => return,
                Asked::NotShown => {
                    let message = "Set ridgeline.targetGpu to choose a GPU";
                    return to_client.show_message(Importance::Info, message);
                }
            };
            let chosen = Some(chosen).filter(|title| title != NONE);
            // Where the event loop is over, nobody wants it.
            let _ = events.send(Event::Workspace(id, WorkspaceEvent::TargetChosen(chosen))).await;
        });
    }

    /// Estimates of a workspace are for this GPU from now on, by its name in the table; for none, as
    /// the settings say.
    pub(crate) fn set_target(&mut self, id: WorkspaceId, chosen: Option<String>) {
        self.clear_estimates(id);
        let workspace = &mut self.workspaces[id];
        workspace.live.cleared = false;
        workspace.live.target = chosen;
        self.mark_stale();
        self.show_diagnostics(id);
        self.estimate_when_idle(id);
        self.send_status(id);
    }
}
