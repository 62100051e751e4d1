// Tests the ranks of a launched run, and the device utilization of an iteration's parts. Run with `tests/panel/run`.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { findBrowser, launch, screenshotFolder } from "./browser.mjs";
import { panelDocument, timelineDocument } from "./documents.mjs";
import { checkAccessibility, checkNoSidewaysScroll, noAxe, waitForPosts, withPanel } from "./session.mjs";

const found = findBrowser();
if (found.reason !== undefined) console.log(`SKIPPED the panel's ranks in Chromium: ${found.reason}`);

let browser;
before(async () => {
  if (found.reason === undefined) browser = await launch(found);
});
after(() => browser?.close());

const MS = 1e6;

const rank = (number, computing, more = {}) => ({
  rank: number,
  time_ns: 102 * MS,
  computing_ns: computing * MS,
  exchange_ns: (108 - computing) * MS,
  waiting_ns: (102 - computing) * MS,
  batch_size: 32,
  peak_bytes: 3.1e9,
  ...more,
});

const line = (name, place, least, most) => ({
  name,
  place,
  mean_ns: ((least[1] + most[1]) / 2) * MS,
  least: { rank: least[0], time_ns: least[1] * MS },
  most: { rank: most[0], time_ns: most[1] * MS },
});

const LINES = [
  line("train.py:57", { file: 1, line: 57 }, [0, 0], [1, 31]),
  line("project/models/layers/attention.py:128", null, [1, 11.2], [0, 14.5]),
];

const TWO = { world_size: 2, ranks: [rank(0, 61), rank(1, 92, { batch_size: 48 })], lines: LINES };

const FACTS = [
  "GPU busy 62%",
  "FP16 34% of the peak",
  "bandwidth 41% of the peak",
  "tensor cores used in 75% of GEMM time",
  "occupancy 48%",
  "1,204 launches take the host 9.6 ms",
  "copies to the GPU 12 MB in 2.0 ms",
  "communication 10 ms (40% exposed)",
];

function documents(ranks = TWO) {
  const panel = panelDocument();
  const { recording } = panel;
  recording.ranks = ranks;
  recording.bottleneck = {
    gpu_busy: 0.62,
    verdict: "host_code",
    text: "GPU busy 62%. Faster host code would save at most 35%, mostly in train.py:57",
    savings: [
      { cause: "host_code", label: "Python and CPU code", at_most_share: 0.35, at_most_ns: 36 * MS, evidence: "train.py:57 40% · model.py:28 22%", place: { file: 1, line: 57 } },
      { cause: "communication", label: "exposed communication", at_most_share: 0.3, at_most_ns: 31 * MS, evidence: "train.py:60 91%", place: { file: 1, line: 60 } },
      { cause: "launch_overhead", label: "launch overhead", at_most_share: 0.08, at_most_ns: 8 * MS, evidence: "", place: null },
    ],
  };
  recording.utilization = [
    { name: "iteration", facts: FACTS },
    { name: "forward", facts: FACTS.slice(0, 6) },
    { name: "backward", facts: FACTS.slice(0, 5) },
  ];
  const [modules] = recording.breakdowns;
  Object.assign(modules.nodes[0], { holds: "activations 1.9 GB · weights 410 MB", facts: FACTS });
  return { panel, timeline: timelineDocument() };
}

const section = (page) => page.locator("#ranks");
const rows = async (page, name) => section(page).getByRole("table", { name }).locator("tbody tr").allInnerTexts();

describe("ranks", { skip: found.reason }, () => {
  test("have one row each, and the lines that differ", () =>
    withPanel(browser, documents(), async (page, site) => {
      assert.match(await section(page).innerText(), /2 ranks\. Everything else on this page is for rank 0\./);
      const [first, second] = await rows(page, "Ranks");
      assert.match(first, /^0\s+61 ms · 60%\s+41 ms\s+47 ms\s+102 ms\s+32\s+3\.1 GB$/);
      assert.match(second, /^1\s+92 ms · 90%\s+10 ms\s+16 ms\s+102 ms\s+48\s+3\.1 GB$/);
      const [line] = await rows(page, "Lines that differ between ranks");
      assert.match(line, /^train\.py:57\s+15\.5 ms\s+nothing on rank 0\s+31 ms on rank 1$/);
      await section(page).getByRole("button", { name: "train.py:57" }).click();
      assert.deepEqual(await waitForPosts(site, "jump", 1), [{ workspace: 0, file: 1, line: 57, generation: 7 }]);
    }));

  test("are counted if not measured, and long lists are shown on request", () => {
    const ranks = Array.from({ length: 20 }, (_, at) => rank(at, 60 + at));
    return withPanel(browser, documents({ world_size: 32, ranks, lines: [] }), async (page) => {
      assert.match(await section(page).innerText(), /32 ranks, 20 of them measured\./);
      assert.equal((await rows(page, "Ranks")).length, 16);
      assert.equal(await section(page).getByRole("heading", { name: "Lines that differ" }).isVisible(), false);
      await section(page).getByRole("button", { name: "Show all 20" }).click();
      assert.equal((await rows(page, "Ranks")).length, 20);
    });
  });

  test("show no communication time if they do not communicate", () =>
    withPanel(browser, documents({ world_size: 2, ranks: [0, 1].map((at) => rank(at, 102, { exchange_ns: null, waiting_ns: null, batch_size: null })), lines: [] }), async (page) => {
      assert.match((await rows(page, "Ranks"))[0], /^0\s+102 ms · 100%\s+102 ms\s+3\.1 GB$/);
    }));

  test("are hidden if there is only one", () =>
    withPanel(browser, documents(null), async (page) => {
      assert.equal(await section(page).isVisible(), false);
    }));

  test("and phases are accessible and fit any width, light and dark", { skip: noAxe }, async () => {
    const folder = await screenshotFolder();
    for (const theme of ["light", "dark"]) {
      for (const width of [1280, 400]) {
        await withPanel(browser, { ...documents(), theme, width }, async (page) => {
          await page.locator("canvas.icicle").click({ position: { x: 100, y: 30 } });
          assert.match(await page.locator("#breakdown .detail").innerText(), /activations 1\.9 GB · weights 410 MB/);
          await checkNoSidewaysScroll(page, `${theme}, ${width}`);
          await checkAccessibility(page, `${theme}, ${width}`);
          for (const id of ["ranks", "bottleneck", "breakdown"]) {
            await page.locator(`#${id}`).screenshot({ path: join(folder, `${id}-${theme}-${width}.png`) });
          }
        });
      }
    }
    console.log(`screenshots: ${folder}`);
  });
});
