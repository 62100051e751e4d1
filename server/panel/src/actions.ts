// The actions that views request from the page.

import type { Place } from "./document";

export type Command = "profile" | "stop" | "pause" | "resume" | "explore" | "measure";

export interface Actions {
  /** Opens the line in the editor. In a report, scrolls to it on the page. */
  jump(place: Place): void;
  /** Highlights the line in the editor. Null clears the highlight. */
  highlight(place: Place | null): void;
  command(name: Command): void;
  /** Formats a place: `model.py:12`. */
  placeName(place: Place): string;
  /** Whether `jump` can open this place. */
  canJump(place: Place | null): place is Place;
}
