// The breakdown of time and memory: the icicle, its table, search and drill-down.

import type { Actions } from "./actions";
import { showDetail } from "./detail";
import { PHASES, type Recording } from "./document";
import { button, element, fill, write } from "./dom";
import { bytes, capital, count, counted, duration, percent } from "./format";
import { Icicle } from "./icicle/view";
import { phaseLegend } from "./legend";
import { search, type Found } from "./search";
import { Segmented } from "./segmented";
import type { Note, Tooltip } from "./tooltip";
import { Tree, WHOLE, type Metric } from "./tree";
import { Treegrid } from "./treegrid";

export class BreakdownSection {
  #recording: Recording | null = null;
  #tree: Tree | null = null;
  // The user's choices, which persist across measurements.
  #metric: Metric = "time";
  #grouping = "module";
  #form = "chart";
  #query = "";
  #rootPath: string[] = [];
  #selectedPath: string[] | null = null;

  #root = WHOLE;
  #selected = -1;
  // By the chart's own events: while a page gets the focus, `document.hasFocus()` may still be false.
  #hasFocus = false;
  #found: Found | null = null;

  readonly #metrics: Segmented;
  readonly #groupings: Segmented;
  readonly #forms: Segmented;
  readonly #search: HTMLInputElement;
  readonly #matches = element("span", { class: "quiet", role: "status" });
  readonly #crumbs = element("nav", { class: "crumbs", "aria-label": "Drill-down" });
  readonly #legend = phaseLegend();
  readonly #canvas: HTMLCanvasElement;
  readonly #chart: HTMLElement;
  readonly #missing = element("p", { class: "keys" });
  readonly #detail = element("div", { class: "detail", role: "status", "aria-label": "Selected" });
  readonly #icicle: Icicle;
  readonly #table: Treegrid;

