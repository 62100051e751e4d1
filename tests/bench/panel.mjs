// Measures the panel in Chromium: how soon it becomes usable, and how smooth dragging is. It only prints the results,
// because assertions on them would fail randomly on a busy machine.
//
//   node tests/bench/panel.mjs [OPERATORS]   a generated document (default: 100000 operators)
//   node tests/bench/panel.mjs ADDRESS       the URL of `ridgeline panel`

import { findBrowser, launch } from "../panel/browser.mjs";
import { panelDocument, timelineDocument } from "../panel/documents.mjs";
import { openSite } from "../panel/site.mjs";

const given = process.argv[2] ?? "100000";
const DRAG_MS = 3_000;

const found = findBrowser();
if (found.reason !== undefined) {
  console.log(`SKIPPED: ${found.reason}`);
  process.exit(0);
}

const site = given.startsWith("http") ? null : await openGeneratedSite(Number(given));
const address = site?.address ?? given;
const browser = await launch(found);

for (let round = 1; round <= 3; round += 1) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.addInitScript(() => {
    window.longTasks = [];
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) window.longTasks.push([entry.startTime, entry.duration]);
    }).observe({ type: "longtask", buffered: true });
  });
  await page.goto(address);
  await page.waitForSelector("html[data-ready]");
  const shown = await page.evaluate(() => performance.now());
  await page.waitForSelector("canvas.timeline:visible");
  const drawn = await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())))));
  await page.waitForTimeout(300);
  const tasks = await page.evaluate(() => window.longTasks);
  console.log(
    `round ${round}: breakdown after ${shown.toFixed(0)} ms, timeline after ${drawn.toFixed(0)} ms; tasks over 50 ms: ` +
      (tasks.map(([start, long]) => `${long.toFixed(0)} ms at ${start.toFixed(0)}`).join(", ") || "none"),
  );
  if (round === 3) {
    await drag(page, "canvas.icicle", 0.5, "icicle, zoomed");
    await drag(page, "canvas.timeline", 0.5, "timeline, zoomed to 50%");
    await drag(page, "canvas.timeline", 0.03, "timeline, zoomed to 3%");
    await drag(page, "canvas.timeline", 0.0005, "timeline, zoomed to single operators");
  }
  await page.close();
}
await browser.close();
await site?.close();

/** Opens a site with a document of many nodes and a timeline of this many operators. */
async function openGeneratedSite(operators) {
  const panel = JSON.stringify(panelDocument({ layers: 600 }));
  // 60% of the spans are operators. The rest are kernels and idle time.
  const timeline = JSON.stringify(timelineDocument({ spans: Math.round(operators / 0.6) }));
  console.log(
    `${JSON.parse(panel).recording.breakdowns[0].nodes.length} nodes, ${JSON.parse(timeline).spans.track.length} spans ` +
      `(${operators} operators), ${(timeline.length / 1e6).toFixed(1)} MB`,
  );
  return openSite({ panel, timeline });
}

/** Zooms to a fraction of the visible range, drags back and forth, and prints the frame rate. */
async function drag(page, selector, share, what) {
  const canvas = page.locator(selector);
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  const y = box.y + Math.min(box.height / 2, 90);
  const middle = box.x + box.width / 2;
  await page.mouse.move(middle, y);
  await page.keyboard.down("Control");
  for (let left = 1; left > share * 1.01; left /= Math.E ** 0.5) await page.mouse.wheel(0, -200);
  await page.keyboard.up("Control");
  await page.waitForTimeout(300);
  await page.evaluate(() => {
    window.frames_ = [];
    window.recording = true;
    const frame = (now) => {
      window.frames_.push(now);
      if (window.recording) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  await page.mouse.down();
  const began = performance.now();
  for (let step = 0; performance.now() - began < DRAG_MS; step += 1) {
    await page.mouse.move(middle + 300 * Math.sin(step / 25), y);
  }
  await page.mouse.up();
  const times = await page.evaluate(() => {
    window.recording = false;
    return window.frames_;
  });
  const gaps = times.slice(1).map((time, at) => time - times[at]).sort((a, b) => a - b);
  const fps = (1000 * gaps.length) / (times.at(-1) - times[0]);
  const at = (quantile) => gaps[Math.min(gaps.length - 1, Math.floor(quantile * gaps.length))].toFixed(1);
  console.log(`dragging the ${what}: ${fps.toFixed(1)} frames per second; between frames ${at(0.5)} ms (median), ${at(0.95)} ms (95%), ${at(1)} ms (worst)`);
}
