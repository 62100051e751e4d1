// Reads `findings` of the document (docs/panel.md).

import { amount, fields, isFields, list, maybeAmount, readPlace, text, type Fields, type Place } from "../values";

export const SEVERITIES = ["warning", "information", "hint"] as const;
export type Severity = (typeof SEVERITIES)[number];

export interface Related {
  text: string;
  /** `net.py:3`. */
  where: string;
  place: Place | null;
}

export interface Fix {
  name: string;
  title: string;
  /** Whether the code can be edited from here, or why not. */
  possible: boolean;
  why: string | null;
}

export interface Finding {
  rule: string;
  severity: Severity;
  text: string;
  why: string;
  /** The cost, such as `1.2 ms of an iteration (12%)`; null if unknown. */
  cost: string | null;
  timeNs: number | null;
  bytes: number | null;
  where: string;
  place: Place | null;
  related: Related[];
  fix: Fix | null;
}

export interface Findings {
  message: string | null;
  /** Most expensive first. */
  rows: Finding[];
  /** The number of findings over the limit. */
  leftOut: number;
}

const ROWS = 500;
const RELATED = 50;

export function readFindings(value: unknown): Findings | null {
  if (!isFields(value)) return null;
  return {
    message: text(value.message) || null,
    rows: list(value.rows, ROWS).flatMap((row) => readFinding(row) ?? []),
    leftOut: amount(value.left_out),
  };
}

function readFinding(it: Fields): Finding | null {
  const told = text(it.text);
  if (told === "") return null;
  return {
    rule: text(it.rule),
    severity: SEVERITIES.find((severity) => severity === it.severity) ?? "hint",
    text: told,
    why: text(it.why),
    cost: text(it.cost) || null,
    timeNs: maybeAmount(it.time_ns),
    bytes: maybeAmount(it.bytes),
    where: text(it.where),
    place: readPlace(it.place),
    related: list(it.related, RELATED).map((one) => ({ text: text(one.text), where: text(one.where), place: readPlace(one.place) })),
    fix: isFields(it.fix) ? readFix(fields(it.fix)) : null,
  };
}

function readFix(it: Fields): Fix | null {
  const name = text(it.name);
  if (name === "") return null;
  return { name, title: text(it.title) || name, possible: it.possible === true, why: text(it.why) || null };
}
