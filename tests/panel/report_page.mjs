// Builds the page as `ridgeline report` does: one file with the script, the style, the documents and some source.

import { builtFile } from "./site.mjs";

export function reportPage(panel, timeline) {
  // `<` in a data block is escaped as in JSON, so that no text can close the block.
  const json = (value) => JSON.stringify(value).replaceAll("<", "\\u003c");
  const put = (html, mark, text) => {
    if (!html.includes(mark)) throw new Error(`index.html has no ${mark}`);
    return html.replace(mark, () => text);
  };
  let html = builtFile("index.html");
  html = put(html, '<link rel="stylesheet" href="panel.css">', `<style>${builtFile("panel.css")}</style>`);
  html = put(
    html,
    '<script src="panel.js"></script>',
    `<script type="application/json" id="panel-data">${json(panel)}</script>` +
      `<script type="application/json" id="timeline-data">${json(timeline)}</script>` +
      `<script>${builtFile("panel.js")}</script>`,
  );
  const source = '<section aria-label="Source"><table><tbody><tr id="f2l12"><td>12</td><td>for batch in loader:</td></tr></tbody></table></section>';
  return put(html, "</main>", `${source}</main>`);
}
