// The timeline's section of the page: its loading state, buttons and text.

import type { Actions } from "../actions";
import { decode, longest, placeOf, rowOf, type Timeline } from "./model";
import type { Cursor } from "../cursor";
import { showDetail } from "../detail";
import { PHASES, type Place } from "../document";
import { button, element, fill, write } from "../dom";
import { count, counted, duration, percent } from "../format";
import { phaseLegend } from "../legend";
import { length, type Range } from "../range";
import { ListTable, shareBar } from "../table";
import type { Note, Tooltip } from "../tooltip";
import { find, step, type Finding } from "./find";
import { flowsOf } from "./flows";
import { shareOf, sums, type NameSum } from "./sums";
import { TimelineView } from "./view";

const LONGEST_SPANS = 20;
/** The names in the table of a marked range. */
const NAMES = 12;

export class TimelineSection {
  readonly #waiting = element("p", { class: "skeleton", role: "status" });
  readonly #shown = element("div", { hidden: true });
  readonly #about = element("p", { class: "keys" });
  readonly #span = element("span", { class: "quiet in-view" });
  readonly #detail = element("div", { class: "detail", role: "status", "aria-label": "Selected span" });
  readonly #search = element("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search the timeline",
    spellcheck: "false",
  });
  readonly #matches = element("span", { class: "quiet", role: "status" });
  readonly #marked = element("div", { class: "marked-range", role: "region", "aria-label": "Marked range", tabindex: 0, hidden: true });
  readonly #view: TimelineView;
  readonly #tracks: ListTable<Timeline["tracks"][number]>;
  readonly #longest: ListTable<number>;
  #timeline: Timeline | null = null;
  #found: Finding | null = null;
  /** Whether its file indices match the current document. */
  #current = false;

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
    private readonly tooltip: Tooltip,
    cursor: Cursor,
  ) {
    const canvas = element("canvas", {
      class: "timeline",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "timeline chart",
      "aria-label": "Timeline of one iteration",
      "aria-describedby": "timeline-keys",
    });
    this.#view = new TimelineView(canvas, cursor, {
      hovered: (span, event) => {
        this.#hover(span, event);
      },
      selected: (span) => {
        this.#select(span);
      },
      opened: (span) => {
        const place = this.#place(span);
        if (this.actions.canJump(place)) this.actions.jump(place);
      },
      marked: (range) => {
        this.#mark(range);
      },
      moved: (range, whole) => {
        // Zooming out again ends within rounding of the whole.
        const all = length(range) >= (1 - 1e-9) * length(whole);
        write(this.#span, all ? `all of ${duration(whole.end)}` : `${duration(range.start)} to ${duration(range.end)}`);
      },
    });
    this.#search.addEventListener("input", () => {
      this.#find();
    });
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#next(event.shiftKey);
      else if (event.key === "Escape" && this.#search.value !== "") this.#search.value = "";
      else return;
      event.preventDefault();
      if (event.key === "Escape") this.#find();
    });
    this.#tracks = new ListTable(
      "Tracks",
      [
        { head: "Track", cell: (track) => track.name },
        { head: "Spans", class: "number", cell: (track) => count(track.spans) },
        { head: "Busy", class: "number", cell: (track) => (track.kind === "idle" ? "" : duration(track.busyNs)) },
        {
          head: "Idle",
          class: "number",
          cell: (track) => duration(track.kind === "idle" ? track.busyNs : this.#timeline!.durationNs - track.busyNs),
        },
        {
          head: "Share",
          class: "wide",
          cell: (track) => shareBar(track.busyNs / this.#timeline!.durationNs, percent(track.busyNs / this.#timeline!.durationNs)),
        },
      ],
      40,
    );
    this.#longest = new ListTable(
      "Longest spans",
      [
        { head: "Span", class: "mono name", cell: (span) => this.#name(span) },
        { head: "Track", cell: (span) => this.#track(span) },
        { head: "Phase", cell: (span) => this.#phase(span) },
        { head: "Start", class: "number", cell: (span) => duration(this.#timeline!.start[span]!) },
        { head: "Time", class: "number", cell: (span) => duration(this.#long(span)) },
        { head: "Line", cell: (span) => this.#opener(span) },
      ],
      LONGEST_SPANS,
    );
    const zoom = (label: string, name: string, act: () => void) => button(label, { "aria-label": name, title: name }, act);
    fill(
      this.#shown,
      element(
        "div",
        { class: "above-chart" },
        element(
          "div",
          { class: "zoom" },
          zoom("−", "Zoom out", () => {
            this.#view.zoomBy(1.6);
          }),
          zoom("+", "Zoom in", () => {
            this.#view.zoomBy(1 / 1.6);
          }),
          button("Fit", { title: "Fit the whole iteration" }, () => {
            this.#view.reset();
          }),
          this.#span,
        ),
        phaseLegend(),
        element("div", { class: "search" }, this.#search, this.#matches),
      ),
      this.#view.root,
      this.#about,
      element(
        "p",
        { class: "keys", id: "timeline-keys" },
        "Ctrl+wheel, W/S or +/−: zoom. Drag, A/D or arrow keys: pan. Home: fit. Shift+arrow keys: next span. Shift+drag: mark a range, M: the selected span, Escape: unmark. F: zoom to selection. Enter: open the line.",
      ),
      this.#marked,
      this.#detail,
      element(
        "details",
        {},
        element("summary", {}, "Timeline as tables"),
        element("h3", {}, "Tracks"),
        this.#tracks.root,
        element("h3", {}, "Longest spans"),
        this.#longest.root,
      ),
    );
    fill(root, this.#waiting, this.#shown);
  }

  /** Shows that a timeline is loading. The previous one stays visible until then, but its links are disabled. */
  wait(): void {
    this.#current = false;
    if (this.#timeline === null) this.#say("Loading the timeline…", true);
  }

  /** Shows why there is no timeline. */
  miss(why: string): void {
    this.#timeline = null;
    this.#say(why, false);
  }

  show(value: unknown): void {
    const timeline = decode(value);
    if (timeline === null || timeline.size === 0) {
      this.miss("This measurement has no timeline.");
      return;
    }
    this.#timeline = timeline;
    this.#current = true;
    this.#waiting.hidden = true;
    this.#shown.hidden = false;
    this.#select(-1);
    this.#view.show(timeline);
    this.#find();
    const about = ["One profiled iteration as recorded, including profiler overhead."];
    if (timeline.simulated) about.push("The GPU is simulated: kernel and copy times come from a model.");
    if (timeline.leftOut > 0) about.push(`The shortest ${counted(timeline.leftOut, "span")} are not shown.`);
    if (timeline.dropped > 0) about.push(`${counted(timeline.dropped, "span")} nested too deeply are not shown.`);
    write(this.#about, about.join(" "));
    this.#tracks.show(timeline.tracks);
    this.#longest.show(longest(timeline, LONGEST_SPANS));
  }

  svg(): string | null {
    return this.#timeline === null ? null : this.#view.svg();
  }

  get timeline(): Timeline | null {
    return this.#timeline;
  }

  restyle(): void {
    this.#view.restyle();
  }

  #say(text: string, busy: boolean): void {
    this.#shown.hidden = true;
    this.#waiting.hidden = false;
    this.#waiting.classList.toggle("busy", busy);
    write(this.#waiting, text);
  }

  #find(): void {
    this.#found = this.#timeline === null ? null : find(this.#timeline, this.#search.value);
    this.#view.showMatches(this.#found);
    this.#tellMatches();
  }

  #tellMatches(): void {
    const found = this.#found;
    if (found === null) {
      write(this.#matches, "");
      return;
    }
    const at = found.spans.indexOf(this.#view.selected);
    const place = at < 0 ? "" : `${count(at + 1)} of `;
    const total = found.spans.length > 0 ? ` · ${duration(found.totalNs)}` : "";
    write(this.#matches, `${place}${counted(found.spans.length, "match", "matches")}${total}`);
  }

  #next(back: boolean): void {
    if (this.#timeline === null || this.#found === null) return;
    const span = step(this.#timeline, this.#found, this.#view.selected, back);
    if (span < 0) return;
    this.#view.select(span);
    this.#select(span);
    this.#tellMatches();
  }

  /** Shows what runs in the marked range. */
  #mark(range: Range | null): void {
    const timeline = this.#timeline;
    this.#marked.hidden = range === null || timeline === null;
    if (range === null || timeline === null) return;
    const found = sums(timeline, range, NAMES);
    const of = (idle: boolean) =>
      found.tracks
        .filter(({ track }) => timeline.tracks[track]!.kind !== "phases" && (timeline.tracks[track]!.kind === "idle") === idle)
        .map(({ track, busyNs }) => `${timeline.tracks[track]!.name} ${duration(busyNs)} (${percent(shareOf(range, busyNs))})`)
        .join(" · ");
    const [busy, idle] = [of(false), of(true)];
    const row = ({ name, track, calls, totalNs }: NameSum) =>
      element(
        "tr",
        {},
        element("td", { class: "mono name" }, timeline.names[name] ?? "(no name)"),
        element("td", {}, timeline.tracks[track]!.name),
        element("td", { class: "number" }, count(calls)),
        element("td", { class: "number" }, duration(totalNs)),
        element("td", { class: "number" }, duration(totalNs / calls)),
      );
    const heads = ["Span", "Track", "Calls", "Time", "Average"];
    fill(
      this.#marked,
      element("p", {}, element("strong", {}, duration(range.end - range.start)), ` from ${duration(range.start)} to ${duration(range.end)}`),
      element("p", { class: "quiet" }, [busy === "" ? "Idle." : `Busy: ${busy}.`, idle].filter(Boolean).join(" ")),
      found.names.length === 0
        ? null
        : element(
            "table",
            {},
            element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
            element("tbody", {}, ...found.names.map(row)),
          ),
      found.more > 0 ? element("p", { class: "quiet" }, `and ${counted(found.more, "more name")}`) : null,
    );
  }

  #hover(span: number, event: PointerEvent | null): void {
    if (span < 0 || event === null) {
      this.tooltip.hide();
      this.actions.highlight(null);
      return;
    }
    this.tooltip.show(this.#note(span), event);
    this.actions.highlight(this.#place(span));
  }

  #select(span: number): void {
    if (span < 0) {
      delete this.#detail.dataset.shown;
      fill(this.#detail, element("span", { class: "quiet" }, "Select a span for details."));
      return;
    }
    const place = this.#place(span);
    showDetail(this.#detail, this.#note(span), place, this.actions);
    this.actions.highlight(place);
  }

  #note(span: number): Note {
    const place = this.#place(span);
    const facts: [string, string][] = [
      ["time", duration(this.#long(span))],
      ["start", duration(this.#timeline!.start[span]!)],
      ["phase", this.#phase(span)],
    ];
    const flows = this.#flowFacts(span);
    if (flows !== null) facts.push(flows);
    if (place !== null) facts.push(["line", this.actions.placeName(place)]);
    return { title: this.#name(span), about: this.#track(span), facts };
  }

  /** When a kernel was launched, or what a host span launched. */
  #flowFacts(span: number): [string, string] | null {
    const timeline = this.#timeline!;
    const flows = flowsOf(timeline, span);
    const [first] = flows;
    if (first === undefined) return null;
    if (first.to === span) return ["after its launch", duration(Math.max(0, timeline.start[span]! - timeline.end[first.from]!))];
    const onGpu = flows.reduce((sum, { to }) => sum + this.#long(to), 0);
    return ["launches", `${count(flows.length)}, ${duration(onGpu)} on the GPU`];
  }

  #place(span: number): Place | null {
    return this.#current ? placeOf(this.#timeline!, span) : null;
  }

  #name(span: number): string {
    return this.#timeline!.names[this.#timeline!.name[span]!] ?? "(no name)";
  }

  #track(span: number): string {
    const timeline = this.#timeline!;
    return timeline.tracks[timeline.rows[rowOf(timeline, span)]!.track]!.name;
  }

  #phase(span: number): string {
    return PHASES[this.#timeline!.phase[span]!] ?? "other";
  }

  #long(span: number): number {
    return this.#timeline!.end[span]! - this.#timeline!.start[span]!;
  }

  #opener(span: number): Node | string {
    const place = this.#place(span);
    if (place === null) return "";
    if (!this.actions.canJump(place)) return this.actions.placeName(place);
    return button(this.actions.placeName(place), { class: "link mono" }, () => {
      this.actions.jump(place);
    });
  }
}
