// Formats durations, sizes and shares exactly as `analysis/base/src/units.rs` does. `fixtures/units.json` tests both.

/** `4.2 ms`, `830 µs`, `1.3 s`: a duration in nanoseconds. */
export function duration(nanoseconds: number): string {
  if (nanoseconds < 999.5) return `${significant(nanoseconds)} ns`;
  if (nanoseconds < 999.5e3) return `${significant(nanoseconds / 1e3)} µs`;
  if (nanoseconds < 999.5e6) return `${significant(nanoseconds / 1e6)} ms`;
  return `${significant(nanoseconds / 1e9)} s`;
}

/** `86 MB`, `1.2 GB`: a size in bytes, in decimal units. */
export function bytes(size: number): string {
  // Bytes have no decimals.
  if (size < 999.5) return `${fixed(size, 0)} B`;
  if (size < 999.5e3) return `${significant(size / 1e3)} kB`;
  if (size < 999.5e6) return `${significant(size / 1e6)} MB`;
  return `${significant(size / 1e9)} GB`;
}

/** `19.5 TFLOP/s`: a rate with a decimal prefix. */
export function rate(value: number, unit: string): string {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let [scaled, at] = [value, 0];
  while (scaled >= 1e3 && at < prefixes.length - 1) [scaled, at] = [value / 1e3 ** (at + 1), at + 1];
  return `${significant(scaled)} ${prefixes[at]!}${unit}`;
}

/** `8%`, `0.4%`, `<0.1%`: a share between 0 and 1. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1%";
  return value < 0.95 ? `${fixed(value, 1)}%` : `${fixed(value, 0)}%`;
}

/** Two to three significant digits without an exponent: `4.2`, `12.5`, `312`, `4810`. */
export function significant(value: number): string {
  if (value >= 99.95 || value === 0) return fixed(value, 0);
  if (value >= 9.995) return fixed(value, 1).replace(/\.0$/, "");
  return value >= 0.995 ? fixed(value, 1) : fixed(value, 2);
}

/** `1,234`: a whole number. */
export function count(value: number): string {
  return fixed(value, 0).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** `1 match`, `3 matches`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** `just now`, `3 minutes ago`, `2 days ago`. */
export function ago(whenMs: number, nowMs: number): string {
  const seconds = Math.max(0, (nowMs - whenMs) / 1000);
  if (seconds < 45) return "just now";
  if (seconds < 45 * 60) return `${counted(Math.max(1, Math.round(seconds / 60)), "minute")} ago`;
  if (seconds < 22 * 3600) return `${counted(Math.max(1, Math.round(seconds / 3600)), "hour")} ago`;
  return `${counted(Math.max(1, Math.round(seconds / 86400)), "day")} ago`;
}

/** `2026-09-10 14:03`, in the reader's time zone. */
export function moment(whenMs: number): string {
  const when = new Date(whenMs);
  if (Number.isNaN(when.getTime())) return "unknown";
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${day} ${two(when.getHours())}:${two(when.getMinutes())}`;
}

/** Shortens a text to `limit` characters. A shortened text ends with `…`. */
export function shorten(text: string, limit: number): string {
  return text.length <= limit ? text : `${text.slice(0, Math.max(0, limit - 1))}…`;
}

// Rounds ties to even, like Rust's `{:.N}`. `toFixed` rounds them up.
function fixed(value: number, digits: number): string {
  const scaled = value * 10 ** digits;
  const below = Math.floor(scaled);
  const tie = scaled - below === 0.5 && (below + 0.5) / 10 ** digits === value;
  return (tie && below % 2 === 0 ? below / 10 ** digits : value).toFixed(digits);
}

/** Capitalizes the first letter. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
