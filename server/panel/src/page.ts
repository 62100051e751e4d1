// The page: decides which sections show, and updates them when a new document arrives.

import type { Actions } from "./actions";
import { Gone, type Answer, type Api } from "./api";
import { BatchSection } from "./batch/section";
import { BottleneckSection } from "./bottleneck";
import { BreakdownSection } from "./breakdown";
import { CompareSection } from "./compare/section";
import { Cursor } from "./cursor";
import type { PanelDocument, Place, Status } from "./document";
import { DevicesSection } from "./devices/section";
import { byId, fill } from "./dom";
import { addExportMenu, fileName } from "./export/menu";
import { sectionExports } from "./export/sections";
import { rememberFocus } from "./focus";
import { emptyState } from "./empty";
import type { Finding } from "./findings/document";
import { FindingsSection } from "./findings/section";
import { Header } from "./header";
import { showHeadline } from "./headline";
import { Highlighter } from "./highlighter";
import { HistorySection } from "./history";
import { KernelsSection } from "./kernels";
import { MemorySection } from "./memory";
import { Navigation } from "./navigation";
import { Notice } from "./notice";
import { showNotes } from "./notes";
import { RanksSection } from "./ranks/section";
import type { Report } from "./report";
import { RooflineSection } from "./roofline/section";
import { TimelineSection } from "./timeline/section";
import { Tooltip } from "./tooltip";
import { download } from "./transport";
import type { Action } from "./whatif/row";
import { WhatIfSection } from "./whatif/section";

export class Page {
  readonly #api: Api | null;
  readonly #notice = new Notice();
  readonly #highlighter: Highlighter;
  readonly #actions: Actions;
  readonly #header: Header;
  readonly #batch: BatchSection;
  #batchIsShown = false;
  /** The generation whose batch-size sweep was requested. */
  #explored = -1;
  readonly #bottleneck: BottleneckSection;
  readonly #ranks: RanksSection;
  readonly #breakdown: BreakdownSection;
  readonly #timeline: TimelineSection;
  readonly #memory: MemorySection;
  readonly #kernels: KernelsSection;
  readonly #roofline: RooflineSection;
  readonly #history: HistorySection;
  readonly #compare: CompareSection | null;
  readonly #devices: DevicesSection;
  readonly #whatIfs: WhatIfSection;
  readonly #findings: FindingsSection;
  readonly #navigation = new Navigation();
  #timelineGeneration: number | null = null;
  #panel: PanelDocument | null = null;
  #fetching = false;
  #requested = 0;

