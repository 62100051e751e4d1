// Maps a statement's share of the iteration time to a heat level.

/** The lowest share of the iteration time for each level, in ascending order. */
export const LEVELS = [0.02, 0.05, 0.1, 0.25] as const;

/** Returns a level from 1 to 4, or 0 if the statement is too cheap to mark. */
export function heatLevel(share: number): number {
  return LEVELS.filter((least) => share >= least).length;
}
