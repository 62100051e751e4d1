// Patterns that mark the phases in high-contrast themes, so that colour is not the only sign. panel.css has the same
// for the legend.

import type { Paint } from "./surface";
import type { Palette } from "./theme";

const SIZE = 6;

/** Draws the marks of each phase, in the order of `PHASES`, into a tile of `SIZE` pixels. Forward has none. */
const MARKS: ((tile: CanvasRenderingContext2D) => void)[] = [
  (tile) => {
    tile.fillRect(1, 1, 2, 2);
    tile.fillRect(4, 4, 2, 2);
  },
  () => undefined,
  (tile) => {
    for (const start of [-SIZE, 0, SIZE]) {
      tile.beginPath();
      tile.moveTo(start, SIZE);
      tile.lineTo(start + SIZE, 0);
      tile.stroke();
    }
  },
  (tile) => {
    tile.fillRect(0, 0, 3, SIZE);
  },
  (tile) => {
    tile.fillRect(0, 1, SIZE, 2);
    tile.fillRect(0, 4, SIZE, 1);
  },
];

/** Returns the pattern of each phase, to paint over its colour. An export has none. */
export function phasePatterns(context: Paint, palette: Palette): (CanvasPattern | null)[] {
  return MARKS.map((mark) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = SIZE;
    const inside = tile.getContext("2d");
    if (inside !== null) {
      inside.fillStyle = inside.strokeStyle = palette.surface;
      inside.lineWidth = 1.5;
      mark(inside);
    }
    return context.createPattern(tile, "repeat");
  });
}