  static live(api: Api): Page {
    const page = new Page(api);
    api.listen({
      changed: () => void page.#fetch(),
      status: (status) => {
        page.#status(status);
      },
      // The server only sends changes from now on. The current state is in the document.
      connected: () => {
        page.#notice.connected();
        void page.#fetch();
      },
      lost: (delayMs, again) => {
        page.#notice.lost(delayMs, again);
        if (page.#panel === null) void page.#fetch();
      },
    });
    // A hidden page does not listen, but should have content when it becomes visible.
    if (document.hidden) void page.#fetch();
    return page;
  }

  static ofReport(report: Report): Page {
    const page = new Page(null);
    page.#show(report.panel);
    afterPaint(() => {
      page.#timeline.show(report.timeline());
    });
    return page;
  }

  private constructor(api: Api | null) {
    this.#api = api;
    this.#highlighter = new Highlighter(async (place) => {
      if (api === null || this.#panel?.canHighlight !== true) return true;
      // A failed highlight is not worth a message.
      const answer = await api.highlight(place, this.#panel.generation).catch(() => undefined);
      return answer?.done === true;
    });
    this.#actions = {
      jump: (place) => {
        this.#jump(place);
      },
      highlight: (place) => {
        this.#highlighter.mark(place);
      },
      command: (name) => {
        if (api !== null) void this.#showAnswer(api.command(name));
      },
      placeName: (place) => this.#placeName(place),
      canJump: (place): place is Place => this.#canJump(place),
    };
    const tooltip = new Tooltip();
    this.#header = new Header(this.#actions, api !== null);
    const cursor = new Cursor();
    this.#batch = new BatchSection(byId("batch-body"), this.#actions, (batch) => {
      if (api !== null) void this.#setBatch(api, batch);
    });
    if (api !== null) this.#exploreWhenShown(api);
    this.#bottleneck = new BottleneckSection(byId("bottleneck-body"), this.#actions);
    this.#ranks = new RanksSection(byId("ranks-body"), this.#actions);
    this.#breakdown = new BreakdownSection(byId("breakdown-body"), this.#actions, tooltip);
    this.#timeline = new TimelineSection(byId("timeline-body"), this.#actions, tooltip, cursor);
    this.#memory = new MemorySection(byId("memory-body"), this.#actions, tooltip, cursor);
    this.#kernels = new KernelsSection(byId("kernels-body"));
    this.#roofline = new RooflineSection(byId("roofline-body"), this.#actions, tooltip);
    this.#history = new HistorySection(byId("history-body"), api !== null, tooltip);
    this.#compare = api === null ? null : new CompareSection(byId("compare-body"), (before, after) => api.compare(before, after));
    this.#devices = new DevicesSection(byId("devices-body"), tooltip);
    this.#whatIfs = new WhatIfSection(byId("what-ifs-body"), this.#actions, {
      ask: api === null ? null : (name, action) => void this.#askWhatIf(api, name, action),
      recompute: api === null ? null : (lines) => void this.#recompute(api, lines),
      explain: (why) => {
        this.#notice.say(why);
      },
    });
    this.#findings = new FindingsSection(byId("findings-body"), this.#actions, {
      mend: api === null ? null : (finding) => void this.#mend(api, finding),
      explain: (why) => {
        this.#notice.say(why);
      },
    });
    this.#addExports();
  }

  #addExports(): void {
    const exports = sectionExports({
      panel: () => this.#panel,
      placeName: (place) => this.#placeName(place),
      timeline: () => this.#timeline.timeline,
      comparison: () => this.#compare?.comparison ?? null,
      grouping: () => this.#breakdown.grouping,
      charts: {
        breakdown: () => this.#breakdown.svg(),
        timeline: () => this.#timeline.svg(),
        memory: () => this.#memory.svg(),
        roofline: () => this.#roofline.svg(),
        devices: () => this.#devices.svg(),
        history: () => this.#history.svg(),
        throughput: () => this.#batch.svgs()[0] ?? null,
        batchMemory: () => this.#batch.svgs()[1] ?? null,
      },
    });
    for (const [id, ofSection] of Object.entries(exports)) {
      addExportMenu(id, ofSection, (file, content) => void this.#save(file, content));
    }
  }

  async #save(file: string, content: string | null): Promise<void> {
    if (content === null) {
      this.#notice.say("There is nothing to export yet.");
      return;
    }
    const name = fileName(this.#panel?.project ?? "", this.#panel?.recording?.whenMs ?? null, file);
    try {
      if (this.#api === null) download(name, content);
      else await this.#api.save(name, content);
    } catch (error) {
      this.#notice.say(`Could not save the file: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  restyle(): void {
    this.#batch.restyle();
    this.#history.restyle();
    this.#breakdown.restyle();
    this.#timeline.restyle();
    this.#memory.restyle();
    this.#roofline.restyle();
    this.#devices.restyle();
  }

  /** Requests a batch-size sweep when its section becomes visible, once per measurement. */
  #exploreWhenShown(api: Api): void {
    new IntersectionObserver((entries) => {
      this.#batchIsShown = entries.at(-1)?.isIntersecting ?? false;
      void this.#explore(api);
    }).observe(byId("batch"));
  }

  async #explore(api: Api): Promise<void> {
    const generation = this.#panel?.generation ?? 0;
    const isKnown = this.#explored === generation || this.#panel?.batchSize == null || !this.#panel.canJump;
    if (!this.#batchIsShown || isKnown) return;
    this.#explored = generation;
    // If refused, the chart shows what is known. No message, because the user did not request it.
    await api.command("explore").catch(() => undefined);
  }

  // One fetch at a time. Changes that arrive meanwhile cause one more fetch at its end.
  async #fetch(): Promise<void> {
    this.#requested += 1;
    if (this.#api === null || this.#fetching) return;
    this.#fetching = true;
    let answered = 0;
    do {
      answered = this.#requested;
      try {
        this.#show(await this.#api.panel());
        this.#notice.fetched();
      } catch (error) {
        this.#notice.failed(reason(error));
      }
    } while (answered !== this.#requested);
    this.#fetching = false;
  }

  #show(panel: PanelDocument): void {
    this.#panel = panel;
    const restore = rememberFocus();
    this.#header.show(panel);
    const { recording } = panel;
    byId("recording").hidden = recording === null;
    this.#showEmpty(panel);
    if (recording !== null) {
      showHeadline(byId("headline"), byId("against"), recording);
      byId("bottleneck").hidden = recording.bottleneck === null;
      this.#bottleneck.show(recording);
      byId("ranks").hidden = recording.ranks === null;
      if (recording.ranks !== null) this.#ranks.show(recording.ranks);
      byId("batch").hidden = panel.batchSize === null;
      this.#batch.show(panel.batchSize, this.#api !== null && panel.canJump);
      if (this.#api !== null) void this.#explore(this.#api);
      this.#breakdown.show(recording);
      this.#highlighter.retry();
      byId("memory").hidden = recording.memory === null;
      this.#memory.show(recording);
      byId("kernels").hidden = recording.kernels.length === 0;
      this.#kernels.show(recording);
      this.#roofline.show(recording);
      byId("notes").hidden = recording.untracked.length + recording.notes.length === 0;
      showNotes(byId("notes-body"), recording);
      this.#fetchTimeline(panel.generation);
    }
    // The batch-size prediction has its own section.
    byId("predictions").hidden = panel.devices === null;
    if (panel.devices !== null) this.#devices.show(panel.devices);
    byId("what-ifs").hidden = panel.whatIfs === null;
    if (panel.whatIfs !== null) this.#whatIfs.show(panel.whatIfs, panel.canJump);
    byId("findings").hidden = panel.findings === null;
    if (panel.findings !== null) this.#findings.show(panel.findings, panel.canJump);
    byId("history").hidden = panel.history.length === 0;
    this.#history.show(panel);
    this.#compare?.show(panel.history);
    this.#navigation.update();
    restore();
    document.documentElement.dataset.ready = "true";
  }

  // The timeline is large and not needed for the first paint, so it is fetched afterwards.
  #fetchTimeline(generation: number): void {
    if (this.#timelineGeneration === generation) return;
    this.#timelineGeneration = generation;
    this.#timeline.wait();
    const { api, timeline } = { api: this.#api, timeline: this.#timeline };
    if (api === null) return;
    afterPaint(() => {
      const current = () => this.#timelineGeneration === generation;
      api.timeline(generation).then(
        (value) => {
          if (current()) timeline.show(value);
        },
        (error: unknown) => {
          if (!current()) return;
          // After a network error, the next document triggers a retry.
          if (!(error instanceof Gone)) this.#timelineGeneration = null;
          timeline.miss(error instanceof Gone ? "The timeline of this measurement is no longer available." : reason(error));
        },
      );
    });
  }

  #status(status: Status): void {
    if (this.#panel === null) return;
    this.#panel.status = status;
    this.#header.status(status);
    this.#showEmpty(this.#panel);
  }

  #showEmpty(panel: PanelDocument): void {
    const empty = byId("empty");
    empty.hidden = panel.recording !== null;
    if (panel.recording === null) fill(empty, ...emptyState(panel.status, panel.canJump));
  }

  #placeName(place: Place): string {
    return `${this.#panel?.recording?.files[place.file] ?? "?"}:${place.line}`;
  }

  #canJump(place: Place | null): boolean {
    if (place === null || this.#panel?.recording?.files[place.file] === undefined) return false;
    return this.#api === null ? document.getElementById(anchor(place)) !== null : this.#panel.canJump;
  }

  #jump(place: Place): void {
    if (this.#api === null) location.hash = anchor(place);
    else void this.#showAnswer(this.#api.jump(place, this.#panel?.generation ?? 0));
  }

  async #setBatch(api: Api, batch: number): Promise<void> {
    await this.#showAnswer(api.batch(batch, this.#panel?.generation ?? 0));
    // The batch size in the code has changed, or the page was out of date.
    await this.#fetch();
  }

  async #askWhatIf(api: Api, name: string, action: Action): Promise<void> {
    await this.#showAnswer(api.whatIf(name, action));
    await this.#fetch();
  }

  async #recompute(api: Api, lines: readonly Place[]): Promise<void> {
    await this.#showAnswer(api.recompute(lines, this.#panel?.generation ?? 0));
    await this.#fetch();
  }

  async #mend(api: Api, { fix, place }: Finding): Promise<void> {
    if (fix === null) return;
    const generation = this.#panel?.generation ?? 0;
    await this.#showAnswer(place === null ? api.whatIf(fix.name, "apply") : api.mend(fix.name, place, generation));
    await this.#fetch();
  }

  async #showAnswer(answer: Promise<Answer>): Promise<void> {
    try {
      const { done, message } = await answer;
      // A successful edit may come with a message.
      if (!done || message !== null) this.#notice.say(message ?? "The editor rejected the request.");
    } catch {
      this.#notice.say("Could not reach the server.");
    }
  }
}

function afterPaint(work: () => void): void {
  requestAnimationFrame(() => setTimeout(work));
}

function reason(error: unknown): string {
  if (error instanceof Gone) {
    return "The server of this page has stopped. Reopen the panel from your editor or with `ridgeline panel`.";
  }
  // Browser messages about connection errors mean nothing to users.
  if (error instanceof TypeError || error instanceof DOMException) return "Could not reach the server.";
  return error instanceof Error ? error.message : String(error);
}

/** Returns the element id of a source line in a report. */
function anchor(place: Place): string {
  return `f${place.file}l${place.line}`;
}
