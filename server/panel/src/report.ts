// A report that opens from disk carries its documents within the page; there is no server.

import { readDocument, type PanelDocument } from "./document";

export interface Report {
  panel: PanelDocument;
  /** Parsed when it is asked for: it is large, and the page shows without it. */
  timeline(): unknown;
}

/** Null where the page is not a report. */
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
