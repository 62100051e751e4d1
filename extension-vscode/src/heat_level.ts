// How hot a statement is drawn.

/** Shares of the iteration's time from which each level begins, the lowest level first. */
export const LEVELS = [0.02, 0.05, 0.1, 0.25] as const;

/** 1 to 4; 0 where the statement is not worth a mark. */
export function heatLevel(share: number): number {
  return LEVELS.filter((least) => share >= least).length;
}