  constructor(
    root: HTMLElement,
    private readonly actions: Actions,
    private readonly tooltip: Tooltip,
  ) {
    this.#metrics = new Segmented("Measure", (key) => {
      this.#metric = key === "memory" ? "memory" : "time";
      this.#rebuild();
    });
    this.#groupings = new Segmented("Group by", (key) => {
      this.#grouping = key;
      this.#rootPath = [];
      this.#selectedPath = null;
      this.#rebuild();
    });
    this.#forms = new Segmented("Show as", (key) => {
      this.#form = key;
      this.#arrange();
    });
    this.#search = element("input", {
      type: "search",
      placeholder: "Search",
      "aria-label": "Search the breakdown",
      spellcheck: "false",
    });
    this.#search.addEventListener("input", () => {
      this.#query = this.#search.value;
      this.#mark();
    });
    this.#canvas = element("canvas", {
      class: "icicle",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "icicle chart",
      "aria-label": "Breakdown",
      "aria-describedby": "icicle-keys",
    });
    this.#chart = element(
      "div",
      { class: "chart" },
      this.#canvas,
      element(
        "p",
        { class: "keys", id: "icicle-keys" },
        "Arrow keys: move. Enter: drill down. Escape: go back. Ctrl+Enter: open the line. Ctrl+wheel: zoom. Drag: pan.",
      ),
    );
    const events = {
      hovered: (node: number, event: PointerEvent | null) => {
        this.#hover(node, event);
      },
      selected: (node: number) => {
        this.#select(node);
      },
      drilled: (node: number) => {
        this.#drill(node, node);
      },
      opened: (node: number) => {
        const place = this.#tree?.place(node) ?? null;
        if (this.actions.canJump(place)) this.actions.jump(place);
      },
    };
    this.#icicle = new Icicle(this.#canvas, events);
    this.#canvas.addEventListener("focus", () => {
      this.#hasFocus = true;
      this.#highlightSelected();
    });
    this.#canvas.addEventListener("blur", () => {
      this.#hasFocus = false;
      actions.highlight(null);
    });
    this.#table = new Treegrid(actions, events);
    fill(
      root,
      element(
        "div",
        { class: "toolbar" },
        this.#metrics.root,
        this.#groupings.root,
        this.#forms.root,
        element("div", { class: "search" }, this.#search, this.#matches),
      ),
      element("div", { class: "above-chart" }, this.#crumbs, this.#legend),
      this.#chart,
      this.#table.root,
      this.#missing,
      this.#detail,
    );
    this.#arrange();
  }

  show(recording: Recording): void {
    const again = this.#recording !== null;
    this.#recording = recording;
    this.#rebuild(again);
    // Another measurement may number the files in another way.
    if (again && this.#hasFocus) this.#highlightSelected();
  }

  svg(): string | null {
    return this.#icicle.svg();
  }

  get grouping(): string {
    return this.#grouping;
  }

  restyle(): void {
    this.#icicle.restyle();
  }

  // With `keep`, the new tree is of the same kind as the previous one, from another measurement.
  #rebuild(keep = false): void {
    const recording = this.#recording;
    if (recording === null) return;
    const breakdowns = recording.breakdowns;
    const chosen = breakdowns.find(({ key }) => key === this.#grouping) ?? breakdowns[0];
    const hasMemory = breakdowns.some(({ nodes }) => nodes.some((node) => node.memoryBytes > 0));
    if (!hasMemory) this.#metric = "time";
    this.#metrics.show(
      hasMemory
        ? [
            { key: "time", label: "Time" },
            { key: "memory", label: "Memory" },
          ]
        : [{ key: "time", label: "Time" }],
      this.#metric,
    );
    this.#groupings.show(
      breakdowns.map(({ key, label }) => ({ key, label: capital(label) })),
      chosen?.key ?? "",
    );
    this.#forms.show(
      [
        { key: "chart", label: "Chart" },
        { key: "table", label: "Table" },
      ],
      this.#form,
    );
    this.#tree =
      this.#metric === "time"
        ? new Tree(chosen?.nodes ?? [], "time", recording.durationNs, "iteration")
        : new Tree(chosen?.nodes ?? [], "memory", 0, "peak memory");
    this.#legend.hidden = this.#metric === "memory";
    this.#root = this.#tree.find(this.#rootPath);
    this.#selected = this.#selectedPath === null ? -1 : this.#tree.find(this.#selectedPath);
    const sameRoot = this.#tree.depth[this.#root] === this.#rootPath.length;
    this.#icicle.show(this.#tree, this.#root, this.#selected, keep && sameRoot);
    this.#mark();
    this.#describe();
    this.#crumb();
    this.#missing.hidden = chosen === undefined || chosen.leftOut === 0;
    write(this.#missing, `${counted(chosen?.leftOut ?? 0, "small node")} not shown; included in the self values of their parents.`);
  }

  #mark(): void {
    if (this.#tree === null) return;
    this.#found = search(this.#tree, this.#query);
    this.#icicle.mark(this.#found);
    const { matches, share } = this.#found ?? { matches: 0, share: 0 };
    write(
      this.#matches,
      this.#found === null
        ? ""
        : matches === 0
          ? "no matches"
          : `${counted(matches, "match", "matches")} · ${percent(share)}`,
    );
    this.#fillTable();
  }

  #arrange(): void {
    const table = this.#form === "table";
    this.#chart.hidden = table;
    this.#table.root.hidden = !table;
    this.#fillTable();
  }

  // Create no rows while the table is hidden.
  #fillTable(): void {
    if (this.#tree === null || this.#form !== "table") return;
    this.#table.show(this.#tree, this.#root, this.#selected, this.#found);
  }

  #drill(node: number, selected: number): void {
    const tree = this.#tree!;
    this.#root = node;
    this.#rootPath = tree.path(node);
    this.#icicle.drill(node, selected);
    this.#select(selected);
    this.#crumb();
    this.#fillTable();
  }

  #select(node: number): void {
    this.#selected = node;
    this.#selectedPath = node < 0 ? null : this.#tree!.path(node);
    this.#describe();
    this.actions.highlight(node < 0 ? null : this.#tree!.place(node));
  }

  // The pointer may leave because the page moved below it, while the keyboard selects.
  #highlightSelected(): void {
    const isSelecting = this.#hasFocus && this.#selected >= 0;
    this.actions.highlight(isSelecting ? (this.#tree?.place(this.#selected) ?? null) : null);
  }

  #hover(node: number, event: PointerEvent | null): void {
    const tree = this.#tree;
    if (tree === null || node < 0 || event === null) {
      this.tooltip.hide();
      this.#highlightSelected();
      return;
    }
    this.tooltip.show(note(tree, node), event);
    this.actions.highlight(tree.place(node));
  }

  #crumb(): void {
    const tree = this.#tree!;
    const list = element("ol");
    const path = [WHOLE, ...tree.ancestry(this.#root)];
    path.forEach((node, at) => {
      const last = at === path.length - 1;
      list.append(
        element(
          "li",
          {},
          last
            ? element("span", { "aria-current": "location" }, tree.name(node))
            : button(tree.name(node), { class: "link" }, () => {
                this.#drill(node, path[at + 1] ?? node);
                this.#canvas.focus();
              }),
        ),
      );
    });
    fill(this.#crumbs, list);
  }

  #describe(): void {
    const tree = this.#tree!;
    const node = this.#selected < 0 ? this.#root : this.#selected;
    const place = tree.place(node);
    showDetail(this.#detail, note(tree, node), place, this.actions, tree.node(node)?.parts);
  }
}

function note(tree: Tree, node: number): Note {
  const record = tree.node(node);
  const write = tree.metric === "time" ? duration : bytes;
  const facts: [string, string][] = [
    [tree.metric, write(tree.value[node]!)],
    ["share", percent(tree.share(node))],
  ];
  if (node === WHOLE) {
    // The sum of rounded numbers may differ from the total by a few nanoseconds.
    if (tree.own[node]! > tree.value[node]! / 1000) facts.push(["not in any node", write(tree.own[node]!)]);
    return { title: tree.name(node), about: "", facts };
  }
  if (record?.estimated === true) facts.push(["split by", "an estimate"]);
  if (!tree.isLeaf(node)) facts.push(["own", write(tree.own[node]!)]);
  if (record === null) return { title: tree.name(node), about: "", facts };
  if (tree.metric === "time") {
    if (record.memoryBytes > 0) facts.push(["memory", bytes(record.memoryBytes)]);
  } else facts.push(["time", duration(record.timeNs)]);
  if (record.holds !== "") facts.push(["holds", record.holds]);
  if (record.calls !== null) facts.push(["calls", count(record.calls)]);
  const sum = record.phases.reduce((total, time) => total + time, 0);
  PHASES.forEach((phase, at) => {
    const time = record.phases[at] ?? 0;
    if (time > 0) facts.push([phase, percent(time / sum)]);
  });
  if (record.facts.length > 0) facts.push(["device utilization", record.facts.join(" · ")]);
  return { title: record.name, about: record.detail, facts };
}
