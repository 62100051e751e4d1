// What views ask of the outside: the editor, and the ears of a screen reader.

import type { Place } from "./document";

export type Command = "profile" | "stop" | "pause" | "resume" | "explore" | "measure";

export interface Actions {
  /** Opens the line in the editor; in a report, goes to it on the page. */
  jump(place: Place): void;
  /** Marks the line in the editor; null takes the mark away. */
  highlight(place: Place | null): void;
  command(name: Command): void;
  /** `model.py:12`. */
  placeName(place: Place): string;
  /** Whether a jump leads anywhere. */
  canJump(place: Place | null): place is Place;
}
