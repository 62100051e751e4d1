// The header: project, device and state, with the buttons that start and stop runs.

import type { Actions, Command } from "./actions";
import type { PanelDocument, Recording, Status } from "./document";
import { button, byId, element, fill, write } from "./dom";
import { ago, counted, moment, percent } from "./format";

const STATES: Record<string, string> = {
  idle: "Ready",
  waiting_for_trust: "Waiting for permission",
  preparing: "Preparing",
  running: "Running",
  background: "Working in the background",
  paused: "Paused",
  failed: "Failed",
};

export class Header {
  readonly #project = byId("project");
  readonly #about = byId("about");
  readonly #run = byId("run");
  readonly #state = byId("state");
  readonly #bar = byId("progress");
  readonly #buttons = byId("buttons");
  readonly #failure = byId("failure");
  #recording: Recording | null = null;
  #shownState = "";
  #editor = false;

  constructor(
    private readonly actions: Actions,
    private readonly live: boolean,
  ) {
    // Refresh "3 minutes ago" as time passes.
    setInterval(() => {
      this.#describe();
    }, 30_000);
  }

  show(panel: PanelDocument): void {
    this.#recording = panel.recording;
    document.title = `${panel.project} – Ridgeline`;
    write(this.#project, panel.project);
    this.#describe();
    this.#editor = this.live && panel.canJump;
    this.#run.hidden = !this.#editor;
    this.status(panel.status);
  }

  /** Shows the state and buttons. A report or a server without an editor has neither, because it runs nothing. */
  status(status: Status): void {
    if (!this.#editor) return;
    const { state, run, message } = status;
    const busy = run !== null || state === "preparing" || state === "running" || state === "background";
    const label = STATES[state] ?? state;
    const stage = run?.stage ?? null;
    this.#state.className = `state ${state in STATES ? state : "idle"}`;
    // Only the state is announced: stage and progress would make a screen reader talk constantly.
    write(this.#state, label);
    write(byId("stage"), busy ? [stage, run?.share == null ? null : percent(run.share)].filter(Boolean).join(" · ") : "");
    // When idle: the estimated cost of unsaved text, or why it is unknown.
    byId("reason").textContent = busy ? (run?.reason ?? message ?? "") : state === "idle" ? (message ?? "") : "";
    this.#progress(busy, run?.share ?? null);
    const failed = state === "failed" && message !== null;
    this.#failure.hidden = !failed;
    write(this.#failure, failed ? `The last run failed: ${message}` : "");
    this.#offer(state, busy);
  }

  #progress(busy: boolean, share: number | null): void {
    this.#bar.hidden = !busy;
    if (!busy) return;
    const fill = this.#bar.firstElementChild;
    if (fill instanceof HTMLElement) fill.style.transform = `scaleX(${share ?? 1})`;
    this.#bar.classList.toggle("unknown", share === null);
    if (share === null) this.#bar.removeAttribute("aria-valuenow");
    else this.#bar.setAttribute("aria-valuenow", String(Math.round(share * 100)));
  }

  // Rebuild the buttons only when they change, so that none loses the focus.
  #offer(state: string, busy: boolean): void {
    const key = `${state} ${busy}`;
    if (key === this.#shownState) return;
    this.#shownState = key;
    const focused = document.activeElement?.getAttribute("data-command");
    const offer = (name: Command, label: string, kind: string) =>
      button(label, { class: kind, "data-command": name }, () => {
        this.actions.command(name);
      });
    fill(
      this.#buttons,
      busy ? offer("stop", "Stop", "") : offer("profile", "Profile now", "primary"),
      state === "paused"
        ? offer("resume", "Resume", "")
        : element("span", {}, offer("pause", "Pause", "")),
    );
    if (focused != null) this.#buttons.querySelector("button")?.focus();
  }

  #describe(): void {
    const recording = this.#recording;
    if (recording === null) {
      write(this.#about, "");
      return;
    }
    const parts = [
      recording.device,
      recording.torch === "" ? "" : `PyTorch ${recording.torch}`,
      recording.batchSize === null ? "" : `batch size ${recording.batchSize}`,
      recording.timedIterations === null || recording.timedIterations === 0 ? "" : `median of ${counted(recording.timedIterations, "iteration")}`,
      recording.whenMs === null
        ? ""
        : this.live
          ? `measured ${ago(recording.whenMs, Date.now())}`
          : `measured ${moment(recording.whenMs)}`,
    ];
    write(this.#about, parts.filter(Boolean).join(" · "));
  }
}
