// Reads values from an untrusted document. Missing, invalid or excessive values are corrected.

const CHARACTERS = 2_000;

export type Fields = Partial<Record<string, unknown>>;

/** A source line in one of the recording's files. */
export interface Place {
  file: number;
  line: number;
}

/** A prediction with its 80% interval, from `low` to `high`. */
export interface Estimate {
  low: number;
  value: number;
  high: number;
}

export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function fields(value: unknown): Fields {
  return isFields(value) ? value : {};
}

export function array(value: unknown, limit: number): unknown[] {
  return Array.isArray(value) ? value.slice(0, limit) : [];
}

export function list(value: unknown, limit: number): Fields[] {
  return array(value, limit).map(fields);
}

export function text(value: unknown): string {
  return typeof value === "string" ? value.slice(0, CHARACTERS) : "";
}

// Clamped to the largest integer that a double represents exactly.
export function amount(value: unknown): number {
  return maybeAmount(value) ?? 0;
}

export function maybeAmount(value: unknown): number | null {
  if (typeof value !== "number" || !Number.isFinite(value) || value < 0) return null;
  return Math.min(value, Number.MAX_SAFE_INTEGER);
}

export function maybeShare(value: unknown): number | null {
  const share = maybeAmount(value);
  return share === null ? null : Math.min(share, 1);
}

export function readPlace(value: unknown): Place | null {
  const { file, line } = fields(value);
  if (!Number.isSafeInteger(file) || !Number.isSafeInteger(line)) return null;
  return (file as number) >= 0 && (line as number) >= 1 ? { file: file as number, line: line as number } : null;
}

/** Reads an estimate. The returned range always contains the value. */
export function readEstimate(value: unknown): Estimate | null {
  const it = fields(value);
  const middle = maybeAmount(it.value);
  if (middle === null) return null;
  return { low: Math.min(maybeAmount(it.low) ?? middle, middle), value: middle, high: Math.max(amount(it.high), middle) };
}
