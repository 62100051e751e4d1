// A report opened from disk embeds its documents in the page. It has no server.

import { readDocument, type PanelDocument } from "./document";

export interface Report {
  panel: PanelDocument;
  /** Parses the timeline on demand: it is large, and not needed for the first paint. */
  timeline(): unknown;
}

/** Returns the embedded report, or null if the page is not a report. */
export function findReport(): Report | null {
  const data = document.getElementById("panel-data");
  if (data === null) return null;
  return {
    panel: readDocument(JSON.parse(data.textContent)),
    timeline: () => {
      const timeline = document.getElementById("timeline-data");
      return timeline === null ? null : (JSON.parse(timeline.textContent) as unknown);
    },
  };
}
