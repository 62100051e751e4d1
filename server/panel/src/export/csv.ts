// Comma-separated values (RFC 4180).

export type Cell = string | number | boolean | null;

/** A column of a CSV file: its name, with the unit, and the value of a row. */
export type CsvColumn<Row> = [name: string, value: (row: Row) => Cell];

/** Returns the rows as CSV with a header. Unknown values are empty. */
export function csv<Row>(columns: readonly CsvColumn<Row>[], rows: Iterable<Row>): string {
  const lines = [columns.map(([name]) => cell(name)).join(",")];
  for (const row of rows) lines.push(columns.map(([, value]) => cell(value(row))).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

function cell(value: Cell): string {
  if (value === null) return "";
  if (typeof value !== "string") return String(value);
  // Spreadsheets would run a name from the workspace that begins like a formula.
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
