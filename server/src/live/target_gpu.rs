//! The target GPU of estimates on a machine without a GPU.

use ridgeline_analysis::devices::device_spec::DeviceKind;
use ridgeline_analysis::devices::device_table::DeviceTable;
use serde_json::Value;

use crate::event::{Event, WorkspaceEvent};
use crate::known_devices;
use crate::lsp::client::{Importance, QuestionResult};
use crate::scheduler::WorkspaceId;
use crate::state::GlobalState;

/// The GPUs offered by clients without a selection list, as message buttons. These are the most
/// common ones; more buttons would be unreadable.
const OFFERED: [&str; 7] =
    ["H100-SXM5-80GB", "H200-SXM5-141GB", "A100-SXM4-80GB", "L4", "T4", "RTX 4090", "RTX 5090"];

/// The title of the choice that removes the target.
const NONE: &str = "None";

/// The names of all supported target GPUs.
pub(crate) fn names() -> Vec<String> {
    let devices = DeviceTable::shipped().devices().iter();
    devices.filter(|it| it.kind == DeviceKind::Gpu).map(|it| it.name.clone()).collect()
}

/// Parses the command's argument: a name, or `null` for no target. Returns `None` if the argument
/// is missing.
pub(crate) fn argument(arguments: &[Value]) -> Option<Option<String>> {
    let gpu = arguments.iter().find_map(|argument| argument.get("gpu"))?;
    Some(gpu.as_str().map(str::to_owned))
}

impl GlobalState {
    /// Applies a choice, or asks the user.
    pub(crate) fn select_target(&mut self, id: WorkspaceId, chosen: Option<Option<String>>) {
        match chosen {
            Some(Some(name)) => self.look_up_target(id, name),
            Some(None) => self.set_target(id, None),
            None => self.ask_for_target(id),
        }
    }

    /// Finds a GPU by name. Reads files, because the project may define GPUs.
    fn look_up_target(&self, id: WorkspaceId, name: String) {
        let (to_client, events) = (self.to_client.clone(), self.events.clone());
        let of = self.workspaces[id].root.clone();
        tokio::spawn(async move {
            let found = tokio::task::spawn_blocking(move || {
                let (table, _) = known_devices::of_project(&of);
                table.choose(&name).map(|device| device.name.clone())
            });
            let warning = match found.await {
                Ok(Ok(name)) => {
                    // Sending fails only after the event loop has ended.
                    let _ = events
                        .send(Event::Workspace(id, WorkspaceEvent::TargetChosen(Some(name))))
                        .await;
                    return;
                }
                Ok(Err(unknown)) => unknown.to_string(),
                Err(error) => format!("The GPU was not looked up: {error}"),
            };
            to_client.show_message(Importance::Warning, &warning);
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
                QuestionResult::Chosen(title) => title,
                QuestionResult::Closed => return,
                QuestionResult::NotShown => {
                    let message = "Set ridgeline.targetGpu to choose a GPU";
                    return to_client.show_message(Importance::Info, message);
                }
            };
            let chosen = Some(chosen).filter(|title| title != NONE);
            // Sending fails only after the event loop has ended.
            let _ = events.send(Event::Workspace(id, WorkspaceEvent::TargetChosen(chosen))).await;
        });
    }

    /// Sets the target GPU of a workspace, by its name in the device table. `None` restores the
    /// setting.
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
