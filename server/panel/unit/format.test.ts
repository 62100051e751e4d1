import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

import { ago, bytes, count, duration, percent, rate, shorten, significant } from "../src/format";

type Pairs = Record<"duration" | "bytes" | "percent" | "rate" | "significant", [value: number, text: string][]>;

// Written by analysis/tests/panel.rs: the same values formatted in Rust.
const pairs = JSON.parse(readFileSync(join(import.meta.dirname, "../fixtures/units.json"), "utf8")) as Pairs;
const formats = { duration, bytes, percent, significant, rate: (value: number) => rate(value, "FLOP/s") };

describe.each(Object.entries(formats))("%s", (name, format) => {
  const expected = pairs[name as keyof Pairs];
  it("formats like the server", () => {
    expect(expected.length).toBeGreaterThan(5);
    expect(expected.map(([value]) => [value, format(value)])).toEqual(expected);
  });
});

describe("counts and times ago", () => {
  it("groups digits", () => {
    expect([0, 999, 1000, 1234567].map(count)).toEqual(["0", "999", "1,000", "1,234,567"]);
  });

  it.each([
    [0, "just now"],
    [-5, "just now"],
    [60, "1 minute ago"],
    [3 * 60, "3 minutes ago"],
    [50 * 60, "1 hour ago"],
    [30 * 3600, "1 day ago"],
    [72 * 86400, "72 days ago"],
  ])("%d seconds", (seconds, text) => {
    expect(ago(1e12, 1e12 + seconds * 1000)).toBe(text);
  });

  it("shortens", () => {
    expect(shorten("abcdef", 6)).toBe("abcdef");
    expect(shorten("abcdef", 4)).toBe("abc…");
  });
});
